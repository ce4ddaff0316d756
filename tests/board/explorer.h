// Explores every interleaving of model.h, breadth first, so that the first violation found is
// one of the shortest.
//
// Every step is checked as it is taken. Absence of hangs is checked on the whole graph of states:
// whichever ranks stop, from every state the others can reach their ends, as they do under a fair
// scheduler.
#pragma once

#include <deque>
#include <span>
#include <vector>

#include "tests/board/rank.h"
#include "tests/board/worker.h"

namespace tutti::board::model {

struct Finding {
  std::string what;   // The violation; empty: none.
  std::string trace;  // The steps to it.
  size_t states = 0;
  size_t steps = 0;
};

class Explorer {
 public:
  explicit Explorer(const Setup& setup, size_t states_most = 20'000'000)
      : setup_(setup), states_most_(states_most) {}
  Finding explore();

 private:
  struct Key {
    uint64_t low = 0;
    uint64_t high = 0;
    bool operator==(const Key&) const = default;
  };
  struct Edge {
    uint32_t to;
    Action action;
  };
  struct Origin {
    uint32_t from;
    Action action;
  };
  static constexpr uint32_t kNone = 0xffffffff;

  State first() const;
  static Key hash(const State& state);
  uint32_t find(const Key& key, bool& is_new);
  void grow();
  bool expand(uint32_t index, const State& state);
  bool take(uint32_t index, const State& state, const Action& action);
  void enter(const State& state, const Origin& origin);
  uint32_t unfinished(const State& state) const;
  void find_hangs();
  void find_hang(uint32_t stopped, bool in_time);
  bool may_help(const Edge& edge, uint32_t stopped, bool in_time) const;
  std::string trace(uint32_t index) const;
  std::string describe(const Action& action, const State& before, const State& after) const;

