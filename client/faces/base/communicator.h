// Operations of one call on a group of processes, which share a deadline.
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "client/faces/base/call_options.h"
#include "client/faces/base/packing.h"
#include "client/faces/base/tensor.h"
#include "client/tutti.h"

namespace tutti::faces {

// OK, or this thread's last failure in libtutti.so.
Status status_of(tutti_code code);

// Works that are under way.
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

// The numbers of each rank, by rank.
using NumbersByRank = std::vector<std::vector<int64_t>>;

class Communicator {
 public:
  // Without a group, of one rank: operations then copy.
  explicit Communicator(tutti_group* group, const CallOptions& options = {});

  int rank() const { return group_ == nullptr ? 0 : tutti_rank(group_); }
  size_t size() const {
    return group_ == nullptr ? 1 : static_cast<size_t>(tutti_world_size(group_));
  }

  // Every function blocks and must be called by all ranks, with equal sizes and dtypes.

  // The `bytes` bytes of each rank, by rank, in `out`.
  Status all_gather(const void* in, void* out, size_t bytes) const;
  // All ranks give equally many numbers.
  Result<NumbersByRank> all_gather(const std::vector<int64_t>& numbers) const;
  // The numbers of each rank, which may give different numbers of them.
  Result<NumbersByRank> gather_lists(std::vector<int64_t> numbers) const;
  // outs = the sum or mean of ins over all ranks, each pack as one operation, all at once.
  Status all_reduce(const std::vector<Tensor>& ins, const std::vector<Tensor>& outs,
                    const std::vector<Pack>& packs, tutti_op op) const;
  // In place, those of a dtype as one operation.
  Status all_reduce(const std::vector<Tensor>& tensors, tutti_op op) const;
  // `out` matters on the root only.
  Status reduce(const Tensor& in, const Tensor& out, tutti_op op, int root) const;
  // `strategy` as in tutti_options; "": the job's.
  Status broadcast(const Tensor& tensor, int root, const std::string& strategy = "") const;

 private:
  // Refers to the text.
  tutti_options options(const std::string& strategy = "") const;

  tutti_group* const group_;
  const std::string strategy_;
  const std::optional<bool> reproducible_;
  std::optional<std::chrono::steady_clock::time_point> deadline_;
};

// The bytes of every rank, of which ranks may have different numbers. Takes its memory when it is
// constructed, before the other ranks rely on this one.
class BytesGather {
 public:
  // `bytes`: of each rank, known to all.
  explicit BytesGather(const std::vector<size_t>& bytes);
  // Where to put this rank's bytes before run().
  std::byte* own() { return own_.data(); }
  // All ranks call it.
  Status run(const Communicator& communicator);
  // The bytes of a rank, after run().
  const std::byte* of(size_t rank) const { return all_.data() + rank * own_.size(); }

 private:
  std::vector<std::byte> own_;  // As many as the rank with the most has.
  std::vector<std::byte> all_;
};

}  // namespace tutti::faces
