#include "daemon/schedule/checker.h"

#include <algorithm>

#include "daemon/schedule/prover.h"

namespace tutti {
namespace {

enum class Progress { done, waits };

// Runs every actor's list in order, each as far as it goes, until all are through. `take` does one
// entry: done, waits, or a fault.
template <class Entry, class Take>
Status run_all(const std::vector<std::vector<Entry>>& lists, std::string_view actor, Take take) {
  std::vector<size_t> next(lists.size(), 0);
  const auto advance = [&](size_t i) -> Result<Progress> {
    const size_t before = next[i];
    for (; next[i] < lists[i].size(); ++next[i]) {
      const Result<Progress> progress = take(static_cast<int>(i), lists[i][next[i]]);
      if (!progress.ok()) return progress.status();
      if (*progress == Progress::waits) break;
    }
    return next[i] > before ? Progress::done : Progress::waits;
  };
  for (bool any = true; any;) {
    any = false;
    for (size_t i = 0; i < lists.size(); ++i) {
      const auto progress = advance(i);
      if (!progress.ok()) return progress.status();
      any |= *progress == Progress::done;
    }
  }
  for (size_t i = 0; i < lists.size(); ++i)
    if (next[i] < lists[i].size())
      return internal_error("deadlock: " + std::string(actor) + " " + std::to_string(i) +
                            " waits for ever at entry " + std::to_string(next[i]));
  return {};
}

Result<Progress> done_if(Status status) {
  if (!status.ok()) return status;
  return Progress::done;
}

Status outside(int rank, std::string_view what) {
  return internal_error("rank " + std::to_string(rank) + ": " + std::string(what));
}

bool is_peer(const Plan& plan, int rank, int peer) {
  return peer >= 0 && peer < world_size(plan) && peer != rank;
}

Result<Progress> take_step(const Plan& plan, Prover& prover, int rank, const Step& step) {
  if (step.chunk < 0 || step.chunk >= chunk_count(plan)) return outside(rank, "no such chunk");
  if (step.kind == StepKind::finish) return done_if(prover.finish(rank, step.chunk));
  if (!is_peer(plan, rank, step.peer)) return outside(rank, "no such peer");
  if (step.kind == StepKind::send) return done_if(prover.send(rank, step.peer, step.chunk));
  if (!prover.has_message(step.peer, rank)) return Progress::waits;
  const bool reduces = step.kind == StepKind::recv_reduce;
  return done_if(prover.receive(rank, step.peer, step.chunk, reduces));
}

bool is_on(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

Status take_local(Prover& prover, const std::vector<int>& here, const Move& move) {
  const bool folds = move.kind == MoveKind::fold;
  if (move.others.empty()) return outside(move.rank, "a move of memory with nobody");
  for (int other : move.others) {
    if (other == move.rank || !is_on(here, other)) return outside(move.rank, "no such local rank");
    Status status = folds ? prover.copy(move.rank, other, move.chunk, true)
                          : prover.copy(other, move.rank, move.chunk, false);
    if (!status.ok()) return status;
  }
  return {};
}

Result<Progress> take_message(Prover& prover, const Move& move) {
  if (move.kind == MoveKind::send) {
    if (move.ordinal != prover.sent(move.rank, move.peer))
      return outside(move.rank, "a send out of order");
    return done_if(prover.send(move.rank, move.peer, move.chunk));
  }
  if (move.ordinal != prover.taken(move.peer, move.rank))
    return outside(move.rank, "a recv out of order");
  if (!prover.has_message(move.peer, move.rank)) return Progress::waits;
  const bool reduces = move.kind == MoveKind::recv_reduce;
  return done_if(prover.receive(move.rank, move.peer, move.chunk, reduces));
}

Result<Progress> take_move(const Plan& plan, Prover& prover, int host, const Move& move) {
  const std::vector<int>& here = plan.hosts[host];
  if (!is_on(here, move.rank)) return outside(move.rank, "it is not on this host");
  if (move.chunk < 0 || move.chunk >= chunk_count(plan)) return outside(move.rank, "no such chunk");
  switch (move.kind) {
    case MoveKind::finish:
      return done_if(prover.finish(move.rank, move.chunk));
    case MoveKind::fold:
    case MoveKind::spread:
      return done_if(take_local(prover, here, move));
    default:
      break;
  }
  if (!is_peer(plan, move.rank, move.peer) || is_on(here, move.peer))
    return outside(move.rank, "no such peer on another host");
  return take_message(prover, move);
}

Status differs(std::string_view what, int64_t promised, int64_t found) {
  return internal_error("cost: " + std::to_string(found) + " " + std::string(what) +
                        ", where cost_of() states " + std::to_string(promised));
}

Status check_load(const Cost& promised, const Cost& found) {
  if (promised.sent_chunks_max != found.sent_chunks_max)
    return differs("chunks sent", promised.sent_chunks_max, found.sent_chunks_max);
  if (promised.received_chunks_max != found.received_chunks_max)
    return differs("chunks received", promised.received_chunks_max, found.received_chunks_max);
  if (promised.sent_chunks_sum != found.sent_chunks_sum)
    return differs("chunks sent by all", promised.sent_chunks_sum, found.sent_chunks_sum);
  return {};
}

}  // namespace

Schedule schedule_of(const Plan& plan) {
  Schedule schedule;
  for (int rank = 0; rank < world_size(plan); ++rank) schedule.push_back(steps_of(plan, rank));
  return schedule;
}

Status check(const Plan& plan, const Schedule& schedule) {
  if (static_cast<int>(schedule.size()) != world_size(plan))
    return internal_error("a schedule has one list of steps a rank");
  Prover prover(plan);
  Status status = run_all(schedule, "rank", [&](int rank, const Step& step) {
    return take_step(plan, prover, rank, step);
  });
  if (status.ok()) status = prover.conclude();
  if (!status.ok()) return status;
  const Cost promised = cost_of(plan), found = prover.cost();
  if (promised.rounds != found.rounds) return differs("rounds", promised.rounds, found.rounds);
  return check_load(promised, found);
}

Status check_moves(const Plan& plan, const std::vector<std::vector<Move>>& moves) {
  if (moves.size() != plan.hosts.size())
    return internal_error("a merged plan has one list of moves a host");
  Prover prover(plan);
  Status status = run_all(moves, "host", [&](int host, const Move& move) {
    return take_move(plan, prover, host, move);
  });
  if (status.ok()) status = prover.conclude();
  if (!status.ok()) return status;
  return check_load(cost_of(plan), prover.cost());
}

}  // namespace tutti
