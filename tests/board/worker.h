// The steps of the worker: part of actors.h. It handles the slots that were called, one after the
// other, and all slots after a death or the end of the epoch.
#pragma once

#include "tests/board/actors.h"

namespace tutti::board::model {

inline void Actors::step() {
  switch (worker_.at) {
    case WorkerAt::rest:
      return rest();
    case WorkerAt::take:
      return take_called();
    case WorkerAt::settle_gone:
      if (setup_.fault != Fault::dead_never_settle) shared_.settled[worker_.member] = kGone;
      return go(WorkerAt::divert);
    case WorkerAt::divert:
      return divert();
    case WorkerAt::look:
      return look();
    case WorkerAt::call:
      return ends<CallWorker<Memory>>() ? go(WorkerAt::look) : void();
    case WorkerAt::judge:
      return judge();
    case WorkerAt::clear:
      return clear_gone();
    case WorkerAt::resume:
      return ends<ResumeFolding<Memory>>() ? drop() : void();
    case WorkerAt::dead_holders:
      return find_dead_holders();
    case WorkerAt::stop:
      return ends<StopClaims<Memory>>() ? go(WorkerAt::holders) : void();
    case WorkerAt::holders:
      return await_holders();
    case WorkerAt::complete:
      return ends<CompleteOp<Memory>>() ? completed() : void();
    case WorkerAt::write_failure:
      return write_failure();
    case WorkerAt::end:
      return ends<EndOp<Memory>>() ? ended() : void();
  }
}

inline void Actors::rest() {
  if (worker_.todo != 0) return look();
  ++context_.touches;
  shared_.rung = false;
  go(WorkerAt::take);
}

inline void Actors::take_called() {
  ++context_.touches;
  worker_.todo = shared_.called;
  shared_.called = 0;
  go(WorkerAt::rest);
}

// Takes the decisions from the ranks: all operations, also those begun before, come to the worker.
inline void Actors::divert() {
  ++context_.touches;
  shared_.ranks_decide = false;
  if (setup_.fault != Fault::no_diversion) worker_.todo = (1U << kSlots) - 1;
  go(WorkerAt::rest);
}

inline void Actors::look() {
  for (worker_.slot = 0; !has(worker_.todo, worker_.slot);) ++worker_.slot;
  worker_.running.clear();
  const SlotWord word = unpack(memory(kWorker, worker_.slot).load_word());
  if (word.generation == 0) return drop();
  worker_.number = static_cast<uint8_t>(number_of(word.generation, worker_.slot, kSlots));
  worker_.arrived = 0;
  if (word.phase == Phase::called) return go(WorkerAt::judge);
  if (word.phase == Phase::folding && (worker_.gone != 0 || worker_.late))
    return go(WorkerAt::dead_holders);
  if (word.phase == Phase::open && word.arrived > 0 && (decides_all() || worker_.late))
    return begin<CallWorker<Memory>>(WorkerAt::call, generation());
  drop();
}

inline void Actors::judge() {
  ++context_.touches;
  const uint32_t arrived = shared_.arrived[worker_.slot][worker_.member];
  const bool any = setup_.fault == Fault::arrivals_are_not_compared && arrived != 0;
  if (any || arrived == worker_.number + 1U)
    worker_.arrived |= static_cast<uint8_t>(1U << worker_.member);
  if (++worker_.member == setup_.ranks) judge(worker_.arrived == context_.everyone());
}

inline void Actors::judge(bool all) {
  const bool lacks_dead = (worker_.gone & ~worker_.arrived) != 0;
  const bool agreed = memory(kWorker, worker_.number).agreed(worker_.arrived);
  if (!agreed || lacks_dead || shared_.epoch_over || (!all && worker_.late)) return fail();
  return all ? go(WorkerAt::clear) : drop();
}

// A dead rank's old `holding` does not stand for a block of the resumed operation.
inline void Actors::clear_gone() {
  const uint32_t member = worker_.member;
  const Decision decision = memory(kWorker, worker_.number).decide();
  if (member < setup_.ranks && has(worker_.gone, member))
    memory(kWorker, worker_.number).store_holding(member, 0);
  if (++worker_.member < setup_.ranks) return;
  begin<ResumeFolding<Memory>>(WorkerAt::resume, generation(), setup_.ranks,
                               Decision{decision.next, decision.blocks, false});
}

inline void Actors::find_dead_holders() {
  ++context_.touches;
  const bool holds = shared_.holding[worker_.slot][worker_.member] != 0;
  worker_.held |= holds && has(worker_.gone, worker_.member);
  if (++worker_.member < setup_.ranks) return;
  const bool stops = worker_.held || worker_.late;
  worker_.held = false;
  if (!stops) return drop();
  begin<StopClaims<Memory>>(WorkerAt::stop, generation());
}

inline void Actors::await_holders() {
  ++context_.touches;
  const bool holds = shared_.holding[worker_.slot][worker_.member] != 0 &&
                     setup_.fault != Fault::holders_are_not_awaited;
  if (holds && !state_.ranks[worker_.member].dead) return;
  if (++worker_.member == setup_.ranks) begin<CompleteOp<Memory>>(WorkerAt::complete, generation());
}

inline void Actors::give_up() {
  shared_.given_up |= static_cast<uint8_t>(1U << worker_.member);
  shared_.epoch_over = setup_.fault != Fault::epoch_goes_on;
  worker_.ends_epoch = true;
  if (++worker_.member == setup_.ranks) begin<CompleteOp<Memory>>(WorkerAt::complete, generation());
}

inline void Actors::completed() {
  if (!worker_.running.as<CompleteOp<Memory>>().completed()) return fail();
  return worker_.ends_epoch ? ended() : drop();
}

inline void Actors::fail() {
  if (setup_.fault == Fault::failure_after_the_word)
    return begin<EndOp<Memory>>(WorkerAt::end, generation(), Phase::failed);
  go(WorkerAt::write_failure);
}

inline void Actors::write_failure() {
  ++context_.touches;
  shared_.failure[worker_.slot] = static_cast<uint8_t>(worker_.number + 1);
  if (setup_.fault == Fault::failure_after_the_word) return drop();
  begin<EndOp<Memory>>(WorkerAt::end, generation(), Phase::failed);
}

inline void Actors::ended() {
  const bool ends_epoch = worker_.ends_epoch;
  worker_.ends_epoch = false;
  if (setup_.fault == Fault::failure_after_the_word) return go(WorkerAt::write_failure);
  drop();
  if (ends_epoch) go(WorkerAt::divert);
}

inline void Actors::drop() {
  worker_.todo &= static_cast<uint8_t>(~(1U << worker_.slot));
  worker_.late = false;
  if (!shared_.ranks_decide) shared_.diverted |= static_cast<uint8_t>(1U << worker_.slot);
  worker_.slot = worker_.number = worker_.arrived = 0;
  go(WorkerAt::rest);
}

}  // namespace tutti::board::model
