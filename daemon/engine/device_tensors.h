// A HostTensor whose ranks have their tensors in the memory of GPUs. GPUs fold them, in the order
// of the ranks' streams; between hosts slices pass through pinned host memory.
//
// Each GPU that holds a tensor of the operation works on a part of it, in a lane of its own: it
// reads all ranks' inputs and writes all outputs, of other GPUs as well. Over peers' mappings this
// is a reduce-scatter and an all-gather in one pass. The parts' bounds never change a bit.
//
// A lane waits on the GPU until the streams of all ranks have reached the operation; the processor
// learns of ended work by a call from the driver, and never waits. Loop thread only.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "daemon/engine/launch_queue.h"
#include "daemon/engine/local_ranks.h"

namespace tutti {

class DeviceTensors : public HostTensor {
 public:
  // References must outlive it. `wake`: has the engine ask again; called on any thread.
  DeviceTensors(GpuSet& gpus, std::function<void()> wake, const Operation& operation,
                const Geometry& geometry);
  ~DeviceTensors() override;

  Result<bool> ready(uint64_t slice) override;
  Contributions contributions(int chunk, const Range& range) override;
  std::span<std::byte* const> targets(int chunk, const Range& range) override;
  Status finished(uint64_t slice) override;
  void released(uint64_t slice) override;
  void cancel() override;
  bool settled() override;
  std::vector<int> blocking_ranks() const override;

 protected:
  using Lane = GpuSet::Lane;
  using Addresses = std::vector<const std::byte*>;
  struct Inputs {
    Addresses at;
    std::vector<double> factors;  // As LocalRanks::factors().
  };
  using Pending = LaunchQueue::Pending;  // In how many lanes work is not done.

  // Takes a lane of the GPU, which waits for all ranks' streams.
  Status add_lane(int gpu);
  Inputs inputs(int chunk, const Range& range) const {
    return {ranks_.inputs(chunk, range), ranks_.factors(chunk, range)};
  }
  // One part of the elements from every address, into every target. Divides by `divisor`.
  Status fold(Lane& lane, const Inputs& from, const std::vector<Target>& to, const Range& part,
              uint32_t divisor);
  Status copy(Lane& lane, const std::byte* from, const std::vector<std::byte*>& to, uint64_t bytes);
  // As LocalRanks::pieces(), no longer than what a lane folds by as many kernels as there are
  // folds.
  std::vector<Range> pieces_to_fold(int chunk, const Range& range) const;
  Status pass_streams();
  Result<Pending> notify();
  // Launches what there is room for. The rest follows as the lanes go on: settled() sees to it.
  Status launch_some();
  // What settled() could not launch.
  virtual void on_launch_failed(const Status& cause);
  // Whether the streams of a cancelled operation may go on. After false, settled() asks again.
  virtual bool may_go_on() { return true; }
  // Lets every stream run to its end. Repeated until they have.
  virtual void release_streams();
  bool is_held() const { return is_held_; }
  // Cancels what is under way. Whether no lane works any more: a process that ends is not held up,
  // beyond one bound, by GPUs that hang.
  bool await_end();
  // Pinned memory until the slice is released, or all lanes have ended.
  Result<GpuSet::Pinned> stage(uint64_t slice, uint64_t bytes);
  Gpu& gpu(const Lane& lane) { return gpus_.gpu(lane.gpu); }

  GpuSet& gpus_;
  const std::function<void()> wake_;
  const Operation& operation_;
  const Geometry& geometry_;
  const LocalRanks ranks_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  LaunchQueue launches_;

 private:
  // Where a chunk of a slice lies in host memory; one place for both, if there is no `result`.
  struct Staged {
    GpuSet::Pinned contribution;
    Dtype dtype = Dtype::f32;
    GpuSet::Pinned result;
  };

  Status begin();
  Status fold_slice(uint64_t slice);
  Pending end_slice(bool is_last);
  Status notify(const Pending& pending);
  void fold_to_outputs(int chunk, const Range& range);
  Status fold_piece_to_outputs(int chunk, const Range& range);
  Status fold_to_host(uint64_t slice, int chunk, const Range& range);
  Status fold_piece_to_host(int chunk, const Range& range, const Target& to);
  void copy_out(int chunk, const Range& range, const std::byte* from);
  Status copy_piece_out(int chunk, const Range& range, const std::byte* from);
  void let_go_on();
  std::byte* result_of(int chunk, const Range& range) const;

  uint64_t folded_ = 0;                                     // Number of slices in launches_ so far.
  std::map<uint64_t, Pending> folding_;                     // By slice.
  std::vector<Pending> pending_;                            // All that was launched.
  std::map<std::pair<int, uint64_t>, Staged> staged_;       // By chunk and first element.
  std::map<uint64_t, std::vector<GpuSet::Pinned>> pinned_;  // By slice.
  std::vector<std::pair<Pending, std::vector<GpuSet::Pinned>>> copied_out_;  // Of finished slices.
  std::map<uint64_t, Pending> copying_out_;                                  // By slice.
  const std::byte* contribution_ = nullptr;  // What contributions() and targets() returned last.
  std::byte* target_ = nullptr;
  bool begun_ = false;
  bool is_cancelled_ = false;
  bool has_hung_ = false;  // await_end() has waited in vain.
  // It was cancelled, and its streams have not been let go on. After a fault they never are.
  bool is_held_ = false;
};

}  // namespace tutti
