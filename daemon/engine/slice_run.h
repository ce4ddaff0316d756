// Runs one slice of one operation through the steps of its execution plan.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "daemon/engine/engine.h"
#include "daemon/engine/geometry.h"
#include "daemon/engine/scratch_pool.h"

namespace tutti {

// Identifies a frame within its operation: slice, from, to, ordinal.
using FrameTag = std::tuple<uint32_t, uint16_t, uint16_t, uint16_t>;
inline FrameTag tag_of(const FrameHeader& header) {
  return {header.slice, header.from, header.to, header.ordinal};
}
using Mailbox = std::map<FrameTag, Frame>;

// Shared by all slices of an engine.
struct EngineParts {
  Device& device;
  Stream& stream;
  ScratchPool& scratch;
  uint64_t folded_bytes = 0;  // See Engine.
};

enum class Progress { blocked, done };

class SliceRun {
 public:
  // The slice must be ready in `tensor`. References must outlive this.
  SliceRun(const Operation& operation, const Geometry& geometry, HostTensor& tensor,
           uint64_t slice);
  ~SliceRun() { withdraw_recv_buffers(); }
  SliceRun(const SliceRun&) = delete;
  SliceRun& operator=(const SliceRun&) = delete;

  // Makes the function that a link calls when it releases a frame of this slice.
  using Releases = std::function<std::function<void()>(SliceRun&)>;
  // Executes steps until the list ends or one must wait. `first`: steps_taken() of the first slice.
  Result<Progress> advance(EngineParts& parts, Mailbox& mailbox, const Releases& releases,
                           size_t first);
  bool is_complete() const { return next_ == steps().size() && copied_ && !is_folding(); }
  // Whether others fold for it, which it waits for.
  bool is_folding() const {
    return std::ranges::any_of(folds_, [](const auto& parts) { return *parts != 0; });
  }
  size_t steps_taken() const { return next_; }
  // The step to be executed next; null: none left.
  const Step* current_step() const { return next_ < steps().size() ? &steps()[next_] : nullptr; }
  uint64_t slice() const { return slice_; }
  void release_scratch();
  // The destination of the payload of this header, if it is the result that the current step waits
  // for, or what others will fold; else null. Withdrawn when the slice ends or another frame takes
  // its place.
  std::shared_ptr<RecvBuffer> recv_buffer_for(const FrameHeader& header);
  void withdraw_recv_buffers();

  int unreleased = 0;     // Frames sent and not yet released; maintained by the engine.
  bool finished = false;  // HostTensor::finished() was called; set by the engine.

 private:
  // The host's value of a chunk.
  struct Value {
    const std::byte* at = nullptr;  // Null: the contributions, which are not folded yet; or none.
    Dtype dtype = Dtype::f32;
    std::byte* scratch = nullptr;  // The same address, if it may be overwritten.
    bool is_at_targets = false;    // At all of them.
  };

  const std::vector<Step>& steps() const { return operation_.execution->steps; }
  bool is_skipped(const Step& step) const;
  FrameTag tag_of_step(size_t step) const;
  FrameTag expected_tag() const { return tag_of_step(next_); }
  std::shared_ptr<RecvBuffer> carry_buffer_for(const FrameHeader& header);
  Result<bool> execute(EngineParts& parts, Mailbox& mailbox, const Step& step,
                       const Releases& releases);
  // In a reproducible plan: what the host's value is the fold of, in this order, once it is needed.
  struct Terms {
    Operand first = {nullptr,
                     Dtype::f32};        // The host's own partial result, or one in f32; or null.
    std::vector<const std::byte*> rest;  // In the operation's type.
    // That some of these are in. They may be freed while others fold: what others reach is in wire
    // memory, which the slice has until it ends.
    std::vector<Frame> frames;
    bool empty() const { return first.data == nullptr && rest.empty(); }
  };
  struct Targets {
    std::array<Target, kLocalRanksMax> at;  // NOLINT: filled as far as it is used.
    size_t count = 0;
  };
  Status fold(EngineParts& parts, int chunk, const Operand& carry, bool complete);
  Status reduce(EngineParts& parts, int chunk, const Value& own, const Operand& carry,
                std::span<const Target> to, bool complete);
  Status choose_targets(EngineParts& parts, int chunk, bool complete, Targets& to);
  Terms& begin_terms(int chunk, bool afresh);
  Result<bool> contribute(EngineParts& parts, const Step& step);
  Status keep_frame(EngineParts& parts, const Step& step, const Operand& received, Frame&& frame);
  Status fold_terms(EngineParts& parts, int chunk, bool complete);
  Status run(EngineParts& parts, FoldWork& work, const Strategy& local);
  Status finish(EngineParts& parts, const Step& step);
  Result<bool> send(EngineParts& parts, const Step& step, const Releases& releases);
  Result<bool> receive(EngineParts& parts, Mailbox& mailbox, const Step& step);
  Status accept(EngineParts& parts, const Step& step, Frame&& frame);
  Status misfit(const Step& step) const;
  Status copy_results(EngineParts& parts);
  Status copy_result(EngineParts& parts, int chunk, std::span<std::byte* const> to);
  bool others_fold(const FoldWork& work, const Strategy& local);
  bool others_copy(int chunk, std::span<std::byte* const> to);
  std::span<std::byte* const> targets(int chunk) const;
  Result<Value> allocate_value(EngineParts& parts, int chunk, Dtype dtype);
  Result<std::byte*> allocate(ScratchPool& pool, size_t bytes);
  ScratchPool& pool_for(EngineParts& parts, size_t bytes) const;
  bool past_cache(const EngineParts& parts, int chunk) const;
  uint32_t divisor() const;

  const Operation& operation_;
  HostTensor& tensor_;
  uint64_t slice_;
  bool is_only_slice_;
  bool sends_empty_;  // Chunks of this slice without elements are sent, too.
  size_t next_ = 0;
  bool copied_ = false;
  std::vector<Range> ranges_;  // By chunk.
  std::vector<Value> values_;  // By chunk.
  std::vector<Terms> terms_;   // By chunk. Empty: the value is the chunk's.
  struct Scratch {
    ScratchPool* pool;
    ScratchPool::Block block;
  };
  std::vector<Scratch> scratch_;
  std::vector<std::shared_ptr<const int>> folds_;  // By others: how many parts have not ended.
  std::shared_ptr<RecvBuffer> recv_buffer_;
  std::map<size_t, std::shared_ptr<RecvBuffer>> carry_buffers_;  // By step.
};

}  // namespace tutti
