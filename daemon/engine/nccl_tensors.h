// DeviceTensors whose hosts exchange values by NCCL. The frames of the operation are empty: they
// tell that all hosts have started it and agree. Then the tensor passes piece by piece through
// memory of the communicator's GPU, all in the order of one stream there: the ranks' inputs are
// folded, NCCL combines the hosts' values, and the result is written to the ranks' outputs.
//
// NCCL never works on memory of the ranks, so nothing of theirs is touched once the stream's work
// was cancelled, whatever NCCL still does. Loop thread only.
#pragma once

#include "daemon/engine/device_tensors.h"
#include "daemon/engine/scratch_pool.h"

namespace tutti {

class NcclTensors final : public DeviceTensors {
 public:
  // What NCCL is given at once; a piece of each operation that has begun takes this much memory.
  static constexpr uint64_t kPieceBytes = uint64_t{32} << 20;
  // How long the streams of a cancelled operation are held for NCCL to abort its work: since NCCL
  // was asked to, which it may answer only when they have ended; and at most. A thread that gets no
  // core for so long before it sets NCCL's flag leaves other hosts a sum without this one's values.
  static constexpr Millis kAbortGrace{100};
  static constexpr Millis kAbortBound{1'000};

  // `pieces`: the tensor, of one chunk, cut into slices of kPieceBytes. `scratch`: of the
  // communicator's GPU. References must outlive it.
  NcclTensors(GpuSet& gpus, std::function<void()> wake, const Operation& operation,
              const Geometry& pieces, ScratchPool& scratch);
  ~NcclTensors() override;

  Result<bool> ready(uint64_t) override { return true; }
  Contributions contributions(int, const Range&) override { return {}; }
  std::span<std::byte* const> targets(int, const Range&) override { return {}; }
  // All hosts have started the operation and agree.
  Status finished(uint64_t) override;
  void released(uint64_t) override {}
  void cancel() override;
  bool settled() override;

 private:
  bool is_mean() const;
  // Means of 16-bit floats, whose sums may not be finite though the means are.
  bool divides_first() const { return is_mean() && size_of(operation_.dtype) == 2; }
  uint32_t world() const;
  Status begin();
  void go_on();
  void on_launch_failed(const Status& cause) override { fail(cause); }
  bool may_go_on() override;
  void release_streams() override;
  Status pass_gate();
  void reduce_piece(const Range& piece);
  Status fold_part(const Range& part, std::byte* to);
  Status launch(const Range& piece);
  void on_launched(const Status& queued);
  Status write_part(const Range& part, const std::byte* from);
  std::byte* place_of(const Range& part, const Range& piece) const;
  Status finish();
  void fail(const Status& cause) { fail(cause, link_.on_failed); }
  void fail(const Status& cause, const std::function<void(const Status&)>& tell);
  void leave();

  NcclLink& link_;
  ScratchPool& scratch_;
  const nccl::LaunchOrder::Ticket ticket_;
  ScratchPool::Block piece_memory_;
  // In pinned memory: the number of works that NCCL may be given, and numbers to store there.
  std::atomic<uint64_t>* gate_ = nullptr;
  uint64_t next_piece_ = 0;
  int works_ = 0;  // That NCCL was given.
  bool is_launching_ = false;
  bool is_over_ = false;     // Nothing more is queued: all is, or it was cancelled or has failed.
  bool has_failed_ = false;  // The epoch has not cancelled it yet.
  bool has_left_ = false;
  TimePoint held_until_ = TimePoint::max();  // Since cancel().
  Lifetime lifetime_;
};

}  // namespace tutti
