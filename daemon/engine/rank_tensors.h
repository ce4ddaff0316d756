// What a host contributes to an operation, and where its results go: a HostTensor over the buffers
// of the host's ranks. The worker folds the ranks' inputs into the host's contribution, and writes
// the result to each rank's output.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "daemon/engine/local_ranks.h"
#include "daemon/engine/scratch_pool.h"

namespace tutti {

// All references must outlive it.
class RankTensors final : public HostTensor {
 public:
  RankTensors(Device& device, Stream& stream, ScratchPool& scratch, const Operation& operation,
              const Geometry& geometry);

  Result<bool> ready(uint64_t slice) override;
  Source source(int chunk, const Range& range) override;
  std::byte* target(int chunk, const Range& range) override;
  Status finished(uint64_t slice) override;
  void released(uint64_t slice) override;
  std::vector<int> blocking_ranks() const override {
    return blocking_rank_ < 0 ? std::vector<int>() : std::vector{blocking_rank_};
  }

 private:
  using Outputs = std::vector<std::byte*>;

  Result<bool> is_filled(uint64_t slice);
  Status fold(uint64_t slice, int chunk, const Range& range);
  Status combine(uint64_t slice, const std::vector<const std::byte*>& from, std::vector<Target> to,
                 uint64_t count);
  Status copy_to(const Outputs& to, const std::byte* from, uint64_t count);
  bool past_cache(const std::vector<const std::byte*>& from, const std::vector<Target>& to) const;
  Result<std::byte*> allocate(uint64_t slice, size_t bytes);

  Device& device_;
  Stream& stream_;
  ScratchPool& scratch_;
  const Operation& operation_;
  const Geometry& geometry_;
  const LocalRanks ranks_;
  int blocking_rank_ = -1;
  uint64_t finished_ = 0;  // Number of slices whose results are written.
  std::map<std::pair<int, uint64_t>, Source> sources_;  // By chunk and first element.
  std::map<uint64_t, std::vector<ScratchPool::Block>> scratch_blocks_;  // By slice.
};

}  // namespace tutti
