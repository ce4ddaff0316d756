// Operations of a World: the ranks' tensors go to the engine, and its end completes their calls.
#include <algorithm>

#include "daemon/group/world.h"

namespace tutti {
namespace {

constexpr size_t kRecipesMost = 256;

}  // namespace

void PlainWorld::act(const Start& start) {
  if (calls_.at(start.key).size() != member_.find(start.key.group)->local_ranks().size())
    return member_.abort(
        internal_error("a rank's call of an operation is missing; the board of "
                       "host " +
                       hosts_[self_].name + " was overwritten"));
  if (fold_here(start)) return;
  op_clock_.started({start.key.group, start.key.number}, Clock::now());
  if (leader_) advise(start);
  tell_started(start.key);
  parts_.engine.start(operation_of(start, calls_.at(start.key)));
}

// What the ranks fold they end themselves.
bool PlainWorld::fold_here(const Start& start) {
  if (member_.find(start.key.group)->places().size() != 1 || !parts_.fold) return false;
  const Calls& calls = calls_.at(start.key);
  const bool ranks_only =
      std::ranges::any_of(calls, [](const auto& call) { return call.second.ranks_only; });
  const bool folded = parts_.fold(start.key.group, start.key.number);
  if (!folded && !ranks_only) return false;
  if (folded) calls_.erase(start.key);
  member_.finished(start.key, folded ? Status()
                                     : internal_error("the ranks' requests changed after they "
                                                      "agreed"));
  return true;
}

void PlainWorld::act(const Cancel& cancel) {
  tell_started(cancel.key);
  early_.over(cancel.key);
  parts_.engine.cancel(engine_key(cancel.key), cancel.cause);
}

Operation PlainWorld::operation_of(const Start& start, const Calls& calls) {
  const Signature& signature = start.signature;
  Operation operation;
  operation.key = engine_key(start.key);
  operation.recipe = recipe(start);
  operation.dtype = signature.dtype;
  operation.op = signature.op;
  operation.count = signature.collective == Collective::barrier ? 0 : signature.count;
  operation.slice_bytes = options_.slice_bytes;
  operation.agreement = start.agreement;
  for (const auto& [rank, call] : calls) {
    operation.local.push_back({rank, call.in, call.out, call.window_bytes, call.filled});
    operation.memory.push_back(call.memory);
    if (call.window_bytes != 0 && !operation.passed)
      operation.passed = [passed = parts_.passed, key = start.key](uint64_t bytes) {
        passed(key.group, key.number, bytes);
      };
  }
  operation.mismatch = [this, alive = alive_, key = start.key](const OpKey&, int from) {
    if (!*alive) return;
    member_.mismatched(key, member_.find(key.group)->places()[static_cast<size_t>(from)]);
    pump();
  };
  operation.done = [this, alive = alive_, key = start.key](const Status& status) {
    if (*alive) finish(key, status);
  };
  return operation;
}

std::shared_ptr<const Recipe> PlainWorld::recipe(const Start& start) {
  const Communicator& group = *member_.find(start.key.group);
  const Plan plan{start.signature.collective, static_cast<int>(start.signature.root),
                  start.strategies, group.topology()};
  if (recipes_.size() >= kRecipesMost) recipes_.clear();  // Operations under way keep theirs.
  std::shared_ptr<const Recipe>& cached = recipes_[{start.key.group, plan}];
  if (cached == nullptr) cached = make_recipe(plan, group.self_in_topology());
  return cached;
}

void PlainWorld::finish(const Key& key, const Status& status) {
  op_clock_.ended({key.group, key.number}, Clock::now());
  if (adviser_) adviser_->took(key.group, key.number, op_clock_.take_us({key.group, key.number}));
  early_.over(key);
  member_.finished(key, of_the_job(status, *member_.find(key.group)));
  pump();
}

// The engine names ranks of the group; people know those of the job.
Status PlainWorld::of_the_job(const Status& status, const Communicator& group) const {
  const int rank = status.culprit().rank;
  if (status.ok() || rank < 0 || rank >= group.size()) return status;
  const int job_rank = group.members()[static_cast<size_t>(rank)];
  return {status.code(),
          status.message(),
          {job_rank, roster_.ranks[static_cast<size_t>(job_rank)].host}};
}

std::pair<std::string, int> PlainWorld::waiting(const Key& key) const {
  const Engine::Waiting waiting = parts_.engine.waiting(engine_key(key));
  return {waiting.what, waiting.rank};
}

}  // namespace tutti
