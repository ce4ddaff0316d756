// A HostTensor of the buffers of a host's ranks, folded by the worker itself: for ranks that did
// not meet and fold before.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "daemon/board/board.h"
#include "daemon/engine/engine.h"
#include "daemon/engine/scratch.h"

namespace tutti {

// `operation` and `geometry` outlive it.
class RankTensors final : public HostTensor {
 public:
  RankTensors(Device& device, Stream& stream, Scratch& scratch, const Operation& operation,
              const Geometry& geometry);

  Result<bool> ready(uint64_t slice) override;
  Source source(int chunk, const Range& range) override;
  std::byte* target(int chunk, const Range& range) override;
  Status finished(uint64_t slice) override;
  void released(uint64_t slice) override;
  int missing() const override { return missing_; }

 private:
  using Places = std::vector<std::byte*>;

  Result<bool> is_filled(uint64_t slice);
  bool is_alone() const { return operation_.execution->plan.hosts.size() == 1; }
  const std::byte* input(const RankBuffers& rank, int chunk, const Range& range) const;
  std::vector<const std::byte*> inputs(int chunk, const Range& range) const;
  Places homes(int chunk, const Range& range) const;
  Status fold(uint64_t slice, int chunk, const Range& range);
  Status combine(uint64_t slice, const std::vector<const std::byte*>& from, std::vector<Target> to,
                 uint64_t count);
  Status copy_to(const Places& homes, const std::byte* from, uint64_t count);
  bool past_cache(const std::vector<const std::byte*>& from, const std::vector<Target>& to) const;
  Result<std::byte*> take(uint64_t slice, size_t bytes);

  Device& device_;
  Stream& stream_;
  Scratch& scratch_;
  const Operation& operation_;
  const Geometry& geometry_;
  std::vector<const RankBuffers*> ranks_;  // In the order of folding; takers likewise.
  Folds folds_;
  int missing_ = -1;
  uint64_t finished_ = 0;  // Slices whose results lie at their targets.
  std::map<std::pair<int, uint64_t>, Source> sources_;     // By chunk and first element.
  std::map<uint64_t, std::vector<Scratch::Block>> taken_;  // By slice.
};

}  // namespace tutti
