// The start of operations in a World: the leader's word is checked, the ranks' tensors go to the
// engine, and its end completes every local call.
#include <algorithm>

#include "daemon/group/world.h"

namespace tutti {

// The leader's: tells the hosts that have members, then obeys.
void PlainWorld::launch(const StartOrder& order) {
  const Communicator& group = led_.at(order.group);
  v1::Control control;
  control.set_group(order.group);
  control.set_op_seq(order.seqs.front());
  v1::Start& start = *control.mutable_start();
  start.set_local_strategy(packed(order.strategies.local));
  start.set_global_strategy(packed(order.strategies.global));
  start.set_slice_bytes(order.slice_bytes);
  start.mutable_also()->Assign(order.seqs.begin() + 1, order.seqs.end());
  // Not held back by what this host does first.
  for (const int host : group.places())
    if (host != self_) outbox_.add(host, control, Hurry::now);
  if (group.places().front() == self_ && cause_.ok()) obey_start(order);
}

// What may run as one with others waits for the end of the turn.
void PlainWorld::launch_fused() {
  fusing_ = false;
  for (const StartOrder& order : fuser_.take())
    if (cause_.ok()) launch(order);
}

void PlainWorld::obey_start(const StartOrder& order) {
  const Communicator& group = groups_.at(order.group);
  std::vector<Pending*> parts;
  for (const uint64_t seq : order.seqs) {
    const auto found = pending_.find({order.group, seq});
    const bool fits =
        found != pending_.end() && !found->second.started && can_start(found->second, group) &&
        (parts.empty() || fit_together(parts.front()->signature(), found->second.signature()));
    if (!fits)
      return abort(data_loss("the leader started an operation that this host has not reached",
                             {0, hosts_[0].name}));
    found->second.started = true;
    found->second.runs_as = order.seqs.front();
    parts.push_back(&found->second);
  }
  outbox_.flush_this_turn();  // What waited for this verdict.
  if (fold_here(order, group)) return;
  op_clock_.started({order.group, order.seqs.front()}, Clock::now());
  parts_.engine.start(parts.size() == 1 ? operation_of(order, *parts.front())
                                        : fused_operation(order, parts));
}

// The ranks add up in the order of `centralized`, which is also what `auto` takes on one host.
// Other strategies are the engine's, where it can. The end is told by the ranks.
bool PlainWorld::fold_here(const StartOrder& order, const Communicator& group) {
  if (group.places().size() != 1 || order.seqs.size() != 1 || !parts_.fold) return false;
  const Key key{order.group, order.seqs.front()};
  const bool plain = order.strategies.local.kind == StrategyKind::centralized;
  const bool ranks_only = std::ranges::any_of(
      pending_.at(key).calls, [](const auto& entry) { return entry.second.ranks_only; });
  if (!plain && !ranks_only) return false;
  if (!parts_.fold(key.first, key.second)) {
    if (ranks_only) complete(key, internal_error("the ranks' requests changed after they agreed"));
    return ranks_only;
  }
  parts_.loop.cancel(pending_.extract(key).mapped().timer);
  return true;
}

// ---- One by one, or several as one ----

// What the leader says is not believed: a start that does not fit could write where it must not.
bool PlainWorld::can_start(const Pending& pending, const Communicator& group) const {
  const Signature first = canonical(pending.signature());
  return pending.calls.size() == group.local_ranks().size() &&
         std::ranges::all_of(pending.calls, [&](const auto& entry) {
           return entry.second.invalid.ok() && canonical(entry.second.signature) == first;
         });
}

Operation PlainWorld::bare_operation(const StartOrder& order, const Signature& signature) {
  Operation operation;
  operation.key = {roster_.epoch, order.group, order.seqs.front()};
  operation.recipe =
      groups_.at(order.group)
          .recipe(signature.collective, static_cast<int>(signature.root), order.strategies);
  operation.dtype = signature.dtype;
  operation.op = signature.op;
  operation.slice_bytes = order.slice_bytes;
  return operation;
}

Operation PlainWorld::operation_of(const StartOrder& order, const Pending& pending) {
  const Signature& signature = pending.signature();
  Operation operation = bare_operation(order, signature);
  operation.count = signature.collective == Collective::barrier ? 0 : signature.count;
  for (const auto& [rank, call] : pending.calls) {
    operation.local.push_back({rank, call.in, call.out});
    operation.memory.push_back(call.memory);
  }
  operation.done = [this, order](const Status& status) { finish(order, status); };
  return operation;
}

// One tensor a rank, packed from those of its calls; each call is completed by itself.
Operation PlainWorld::fused_operation(const StartOrder& order, const std::vector<Pending*>& parts) {
  Operation operation = bare_operation(order, parts.front()->signature());
  const size_t element = size_of(operation.dtype);
  for (const Pending* part : parts) operation.count += part->signature().count;
  std::vector<std::shared_ptr<const Packing>> packings;
  for (const auto& [rank, first] : parts.front()->calls) {
    std::vector<Packing::Piece> pieces;
    for (const Pending* part : parts) {
      const Call& call = part->calls.at(rank);
      pieces.push_back({call.in, call.out, call.signature.count * element});
      operation.memory.push_back(call.memory);
    }
    packings.push_back(std::make_shared<const Packing>(std::move(pieces)));
    operation.local.push_back({rank, packings.back()->data(), packings.back()->data()});
    operation.memory.push_back(packings.back());
  }
  operation.done = [this, order, packings](const Status& status) {
    if (status.ok())
      for (const auto& packing : packings) packing->unpack();
    finish(order, status);
  };
  return operation;
}

void PlainWorld::finish(const StartOrder& order, const Status& status) {
  op_clock_.ended({order.group, order.seqs.front()}, Clock::now());
  if (!status.ok() && cause_.ok()) return abort(of_the_job(status, groups_.at(order.group)));
  for (const uint64_t seq : order.seqs) complete({order.group, seq}, status);
}

// The engine names ranks of the group; people know those of the job.
Status PlainWorld::of_the_job(const Status& status, const Communicator& group) const {
  const int rank = status.culprit().rank;
  if (rank < 0 || rank >= group.size()) return status;
  const int job_rank = group.members()[rank];
  return {status.code(), status.message(), {job_rank, roster_.ranks[job_rank].host}};
}

}  // namespace tutti
