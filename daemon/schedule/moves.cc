// One host's share of a plan: the steps of its ranks, merged into one list. Nothing of another host
// is looked at, so this costs as much as the host's own steps.
#include <algorithm>

#include "daemon/schedule/merge.h"

namespace tutti {
namespace {

// Plays the host's ranks against each other. A local send only leaves a note; the move is made
// where the receiver takes it. What waits for another host is taken only when nothing else on this
// host can go on, so no move of ours stands behind a wait it does not need.
class Merger {
 public:
  Merger(const std::vector<int>& ranks, std::vector<std::vector<Step>> steps, int world_size,
         int chunks)
      : ranks_(ranks), chunks_(chunks), seat_(world_size, kElsewhere), steps_(std::move(steps)) {
    for (size_t i = 0; i < ranks_.size(); ++i) seat_[ranks_[i]] = static_cast<int>(i);
    next_.resize(ranks_.size());
    notes_.resize(ranks_.size() * ranks_.size());
    sent_.resize(ranks_.size() * seat_.size());
    taken_.resize(ranks_.size() * seat_.size());
    places_.resize(ranks_.size() * chunks_);
  }

  std::vector<Move> run() {
    do {
      while (advance_all()) {
      }
    } while (take_from_elsewhere());
    for (size_t i = 0; i < ranks_.size(); ++i)
      require(next_[i] == steps_[i].size(), "ranks of one host never wait for each other in vain");
    return std::move(moves_);
  }

 private:
  static constexpr int kElsewhere = -1;
  // The last moves that concern one rank's value of one chunk, by index; -1: none yet.
  struct Place {
    int touched = -1;
    int written = -1;
    int spread = -1;
  };

  bool is_local(const Step& step) const {
    return step.kind != StepKind::finish && seat_[step.peer] != kElsewhere;
  }
  int& notes(int from, int to) { return notes_[from * ranks_.size() + to]; }
  Place& place(int rank, int chunk) { return places_[seat_[rank] * chunks_ + chunk]; }
  int last() const { return static_cast<int>(moves_.size()) - 1; }

  bool advance_all() {
    bool any = false;
    for (size_t i = 0; i < ranks_.size(); ++i)
      while (advance(static_cast<int>(i))) any = true;
    return any;
  }

  bool advance(int i) {
    if (next_[i] == steps_[i].size()) return false;
    const Step& step = steps_[i][next_[i]];
    if (step.kind == StepKind::finish)
      return write(i, {MoveKind::finish, ranks_[i], -1, step.chunk});
    if (step.kind == StepKind::send) return send(i, step);
    if (!is_local(step)) return false;
    return step.kind == StepKind::recv ? spread(i, step) : fold(i, step);
  }

  bool send(int i, const Step& step) {
    ++next_[i];
    if (is_local(step)) {
      ++notes(i, seat_[step.peer]);
      return true;
    }
    const int ordinal = sent_[i * seat_.size() + step.peer]++;
    moves_.push_back({MoveKind::send, ranks_[i], step.peer, step.chunk, ordinal, {}});
    place(ranks_[i], step.chunk).touched = last();
    return true;
  }

  // A move that changes the value of its own rank.
  bool write(int i, Move move) {
    ++next_[i];
    moves_.push_back(std::move(move));
    Place& here = place(ranks_[i], moves_.back().chunk);
    here.touched = here.written = last();
    return true;
  }

  // All that follows for the same chunk from other ranks of the host becomes one move. Waiting for
  // the last of them holds nobody up: between two of these steps this rank tells nobody anything.
  bool fold(int i, const Step& first) {
    std::vector<int> others;
    for (size_t at = next_[i]; at < steps_[i].size(); ++at) {
      const Step& step = steps_[i][at];
      if (step.kind != first.kind || step.chunk != first.chunk || !is_local(step)) break;
      if (std::find(others.begin(), others.end(), step.peer) != others.end()) break;
      if (notes(seat_[step.peer], i) == 0) return false;
      others.push_back(step.peer);
    }
    next_[i] += others.size() - 1;
    write(i, {MoveKind::fold, ranks_[i], -1, first.chunk, 0, others});
    for (int other : others) {
      --notes(seat_[other], i);
      place(other, first.chunk).touched = last();
    }
    return true;
  }

  bool spread(int i, const Step& step) {
    int& note = notes(seat_[step.peer], i);
    if (note == 0) return false;
    --note;
    ++next_[i];
    Place& from = place(step.peer, step.chunk);
    Place& to = place(ranks_[i], step.chunk);
    if (!may_join(from, to)) {
      moves_.push_back({MoveKind::spread, step.peer, -1, step.chunk, 0, {}});
      from.spread = from.touched = last();
    }
    std::vector<int>& others = moves_[from.spread].others;
    others.insert(std::upper_bound(others.begin(), others.end(), ranks_[i]), ranks_[i]);
    to.touched = to.written = from.spread;
    return true;
  }

  // Whether the last spread of this value may serve one more rank, which moves that copy forward to
  // it: the value must be the same, the rank's own not in use since, and no message have come in
  // between, since one may be the proof that a send of the rank's own value was taken.
  bool may_join(const Place& from, const Place& to) const {
    const int at = from.spread;
    return at >= 0 && at > from.written && at > to.touched && at > last_recv_;
  }

  bool take_from_elsewhere() {
    for (size_t i = 0; i < ranks_.size(); ++i) {
      if (next_[i] == steps_[i].size()) continue;
      const Step& step = steps_[i][next_[i]];
      if (is_local(step)) continue;
      const auto kind = step.kind == StepKind::recv ? MoveKind::recv : MoveKind::recv_reduce;
      const int ordinal = taken_[i * seat_.size() + step.peer]++;
      write(static_cast<int>(i), {kind, ranks_[i], step.peer, step.chunk, ordinal, {}});
      last_recv_ = last();
      return true;
    }
    return false;
  }

  const std::vector<int>& ranks_;
  const int chunks_;
  std::vector<int> seat_;  // By rank: its index on this host, or kElsewhere.
  std::vector<std::vector<Step>> steps_;
  std::vector<size_t> next_;       // By seat: the step to take.
  std::vector<int> notes_;         // By seats from, to: local messages sent and not yet taken.
  std::vector<int> sent_, taken_;  // By seat and peer: messages so far.
  std::vector<Place> places_;      // By seat and chunk.
  std::vector<Move> moves_;
  int last_recv_ = -1;
};

}  // namespace

std::vector<Move> merge(const std::vector<int>& ranks, std::vector<std::vector<Step>> steps,
                        int world_size, int chunks) {
  return Merger(ranks, std::move(steps), world_size, chunks).run();
}

std::vector<Move> moves_of(const Plan& plan, int host) {
  const std::vector<int>& ranks = plan.hosts[host];
  std::vector<std::vector<Step>> steps;
  for (int rank : ranks) steps.push_back(steps_of(plan, rank));
  return merge(ranks, std::move(steps), world_size(plan), chunk_count(plan));
}

}  // namespace tutti
