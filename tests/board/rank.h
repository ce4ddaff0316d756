// The steps of a rank: part of actors.h.
#pragma once

#include "tests/board/actors.h"

namespace tutti::board::model {

inline void Actors::step(Rank& rank) {
  switch (rank.at) {
    case RankAt::choose:
      return choose(rank);
    case RankAt::arrive:
      return ends<Arrive<Memory>>(rank, rank.next) ? arrive(rank) : void();
    case RankAt::fold:
      return fold(rank);
    case RankAt::end:
      return ends<EndOp<Memory>>(rank, rank.next) ? go(rank, RankAt::let_go) : void();
    case RankAt::early_let_go:
      memory(local_rank(rank), rank.waits).store_holding(local_rank(rank), 0);
      return finish(rank);
    case RankAt::let_go:
      memory(local_rank(rank), rank.next).store_holding(local_rank(rank), 0);
      return arrived(rank, false);
    case RankAt::wait:
      return wait(rank);
    case RankAt::claim:
      return ends<ClaimBlock<Memory>>(rank, rank.waits) ? claim(rank) : void();
    case RankAt::late_hold:
      memory(local_rank(rank), rank.waits).store_holding(local_rank(rank), rank.block + 1U);
      return go(rank, RankAt::fold);
    case RankAt::finish:
      return ends<FinishBlock<Memory>>(rank, rank.waits) ? go(rank, RankAt::wait) : void();
    case RankAt::complete:
      return ends<CompleteOp<Memory>>(rank, rank.waits) ? go(rank, RankAt::wait) : void();
    case RankAt::call:
      return ends<CallWorker<Memory>>(rank, rank.waits) ? go(rank, RankAt::wait) : void();
    case RankAt::read_failure:
      return read_failure(rank);
    case RankAt::settle:
      return settle(rank);
    case RankAt::finished:
      return;
  }
}

inline void Actors::choose(Rank& rank) {
  go(rank, RankAt::choose);
  const bool waits = rank.waits < rank.next;
  if (rank.refused && shared_.epoch_over) rank.barred = true;
  if (rank.waits == setup_.ops) return go(rank, RankAt::finished);
  if (rank.barred && !waits) return bar(rank);
  const bool has_room = setup_.pipelined ? rank.next < rank.waits + kSlots : !waits;
  const bool arrives = rank.next < setup_.ops && has_room && !rank.barred;
  if (!arrives || (rank.refused && waits)) return go(rank, RankAt::wait);
  begin<Arrive<Memory>>(rank, RankAt::arrive,
                        Participant{rank.next, kSlots, local_rank(rank), setup_.ranks});
}

// Calls that found no slot fail on all ranks.
inline void Actors::bar(Rank& rank) {
  while (rank.waits < setup_.ops) note(rank, Phase::failed), ++rank.waits;
  go(rank, RankAt::finished);
}

inline void Actors::arrive(Rank& rank) {
  const auto result = rank.running.as<Arrive<Memory>>().result();
  using Result = Arrive<Memory>::Result;
  context_.require(result != Result::broken && result != Result::none, "an arrival breaks");
  rank.refused = result == Result::not_free;
  rank.counted = rank.decides = false;
  if (rank.refused) return choose(rank);
  arrived(rank, result == Result::alone);
}

inline void Actors::arrived(Rank& rank, bool alone) {
  rank.solo = alone;
  rank.block = 0;
  rank.blocks = alone ? static_cast<uint8_t>(setup_.blocks) : 0;
  if (alone) return go(rank, RankAt::fold);
  ++rank.next;
  if (setup_.fault == Fault::settles_at_arrival) shared_.settled[local_rank(rank)] = rank.next;
  choose(rank);
}

inline void Actors::fold(Rank& rank) {
  memory(local_rank(rank), rank.solo ? rank.next : rank.waits).check_fold(rank.block, !rank.half);
  rank.half = !rank.half;
  if (rank.half) return;
  const bool lets_go = setup_.fault == Fault::lets_go_before_counting;
  if (!rank.solo) return lets_go ? go(rank, RankAt::early_let_go) : finish(rank);
  if (++rank.block == rank.blocks)
    begin<EndOp<Memory>>(rank, RankAt::end, generation_of(rank.next), Phase::done);
}

inline void Actors::finish(Rank& rank) {
  begin<FinishBlock<Memory>>(rank, RankAt::finish, generation_of(rank.waits), local_rank(rank),
                             uint32_t{rank.blocks});
}

inline void Actors::claim(Rank& rank) {
  const ClaimBlock<Memory>& claim = rank.running.as<ClaimBlock<Memory>>();
  rank.block = static_cast<uint8_t>(claim.block());
  rank.blocks = static_cast<uint8_t>(claim.blocks());
  const bool late_hold = setup_.fault == Fault::holding_after_the_claim;
  if (claim.claimed()) return go(rank, late_hold ? RankAt::late_hold : RankAt::fold);
  rank.block = rank.blocks = 0;
  if (setup_.fault == Fault::completed_by_last_alone) return go(rank, RankAt::wait);
  begin<CompleteOp<Memory>>(rank, RankAt::complete, generation_of(rank.waits));
}

inline void Actors::wait(Rank& rank) {
  rank.block = rank.blocks = 0;
  const SlotWord word = unpack(memory(local_rank(rank), rank.waits).load_word());
  context_.require(word.generation == generation_of(rank.waits),
                   "a slot is used again while a rank waits");
  if (word.phase == Phase::folding)
    return begin<ClaimBlock<Memory>>(rank, RankAt::claim, generation_of(rank.waits),
                                     local_rank(rank));
  if (!is_over(word.phase)) return;
  note(rank, word.phase);
  const bool reads = word.phase == Phase::failed;
  if (setup_.fault == Fault::settles_before_the_failure && reads) {
    shared_.settled[local_rank(rank)] = static_cast<uint8_t>(rank.waits + 1);
    return go(rank, RankAt::read_failure);
  }
  go(rank, reads ? RankAt::read_failure : RankAt::settle);
}

inline void Actors::note(Rank& rank, Phase verdict) {
  Phase& seen = shared_.verdict[rank.waits];
  context_.require(seen == Phase::open || seen == verdict, "two verdicts of one operation");
  seen = verdict;
}

inline void Actors::read_failure(Rank& rank) {
  ++context_.touches;
  context_.require(shared_.failure[slot_of(rank)] == rank.waits + 1, "no failure, or another's");
  go(rank, RankAt::settle);
}

inline void Actors::settle(Rank& rank) {
  ++context_.touches;
  shared_.settled[local_rank(rank)] = ++rank.waits;
  rank.refused = false;
  choose(rank);
}

}  // namespace tutti::board::model
