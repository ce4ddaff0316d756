// Operations of one call on a group of processes, which share a deadline.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "client/cross_device/packing.h"
#include "client/cross_device/tensor.h"
#include "client/tutti.h"

namespace tutti::cross_device {

// Sums of packs that are under way.
class PendingWorks {
 public:
  PendingWorks() = default;
  PendingWorks(const PendingWorks&) = delete;
  PendingWorks& operator=(const PendingWorks&) = delete;
  ~PendingWorks() { static_cast<void>(wait()); }  // Nobody writes to the tensors after it.

  void add(tutti_work* work) { works_.push_back(work); }
  // Waits for all. The first failure, if there is one.
  Status wait();

 private:
  std::vector<tutti_work*> works_;
};

class Communicator {
 public:
  // `strategy` is that of reductions, as in tutti_options; "": the job's. Without a timeout, or
  // with 0, each operation has that of the join.
  Communicator(tutti_group* group, std::optional<double> timeout_seconds,
               std::string strategy = "");

  int rank() const { return tutti_rank(group_); }
  size_t size() const { return static_cast<size_t>(tutti_world_size(group_)); }

  // Every function blocks and must be called by all ranks, with equal sizes and dtypes.

  // The `bytes` bytes of each rank, by rank, in `out`.
  Status all_gather(const void* in, void* out, size_t bytes) const;
  // The numbers of each rank, by rank. All ranks give as many.
  Result<std::vector<std::vector<int64_t>>> all_gather(const std::vector<int64_t>& numbers) const;
  // outs = the sum or mean of ins over all ranks, each pack as one operation, all at once.
  Status all_reduce(const std::vector<Tensor>& ins, const std::vector<Tensor>& outs,
                    const std::vector<Pack>& packs, tutti_op op) const;
  // `out` matters on the root only.
  Status reduce(const Tensor& in, const Tensor& out, tutti_op op, int root) const;
  Status broadcast(const Tensor& tensor, int root) const;

 private:
  tutti_options options() const;
  tutti_options reduction_options() const;

  tutti_group* const group_;
  const std::string strategy_;
  std::optional<std::chrono::steady_clock::time_point> deadline_;
};

}  // namespace tutti::cross_device
