// What a host contributes to an operation, and where its results go: a HostTensor over the buffers,
// or windows, of the host's ranks. Makes no pass over memory.
#pragma once

#include <vector>

#include "daemon/engine/local_ranks.h"

namespace tutti {

// The references must outlive it.
class RankTensors final : public HostTensor {
 public:
  RankTensors(const Operation& operation, const Geometry& geometry)
      : operation_(operation), geometry_(geometry), ranks_(operation, geometry) {}

  Result<bool> ready(uint64_t slice) override;
  Contributions contributions(int chunk, const Range& range) override {
    ranks_.inputs(chunk, range, inputs_);
    return {inputs_, &ranks_.folds(), operation_.dtype};
  }
  std::span<std::byte* const> targets(int chunk, const Range& range) override {
    ranks_.outputs(chunk, range, outputs_);
    return outputs_;
  }
  Status finished(uint64_t slice) override {
    finished_ = slice + 1;
    return {};
  }
  void released(uint64_t slice) override {
    if (operation_.release_window && slice < finished_)
      operation_.release_window(has_rows() ? slice + 1
                                           : geometry_.end_of(slice) / kBoardBlockBytes);
  }
  void cancel() override {
    if (operation_.helpers != nullptr) operation_.helpers->cancel();
  }
  bool settled() override { return operation_.helpers == nullptr || operation_.helpers->settled(); }
  std::vector<int> blocking_ranks() const override {
    if (blocking_rank_ >= 0) return {blocking_rank_};
    return operation_.helpers != nullptr ? operation_.helpers->busy_ranks() : std::vector<int>();
  }

 private:
  bool holds_slices(const RankBuffers& rank) const;
  uint64_t blocks_until(uint64_t slice) const;
  bool has_rows() const { return has_blocks(operation_.execution->plan.collective); }

  const Operation& operation_;
  const Geometry& geometry_;
  const LocalRanks ranks_;
  int blocking_rank_ = -1;
  uint64_t finished_ = 0;  // Number of slices whose results are written.
  std::vector<const std::byte*> inputs_;
  std::vector<std::byte*> outputs_;
};

}  // namespace tutti
