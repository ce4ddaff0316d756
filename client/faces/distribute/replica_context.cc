#include "client/faces/distribute/replica_context.h"

#include "client/faces/distribute/context.h"
#include "client/faces/distribute/strategy.h"

namespace tutti::distribute {
namespace {

// One replica's part in a collective.
struct Part {
  const std::vector<Tensor>* leaves;
  std::vector<Tensor> results;
};

// The leaves of all replicas, leaf by leaf.
Leaves leaves_of(const std::vector<void*>& parts) {
  Leaves leaves(static_cast<Part*>(parts[0])->leaves->size());
  for (void* part : parts)
    for (size_t i = 0; i < leaves.size(); ++i)
      leaves[i].push_back((*static_cast<Part*>(part)->leaves)[i]);
  return leaves;
}

// Gives every replica its own copy.
void hand_out(std::vector<Tensor> results, const std::vector<void*>& parts) {
  for (size_t i = 1; i < parts.size(); ++i)
    for (const Tensor& result : results)
      static_cast<Part*>(parts[i])->results.push_back(result.clone());
  static_cast<Part*>(parts[0])->results = std::move(results);
}

// Another process may wait for its own replicas for the whole timeout before it takes part, if only
// to say that one is missing. Without a timeout of the call, the group's counts, which may be
// longer.
CallOptions among_processes(const CallOptions& options) {
  const int64_t twice_ms = int64_t{2} * options.timeout_ms;
  return {static_cast<int32_t>(std::min<int64_t>(twice_ms, INT32_MAX)), options.strategy,
          options.reproducible};
}

}  // namespace

int ReplicaContext::replica_id_in_sync_group() const {
  return strategy_.replicas().local()[index_];
}

int ReplicaContext::num_replicas_in_sync() const { return strategy_.num_replicas_in_sync(); }

Result<std::vector<Tensor>> ReplicaContext::all_reduce(ReduceOp op,
                                                       const std::vector<Tensor>& leaves,
                                                       const std::string& structure,
                                                       const CallOptions& options) {
  const std::string call = describe_call(
      "ReplicaContext.all_reduce(" + std::string(name_of(op)) + ")", structure, leaves.size());
  return run_collective(call, leaves, options, [&](const Leaves& all) {
    return strategy_.replicas().all_reduce(call, op, all, among_processes(options));
  });
}

Result<std::vector<Tensor>> ReplicaContext::all_gather(const std::vector<Tensor>& leaves,
                                                       int64_t axis, const std::string& structure,
                                                       const CallOptions& options) {
  const std::string call = describe_call(
      "ReplicaContext.all_gather(axis=" + std::to_string(axis) + ")", structure, leaves.size());
  return run_collective(call, leaves, options, [&](const Leaves& all) {
    return strategy_.replicas().gather(call, axis, all, among_processes(options));
  });
}

Result<std::vector<Tensor>> ReplicaContext::run_collective(const std::string& call,
                                                           const std::vector<Tensor>& leaves,
                                                           const CallOptions& options,
                                                           const Collective& collective) {
  Part own = {&leaves, {}};
  const Status status = merge_collective(
      call, &own,
      [&](const Status& met, const std::vector<void*>& parts) -> Status {
        if (!met.ok()) return strategy_.replicas().agree(met, call, among_processes(options));
        Result<std::vector<Tensor>> results = collective(leaves_of(parts));
        if (!results.ok()) return results.status();
        hand_out(*std::move(results), parts);
        return {};
      },
      options);
  if (!status.ok()) return status;
  return std::move(own.results);
}

std::chrono::milliseconds ReplicaContext::timeout_of(const CallOptions& options) const {
  return std::chrono::milliseconds(options.timeout_ms > 0 ? options.timeout_ms
                                                          : strategy_.timeout_ms());
}

Status ReplicaContext::refuse(const Status& own, const CallOptions& options) {
  return merge_collective(
      "a call that is refused", nullptr,
      [&](const Status& met, const std::vector<void*>&) {
        return strategy_.replicas().agree(met, "", among_processes(options));
      },
      options, own);
}

Status ReplicaContext::merge_call(const std::string& call, void* argument, const Merge& merge) {
  return merge_collective(call, argument,
                          [&](const Status& met, const std::vector<void*>& arguments) {
                            return met.ok() ? merge(strategy_, arguments) : met;
                          });
}

Status ReplicaContext::merge_collective(const std::string& call, void* argument,
                                        const Rendezvous::Merge& merge, const CallOptions& options,
                                        const Status& own) {
  if (current_context().replica != this)
    return failed_precondition(call +
                               " was called outside of the replica's function; call it there, and "
                               "on its thread");
  return rendezvous_.meet(index_, {call, argument, own, timeout_of(options)},
                          [&](const Status& met, const std::vector<void*>& arguments) {
                            const ContextScope between({&strategy_, nullptr});
                            return merge(met, arguments);
                          });
}

}  // namespace tutti::distribute