  Setup setup_;
  size_t states_most_;
  std::vector<Key> keys_;
  std::vector<uint32_t> indexes_;    // Of keys_.
  std::vector<Origin> origins_;      // By state.
  std::vector<uint8_t> unfinished_;  // Bit a rank.
  std::vector<uint8_t> needed_;      // See Actors::needed().
  std::vector<size_t> first_edge_;
  std::vector<Edge> edges_;
  std::deque<State> frontier_;
  Finding finding_;
};

inline State Explorer::first() const {
  State state;
  std::memset(static_cast<void*>(&state), 0, sizeof state);
  state.shared.ranks_decide = !setup_.diverted;
  if (setup_.diverted) state.shared.diverted = (1U << kSlots) - 1;
  for (uint32_t rank = setup_.ranks; rank < kRanks; ++rank) state.ranks[rank].at = RankAt::finished;
  Context context{setup_, state};
  for (uint8_t rank = 0; rank < setup_.ranks; ++rank) Actors(context).take({rank});
  return state;
}

inline Explorer::Key Explorer::hash(const State& state) {
  static_assert(sizeof(State) % 8 == 0);
  uint64_t low = 0x9e3779b97f4a7c15, high = 0xd1b54a32d192ed03;
  for (size_t at = 0; at < sizeof(State); at += 8) {
    uint64_t bits;
    std::memcpy(&bits, reinterpret_cast<const unsigned char*>(&state) + at, 8);
    low = (low ^ bits) * 0xff51afd7ed558ccd;
    low ^= low >> 29;
    high = (high + bits) * 0xc4ceb9fe1a85ec53;
    high ^= high >> 31;
  }
  return {low, high | 1};
}

inline void Explorer::grow() {
  const size_t room = keys_.empty() ? 1 << 12 : keys_.size() * 2;
  std::vector<Key> keys(room);
  std::vector<uint32_t> indexes(room);
  for (size_t i = 0; i < keys_.size(); ++i) {
    if (keys_[i].high == 0) continue;
    size_t at = keys_[i].low & (room - 1);
    while (keys[at].high != 0) at = (at + 1) & (room - 1);
    keys[at] = keys_[i];
    indexes[at] = indexes_[i];
  }
  keys_.swap(keys);
  indexes_.swap(indexes);
}

inline uint32_t Explorer::find(const Key& key, bool& is_new) {
  if (origins_.size() * 2 >= keys_.size()) grow();
  size_t at = key.low & (keys_.size() - 1);
  while (keys_[at].high != 0 && keys_[at] != key) at = (at + 1) & (keys_.size() - 1);
  is_new = keys_[at].high == 0;
  if (!is_new) return indexes_[at];
  keys_[at] = key;
  return indexes_[at] = static_cast<uint32_t>(origins_.size());
}

inline uint32_t Explorer::unfinished(const State& state) const {
  uint32_t bits = 0;
  for (uint32_t rank = 0; rank < setup_.ranks; ++rank)
    if (!state.ranks[rank].dead && state.ranks[rank].at != RankAt::finished) bits |= 1U << rank;
  return bits;
}

inline void Explorer::enter(const State& state, const Origin& origin) {
  origins_.push_back(origin);
  unfinished_.push_back(static_cast<uint8_t>(unfinished(state)));
  needed_.push_back(static_cast<uint8_t>(Actors::needed(setup_, state)));
  frontier_.push_back(state);
}

inline bool Explorer::take(uint32_t index, const State& state, const Action& action) {
  if (!Actors::is_enabled(setup_, state, action)) return false;
  State next = state;
  Context context{setup_, next};
  Actors(context).take(action);
  context.require(context.touches <= 1, "a step touches shared memory twice");
  ++finding_.steps;
  bool is_new = false;
  const uint32_t to = find(hash(next), is_new);
  if (to == index) return true;
  if (is_new) enter(next, {index, action});
  edges_.push_back({to, action});
  if (context.violation.empty()) return true;
  finding_.what = context.violation;
  finding_.trace = trace(index) + describe(action, state, next);
  return true;
}

inline bool Explorer::expand(uint32_t index, const State& state) {
  bool moved = false;
  const auto each = [&](uint8_t actor, Kind kind, uint8_t arg = 0) {
    if (finding_.what.empty()) moved |= take(index, state, {actor, kind, arg});
  };
  for (uint8_t rank = 0; rank < setup_.ranks; ++rank)
    for (Kind kind : {Kind::step, Kind::call, Kind::sleep, Kind::die}) each(rank, kind);
  each(kWorker, Kind::step);
  for (uint8_t rank = 0; rank < setup_.ranks; ++rank) each(kWorker, Kind::note, rank);
  for (uint8_t slot = 0; slot <= kSlots; ++slot) each(kWorker, Kind::deadline, slot);
  each(kWorker, Kind::give_up);
  return moved;
}

inline Finding Explorer::explore() {
  bool is_new = false;
  const State initial = first();
  find(hash(initial), is_new);
  enter(initial, {kNone, {}});
  for (uint32_t index = 0; !frontier_.empty() && finding_.what.empty(); ++index) {
    State state = frontier_.front();
    frontier_.pop_front();
    first_edge_.push_back(edges_.size());
    const bool moved = expand(index, state);
    Context context{setup_, state};
    if (!moved && unfinished_[index] == 0) Actors(context).check_end();
    if (!context.violation.empty())
      finding_.what = context.violation, finding_.trace = trace(index);
    if (origins_.size() > states_most_) finding_.what = "too many states";
  }
  first_edge_.push_back(edges_.size());
  if (finding_.what.empty()) find_hangs();
  finding_.states = origins_.size();
  return finding_;
}

// ---- Hangs ----

inline bool Explorer::may_help(const Edge& edge, uint32_t stopped, bool in_time) const {
  if (edge.action.kind == Kind::die || (in_time && is_time(edge.action.kind))) return false;
  return edge.action.actor == kWorker || !has(stopped, edge.action.actor);
}

inline void Explorer::find_hang(uint32_t stopped, bool in_time) {
  std::vector<bool> ends(origins_.size());
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t state = ends.size(); state-- > 0;) {
      if (ends[state]) continue;
      bool good = (unfinished_[state] & ~stopped) == 0;
      for (size_t at = first_edge_[state]; at < first_edge_[state + 1] && !good; ++at)
        good = ends[edges_[at].to] && may_help(edges_[at], stopped, in_time);
      ends[state] = good;
      changed |= good;
    }
  }
  for (uint32_t state = 0; state < ends.size(); ++state) {
    if (ends[state] || (in_time && (needed_[state] & stopped) != 0)) continue;
    finding_.what = std::string(in_time ? "a hang until a deadline" : "a hang") +
                    ", where these ranks take no more step (bits): " + std::to_string(stopped);
    finding_.trace = trace(state);
    return;
  }
}

