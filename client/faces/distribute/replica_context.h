// What the function of a replica may ask and do, as tf.distribute.ReplicaContext.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "client/faces/distribute/rendezvous.h"
#include "client/faces/distribute/replicas.h"

namespace tutti::distribute {

class Strategy;

// Made by Strategy::run() for each replica of this process; valid while its function runs, on its
// thread. Every replica, in every process, must make the same calls in the same order: what differs
// is an error of all.
class ReplicaContext {
 public:
  // Made by Strategy::run() alone. `index` counts this process's replicas.
  ReplicaContext(Strategy& strategy, Rendezvous& rendezvous, size_t index)
      : strategy_(strategy), rendezvous_(rendezvous), index_(index) {}

  Strategy& strategy() const { return strategy_; }
  int replica_id_in_sync_group() const;
  int num_replicas_in_sync() const;
  // Among the replicas of this process, from 0.
  size_t index() const { return index_; }

  // The leaves reduced over all replicas. `structure` describes how the leaves are nested and must
  // be the same everywhere. Errors as Replicas::all_reduce().
  Result<std::vector<Tensor>> all_reduce(ReduceOp op, const std::vector<Tensor>& leaves,
                                         const std::string& structure = "",
                                         const CallOptions& options = {});
  // The leaves of all replicas one behind the other along `axis`. Errors as Replicas::gather().
  Result<std::vector<Tensor>> all_gather(const std::vector<Tensor>& leaves, int64_t axis,
                                         const std::string& structure = "",
                                         const CallOptions& options = {});

  // Takes part in a collective with an error of its own, which becomes that of all replicas.
  Status refuse(const Status& own, const CallOptions& options = {});

  // Calls `merge` once in this process, between the replicas, with the arguments of its replicas,
  // and returns what it has, on each of them. `call` names it, the same on each. Errors as
  // Rendezvous::meet(); FAILED_PRECONDITION also: outside of the replica's function.
  using Merge = std::function<Status(Strategy&, const std::vector<void*>& arguments)>;
  Status merge_call(const std::string& call, void* argument, const Merge& merge);

  // The same for a collective: `merge` is also called where the replicas did not meet, or one has
  // an error of its own, with the error, so that it can tell the other ranks. The replicas wait for
  // each other for the timeout of the options, else for the strategy's; the processes
  // twice that of the options, else the group's.
  Status merge_collective(const std::string& call, void* argument, const Rendezvous::Merge& merge,
                          const CallOptions& options = {}, const Status& own = {});

 private:
  using Collective = std::function<Result<std::vector<Tensor>>(const Leaves&)>;
  Result<std::vector<Tensor>> run_collective(const std::string& call,
                                             const std::vector<Tensor>& leaves,
                                             const CallOptions& options,
                                             const Collective& collective);
  // How long the replicas of this process wait for each other.
  std::chrono::milliseconds timeout_of(const CallOptions& options) const;

  Strategy& strategy_;
  Rendezvous& rendezvous_;
  const size_t index_;
};

}  // namespace tutti::distribute
