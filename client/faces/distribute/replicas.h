// The replicas of a job: some are in this process, the others in those of the group's other ranks.
// Collectives over all of them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/faces/base/base.h"
#include "client/faces/distribute/aggregation.h"

namespace tutti::distribute {

using namespace faces;
using faces::to_string;  // Besides those of this namespace.

// A value of every replica of this process, in the order of their ids.
using PerReplica = std::vector<Tensor>;
// Several, as the leaves of a nested structure.
using Leaves = std::vector<PerReplica>;

// "reduce(SUM) of 2 values", or of the structure that nests them: a call for the functions below.
std::string describe_call(const std::string& verb, const std::string& structure, size_t leaves);

inline constexpr int kLocalReplicasMax = 240;  // As ranks of a job on a host.

// Every collective is called by one thread of each rank, in the same order everywhere, with values
// of the replicas in this process. Before data moves the ranks compare what they call: dtypes,
// shapes and `call`, a text that names the operation and its arguments. Where they differ, or one
// has made a mistake, every rank gets an error, and the group stays usable: see faces::agree().
// Other errors are those of the group's operations:
// DEADLINE_EXCEEDED, UNAVAILABLE and so on. Where the memory of one rank does not suffice, every
// rank gets RESOURCE_EXHAUSTED.
class Replicas {
 public:
  // Number and ids of the replicas in this process.
  struct Local {
    int count = 1;                        // At most kLocalReplicasMax.
    std::optional<std::vector<int>> ids;  // `count` of them; else they are numbered rank by rank.
  };

  // All ranks of `group` call this; it is borrowed, and nullptr if this process is alone.
  // INVALID_ARGUMENT, on all ranks: a process without replicas, or with too many; ids that are not
  // 0, 1, 2 ... over all ranks, each once; ids on some ranks only.
  // `reproducible`: of reductions whose options do not say.
  static Result<Replicas> create(tutti_group* group, const Local& local,
                                 std::optional<bool> reproducible = std::nullopt);

  // For all processes.
  int count() const { return static_cast<int>(rank_of_.size()); }
  // The ids of those in this process, ascending.
  const std::vector<int>& local() const { return local_; }
  // The rank whose process has a replica, 0 to count() - 1.
  int rank_of(int replica) const { return rank_of_[static_cast<size_t>(replica)]; }
  int rank() const { return group_ == nullptr ? 0 : tutti_rank(group_); }
  int world_size() const { return group_ == nullptr ? 1 : tutti_world_size(group_); }

  // OK on every rank, or an error on every rank: if `own` is an error of this rank, or `call` is
  // not the same everywhere.
  Status agree(const Status& own, const std::string& call, const CallOptions& options = {}) const;

  // For each leaf the sum, or the mean, over all replicas. INVALID_ARGUMENT: values of different
  // dtypes or shapes; the mean of integers; bools.
  Result<std::vector<Tensor>> all_reduce(const std::string& call, ReduceOp op, const Leaves& leaves,
                                         const CallOptions& options = {}) const;

  // The same, over the replicas and over `axes` of each value, which the result lacks. The values
  // may differ in length along these axes; the mean is over all elements. INVALID_ARGUMENT also: an
  // axis that is out of range or given twice.
  Result<std::vector<Tensor>> reduce_over(const std::string& call, ReduceOp op,
                                          const std::vector<int64_t>& axes, const Leaves& leaves,
                                          const CallOptions& options = {}) const;

  // For each leaf the values of all replicas, by id, one behind the other along `axis`, along which
  // lengths may differ. INVALID_ARGUMENT: scalars; values of different dtypes, ranks or other
  // sides.
  Result<std::vector<Tensor>> gather(const std::string& call, int64_t axis, const Leaves& leaves,
                                     const CallOptions& options = {}) const;

  // For each leaf the value of replica `root`. INVALID_ARGUMENT: there is no such replica; values
  // of different dtypes or shapes.
  Result<std::vector<Tensor>> broadcast(const std::string& call, int root, const Leaves& leaves,
                                        const CallOptions& options = {}) const;

 private:
  Replicas() = default;
  Status exchange_ids(const Local& local);
  Status validate_ids(const std::vector<int64_t>& ids);
  // For reductions.
  Communicator communicator_of(CallOptions options) const;
  // The numbers of each replica, by id: `per_replica` of each, given for those of this process.
  Result<std::vector<int64_t>> exchange(const Communicator& communicator,
                                        const std::vector<int64_t>& own, size_t per_replica) const;
  struct LeafGather;
  LeafGather prepare_gather(const PerReplica& values, size_t axis,
                            std::vector<int64_t> lengths) const;
  PerReplica by_id(const LeafGather& gathered) const;
  size_t slot_of(int replica) const;

  tutti_group* group_ = nullptr;
  std::optional<bool> reproducible_ = std::nullopt;
  std::vector<int> local_;    // Ids of the replicas here.
  std::vector<int> rank_of_;  // By id.
  size_t most_local_ = 1;     // Replicas of the rank that has most.
};

}  // namespace tutti::distribute