// Without deadlines only ranks stop that the others do not need; with deadlines any rank does.
inline void Explorer::find_hangs() {
  for (uint32_t stopped = 0; stopped + 1 < 1U << setup_.ranks && finding_.what.empty(); ++stopped) {
    if (stopped == 0 || (setup_.ops <= kSlots && setup_.impatient == 7)) find_hang(stopped, true);
    const bool stops = setup_.deadlines != Deadlines::never && (stopped & ~setup_.slow) == 0;
    if (stops && finding_.what.empty()) find_hang(stopped, false);
  }
}

// ---- Traces ----

inline std::string describe_words(const Shared& shared) {
  static constexpr const char* kPhases[] = {"open", "called", "folding", "done", "failed"};
  std::string text;
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    const SlotWord word = unpack(shared.word[slot]);
    const Count claimed = unpack_count(shared.claimed[slot]);
    const Count folded = unpack_count(shared.folded[slot]);
    text += " | generation " + std::to_string(word.generation) + " " +
            kPhases[static_cast<uint32_t>(word.phase)] + " " + std::to_string(word.arrived) +
            ", claimed " + std::to_string(claimed.generation) + ":" +
            (claimed.blocks == kNoMoreBlocks ? "stop" : std::to_string(claimed.blocks)) +
            ", folded " + std::to_string(folded.generation) + ":" + std::to_string(folded.blocks) +
            ", holding";
    for (uint32_t holding : shared.holding[slot]) text += " " + std::to_string(holding);
  }
  return text;
}

inline std::string Explorer::describe(const Action& action, const State& before,
                                      const State& after) const {
  static constexpr const char* kKinds[] = {
      "steps", "calls", "sleeps", "dies", "notes rank", "deadline of slot", "gives up"};
  static constexpr const char* kRankAts[] = {"choose",       "arrive", "fold",      "end",
                                             "let_go",       "wait",   "claim",     "finish",
                                             "complete",     "call",   "late_hold", "early_let_go",
                                             "read_failure", "settle", "finished"};
  static constexpr const char* kWorkerAts[] = {
      "rest", "take",    "settle_gone", "divert",        "look",
      "call", "judge",   "clear",       "resume",        "dead_holders",
      "stop", "holders", "complete",    "write_failure", "end"};
  std::string text;
  if (action.actor == kWorker) {
    text = std::string("  worker ") + kKinds[static_cast<int>(action.kind)] +
           (action.kind == Kind::step ? "" : " " + std::to_string(action.arg)) + " (" +
           kWorkerAts[static_cast<int>(before.worker.at)] + " -> " +
           kWorkerAts[static_cast<int>(after.worker.at)] + ")";
  } else {
    const Rank& from = before.ranks[action.actor];
    const Rank& to = after.ranks[action.actor];
    text = "  rank " + std::to_string(action.actor) + " " + kKinds[static_cast<int>(action.kind)] +
           " (" + kRankAts[static_cast<int>(from.at)] + " -> " + kRankAts[static_cast<int>(to.at)] +
           ", calls " + std::to_string(from.next) + " waits " + std::to_string(from.waits) + ")";
  }
  return text + describe_words(after.shared) + "\n";
}

inline std::string Explorer::trace(uint32_t index) const {
  std::vector<Action> actions;
  for (; origins_[index].from != kNone; index = origins_[index].from)
    actions.insert(actions.begin(), origins_[index].action);
  State state = first();
  std::string text;
  for (const Action& action : actions) {
    const State before = state;
    Context context{setup_, state};
    Actors(context).take(action);
    text += describe(action, before, state);
  }
  return text;
}

}  // namespace tutti::board::model
