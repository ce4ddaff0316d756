// One slice of one operation on its way through the steps.
#pragma once

#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "daemon/engine/engine.h"
#include "daemon/engine/geometry.h"
#include "daemon/engine/scratch.h"

namespace tutti {

// Which message of an operation a frame is: slice, from, to, ordinal.
using FrameTag = std::tuple<uint32_t, uint16_t, uint16_t, uint16_t>;
using Mailbox = std::map<FrameTag, Frame>;

// What all slices of a worker share.
struct EngineParts {
  Device& device;
  Stream& stream;
  Wire& wire;
  Scratch& scratch;
};

enum class Progress { blocked, done };

class SliceRun {
 public:
  // The slice is ready in `tensor`.
  SliceRun(const Operation& operation, const Geometry& geometry, HostTensor& tensor,
           uint64_t slice);
  ~SliceRun() { take_back_recv_buffer(); }
  SliceRun(const SliceRun&) = delete;
  SliceRun& operator=(const SliceRun&) = delete;

  // Makes what is called when a frame of this slice is released.
  using Releases = std::function<std::function<void()>(SliceRun&)>;
  // Takes steps until the list ends or one must wait. `first`: how many the first slice has taken.
  Result<Progress> advance(EngineParts& parts, Mailbox& mailbox, const Releases& releases,
                           size_t first);
  bool is_through() const { return next_ == steps().size() && settled_; }
  size_t taken() const { return next_; }
  // The step it waits at; nullptr: none left.
  const Step* at() const { return next_ < steps().size() ? &steps()[next_] : nullptr; }
  uint64_t slice() const { return slice_; }
  void recycle(Scratch& scratch);
  // Where the payload behind this header goes at once, if it is the result that this slice waits
  // for. Taken back when the slice ends or another frame comes in its stead.
  std::shared_ptr<RecvBuffer> land(const FrameHeader& header);
  void take_back_recv_buffer();

  int unreleased = 0;     // Frames sent and not yet released; the engine counts.
  bool finished = false;  // The tensor was told.

 private:
  // Where the host's value of a chunk is now.
  using Value = HostTensor::Source;

  const std::vector<Step>& steps() const { return operation_.execution->steps; }
  bool is_left_out(const Step& step) const;
  FrameTag tag_here() const;
  Result<bool> run(EngineParts& parts, Mailbox& mailbox, const Step& step,
                   const Releases& releases);
  Status combine(EngineParts& parts, const Step& step, const Operand& received);
  Status finish(EngineParts& parts, const Step& step);
  Result<bool> send(EngineParts& parts, const Step& step, const Releases& releases);
  Result<bool> receive(EngineParts& parts, Mailbox& mailbox, const Step& step);
  Status accept(EngineParts& parts, const Step& step, const Frame& frame);
  Status misfit(const Step& step) const;
  Status settle(EngineParts& parts);
  std::byte* target(int chunk) const;
  Result<Value> place(EngineParts& parts, int chunk, Dtype dtype);
  Result<std::byte*> take(EngineParts& parts, size_t bytes);
  bool completes(size_t step) const;
  bool past_cache(const EngineParts& parts, const Step& step, const std::byte* to) const;
  uint32_t divisor() const;

  const Operation& operation_;
  HostTensor& tensor_;
  uint64_t slice_;
  bool empty_;  // The whole operation.
  size_t next_ = 0;
  bool settled_ = false;
  std::vector<Range> ranges_;  // By chunk.
  std::vector<Value> values_;  // By chunk.
  std::vector<Scratch::Block> taken_;
  std::shared_ptr<RecvBuffer> recv_buffer_;
};

}  // namespace tutti
