// One epoch of a job, as seen by the worker of one host: agrees with the other hosts on operations,
// runs them, and decides how they fail. Loop thread only.
//
// AGREEMENT WITHOUT MESSAGES. An operation is the number-th call of every rank of its group. A host
// starts it when all its own ranks have called it with the same signature, and from then on takes
// part in it whatever it receives. Every data frame carries a hash of what its sender runs:
// signature, strategies, slices, members. A frame with another hash is never used. Schedules ensure
// that no host completes an operation before all have started it and their hashes were compared,
// neighbour by neighbour (daemon/schedule/checker.h proves this for each). Everything rests on:
//
//     While a host has not started an operation, or runs another one, no host has completed it.
//
// So the operation can still fail for everyone; and once all have started the same one, only its
// data can be slow.
//
// FAILURES are decided by the leader, the worker of rank 0's host. Hosts report to it an operation
// that they refuse (its ranks disagree, or a call is invalid), a frame with another hash, and a
// deadline that has passed. The leader sends the same Fail to every host of the group, all in the
// same order. A host keeps the first one of an operation, also for ranks that call it later, and
// ignores others. No rank can have got OK already: a host that refuses has not started, and after a
// mismatch two hosts run different operations.
//   Deadline: the leader asks all hosts (Query). A host that has not started the operation refuses
// it from then on and answers which of its ranks have not called it; they are named. If all have
// started the same one, the data is too slow, and the epoch ends. A host that does not answer
// within kQueryTimeout is blamed; so is the leader by a follower that hears nothing within
// kLeaderTimeout.
//   Hosts that run different operations may wait for each other without exchanging a frame. So each
// host reports an operation that has been in progress for kCompareAfter, and the leader compares
// the reports.
//   Departure: a rank that dies or leaves has called a known number of operations of each group.
// Its host starts no later one, so those fail for all, in the order in which the leader announces
// the departures; operations that it had called continue.
//   The loss of a host, worker or link ends the epoch: once, with the cause, for everyone.
//
// STRATEGIES in force are a table per group, initially from the roster, the same on every host. The
// leader proposes a change; every host answers with a fence, a number that it will not start before
// the change is adopted; the new table is adopted from the highest fence on. So every host runs
// each operation by the same table, and none pauses as long as all answer soon.
//
// NCCL among the hosts, for operations on GPUs, is such a change, too, once the leader knows that
// all hosts can and have made a communicator (gpu_link.h).
//
// MEMORY is bounded: data sent to a host that has not started its operation has a budget
// (early_budget.h).
//
// Follower (follower.h) and Leader (leader.h) implement these rules without IO. HostEpoch (epoch.h)
// performs what they decide with an engine, a clock and a log; DataPath (data_path.h) carries the
// engine's frames to and from the links. tests/group/simulation_test.cc runs the rules through
// random histories.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/base/call.h"
#include "daemon/base/loop.h"
#include "daemon/base/roster.h"
#include "daemon/engine/engine.h"
#include "daemon/group/link_pace.h"  // IWYU pragma: export
#include "daemon/group/links.h"
#include "daemon/group/local_phase.h"  // IWYU pragma: export
#include "daemon/group/messages.h"
#include "daemon/transport/transport.h"
#include "daemon/tuning/tuning.h"

namespace tutti {

struct EpochOptions {
  uint32_t op_timeout_ms = 30'000;
  uint64_t slice_bytes = uint64_t{1} << 20;
  uint64_t early_bytes = uint64_t{8} << 20;  // Per receiver, of operations it has not started.
  // For the engine. The same on all hosts, as the two before.
  uint64_t slices_in_flight = 4;
  uint64_t ops_in_flight = 4;
  std::string gpu_link = "host";  // The setting; others need EpochParts::nccl.
};

struct EpochStats {
  uint64_t sent_bytes = 0;   // Of data frames.
  uint64_t sent_frames = 0;  // Of data and control.
  uint64_t received_bytes = 0;
  std::vector<LinkCounts> links;  // To all other hosts.
};

struct GpuLinkState {
  std::string name;  // "nccl", "host".
  std::string why;   // If host: why not nccl.
};

class Epoch {
 public:
  virtual ~Epoch() = default;
  // A local rank's call of an operation; ends with LocalPhase::complete(). Group 0 is the whole
  // job. A rank's calls of a group come in ascending order of their numbers; omitted ones have
  // ended or are completed by the ranks of this host among themselves. A call out of order ends
  // with INVALID_ARGUMENT and changes nothing else.
  virtual void submit(int rank, Call call) = 0;
  // A rank has written more of the operation's tensor to its window.
  virtual void on_window_filled(const EpochOp& op) = 0;
  // Makes the group of these ranks of the job, in this order, for local rank `rank`, which must be
  // one of them, and returns its number. The n-th request of each member for the same list returns
  // the same number. INVALID_ARGUMENT, RESOURCE_EXHAUSTED.
  virtual Result<uint32_t> subgroup(int rank, const std::vector<uint32_t>& ranks) = 0;
  // Makes the group of two ranks of the job that carries messages from the first to the second, for
  // local rank `rank`, which is one of them, and returns its number. Groups of different `channel`
  // are different; requests for the same one return the same number. As subgroup() otherwise.
  virtual Result<uint32_t> channel(int rank, const std::vector<uint32_t>& ranks,
                                   uint64_t channel) = 0;
  // A local rank died or, if `cause` is OK, left on purpose.
  virtual void leave(int rank, const Status& cause) = 0;
  virtual void abort(const Status& cause) = 0;
  virtual void set_strategy(const Strategies& strategies) = 0;

  // Takes over a link that `host` dialled and that has shown this epoch's secret.
  virtual void add_link(const std::string& host, std::shared_ptr<Link> link,
                        std::shared_ptr<LoopHandler> handler) = 0;

  virtual const Roster& roster() const = 0;
  // Whether other hosts may still need this one: as the leader, or for operations in progress.
  virtual bool needed() const = 0;
  bool all_ranks_left() const { return departures().size() == roster().ranks.size(); }
  // Whether some rank left or the epoch was aborted, so that its ranks may form the next one.
  bool broken() const { return !cause().ok() || !departures().empty(); }
  virtual const Status& cause() const = 0;  // Of the abort; OK: not aborted.
  // In the order in which this host learned of them.
  virtual const std::vector<Departure>& departures() const = 0;
  virtual EpochStats stats() const = 0;
  // By what operations on GPUs go between hosts. Empty: there was none.
  virtual GpuLinkState gpu_link() const = 0;
};

// What an epoch is built from. References must outlive it.
struct EpochParts {
  Loop& loop;
  Transport& transport;
  Engine& engine;
  LocalPhase& local;
  std::shared_ptr<Tuner> tuner = nullptr;  // Shared by the job's epochs. Null: one of its own.
  // The GPUs that calls for device memory name; asked at each such operation.
  std::function<GpuSet*()> gpus = nullptr;
  // How communicators are made. Null: NCCL is not used.
  std::shared_ptr<const nccl::CommunicatorParts> nccl = nullptr;
  // What went wrong on this host with a communicator that was made; later epochs do without. Shared
  // by the job's epochs; null: not kept.
  std::shared_ptr<Status> nccl_failure = nullptr;
};
// `host` must be in the roster.
std::unique_ptr<Epoch> make_epoch(const EpochParts& parts, Roster roster, const std::string& host,
                                  const EpochOptions& options);

}  // namespace tutti
