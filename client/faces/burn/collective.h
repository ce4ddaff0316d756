// burn's collective API (burn-collective 0.21): peers, each a thread of this process with a device,
// register and then reduce and broadcast tensors, within the process and among processes.
//
// All errors are those of collective_error.h. Calls block; every peer must make the same calls in
// the same order. Where they differ, every peer gets the same error, also the one at fault and
// those that come later, and the collective stays usable. Nothing waits for longer than the
// timeout, among several nodes than twice that. A peer that comes too late for an operation, which
// the others have given up, gets their error.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "client/faces/burn/operation.h"

namespace tutti::burn {

struct CollectiveOptions {
  // For the processes, instead of joining as the config says; stays the caller's.
  tutti_group* group = nullptr;
  // For the other peers of an operation or a registration; twice that from the first peer's call on
  // for the other processes. In milliseconds.
  int32_t timeout_ms = 30'000;
  // Whether the processes' reductions are, as in tutti_options; else as the join says.
  std::optional<bool> reproducible = std::nullopt;
};

class Collective {
 public:
  explicit Collective(const CollectiveOptions& options = {}) : options_(options) {}
  ~Collective() { reset_collective(); }
  Collective(const Collective&) = delete;
  Collective& operator=(const Collective&) = delete;

  // Must come first. Blocks until num_devices peers have registered and, with global parameters,
  // all num_nodes processes have joined, if they are several: as rank TUTTI_RANK of num_nodes of
  // the job TUTTI_JOB, else of one called after the global address. The first peer, and the first
  // after all have left, defines the config.
  //
  // InvalidConfig; MultipleRegister: the id is taken; RegisterParamsMismatch: another config than
  // the first peer's, or num_devices peers are there already; Other: the other peers do not come;
  // Global: the processes cannot join.
  Status register_peer(PeerId id, const CollectiveConfig& config);

  // Results are copies of the peer's own, of the tensors' dtype and shape. Other, also: another
  // call than other peers make; sums of bools, means of integers.

  // The sum, or the mean, over all peers of all processes. AllReduceShapeMismatch (of dtypes, too),
  // AllReduceOperationMismatch.
  Result<Tensor> all_reduce(PeerId id, const Tensor& tensor, ReduceOperation op);
  // The same, for `root` alone. Between processes the root's id must be on one of them only.
  // ReduceShapeMismatch, ReduceOperationMismatch, ReduceRootMismatch; RegisterNotFirstOperation:
  // the root is not registered.
  Result<std::optional<Tensor>> reduce(PeerId id, const Tensor& tensor, ReduceOperation op,
                                       PeerId root);
  // The tensor of the one peer, of all processes, that provides one. BroadcastNoTensor,
  // BroadcastMultipleTensors.
  Result<Tensor> broadcast(PeerId id, const std::optional<Tensor>& tensor);

  // In place of a call, with an error of the peer's own: that of all peers, so that none is a call
  // ahead of the others. Always an error.
  Status refuse(PeerId id, const Status& own);

  // Unregisters a peer. An operation for which only this peer was missing goes on without it. The
  // last one leaves the group of processes. MultipleUnregister: the id is not registered;
  // RegisterNotFirstOperation: no peer has ever registered; Other: the peer is in a call.
  Status finish_collective(PeerId id);

  // Forgets all peers, and leaves the group of processes. What waits for other peers ends with
  // LocalServerMissing; what runs already goes on.
  void reset_collective();

  // Leaves the group of processes that was joined here, but frees nothing: other threads may be
  // within calls.
  void leave_job();

 private:
  // A peer that waits for the others of its registration.
  struct Registration {
    Status status;
    bool done = false;
  };
  using Lock = std::unique_lock<std::mutex>;
  using Group = std::shared_ptr<tutti_group>;

  Status validate_registration(PeerId id, const CollectiveConfig& config) const;
  void complete_registration(Lock& lock);
  Result<Group> join(const CollectiveConfig& config) const;
  void end_registration(const Status& status);

  Status enter(Call& call);
  Status validate_call(const Call& call) const;
  void execute(Lock& lock, const Status& own = {});
  bool all_called() const { return !calls_.empty() && calls_.size() == members_.size(); }
  Status miss_the_others();

  const CollectiveOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  CollectiveConfig config_;
  bool ever_registered_ = false;
  bool joining_ = false;            // A peer joins the other processes for all that register.
  std::map<PeerId, bool> members_;  // Whether they are in an operation that runs.
  std::map<PeerId, Registration*> registering_;
  std::map<PeerId, Call*> calls_;  // That wait for other peers.
  // Errors of operations for which a peer came too late.
  std::map<PeerId, std::deque<Status>> owed_;
  Group group_;
};

}  // namespace tutti::burn
