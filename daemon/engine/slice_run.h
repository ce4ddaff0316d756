// One slice of one operation on its way through the moves.
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
  SliceRun(const Operation& operation, const Geometry& geometry, uint64_t slice);
  ~SliceRun() { take_back_landing(); }
  SliceRun(const SliceRun&) = delete;
  SliceRun& operator=(const SliceRun&) = delete;

  // Makes what is called when a frame of this slice is released.
  using Releases = std::function<std::function<void()>(SliceRun&)>;
  // Runs moves until the list ends or one must wait.
  Result<Progress> advance(EngineParts& parts, Mailbox& mailbox, const Releases& releases);
  bool all_moved() const { return next_ == operation_.recipe->moves.size() && settled_; }
  // The move it waits at; nullptr: none left.
  const Move* at() const;
  uint64_t slice() const { return slice_; }
  void recycle(Scratch& scratch);
  // Where the payload behind this header goes at once, if it is the result that this slice waits
  // for. Taken back when the slice ends or another frame comes in its stead.
  std::shared_ptr<Landing> land(const FrameHeader& header);
  void take_back_landing();

  int unreleased = 0;  // Frames sent and not yet released; the engine counts.

 private:
  // Where a rank's value of a chunk is now. Partial sums of 16-bit floats are f32. `scratch`: the
  // same place, where it is this rank's own scratch and so may be written again.
  struct Value {
    const std::byte* at = nullptr;
    Dtype dtype = Dtype::f32;
    std::byte* scratch = nullptr;
  };

  // What becomes of a combined value at once: who has it, whether it is complete, and how many of
  // the next moves say so.
  struct Outcome {
    std::vector<int> holders;
    bool complete = false;
    size_t moves = 0;
  };

  Value& value(int rank, int chunk);
  static std::byte* writable(const Value& place);
  Result<bool> run(EngineParts& parts, Mailbox& mailbox, const Move& move,
                   const Releases& releases);
  Status fold(EngineParts& parts, const Move& move);
  Status combine(EngineParts& parts, const Move& move, std::span<const Operand> sources);
  Status finish(EngineParts& parts, const Move& move);
  Status spread(EngineParts& parts, const Move& move);
  Status store(EngineParts& parts, int rank, int chunk, Value from);
  Result<bool> send(EngineParts& parts, const Move& move, const Releases& releases);
  Result<bool> receive(EngineParts& parts, Mailbox& mailbox, const Move& move);
  Status accept(EngineParts& parts, const Move& move, const Frame& frame);
  Status settle(EngineParts& parts);
  Result<Value> place(EngineParts& parts, int rank, int chunk, Dtype dtype);
  Result<std::byte*> take(EngineParts& parts, size_t bytes);
  const Move* behind(size_t steps, MoveKind kind, int chunk) const;
  Outcome outcome(const Move& move) const;
  Result<std::vector<Target>> place_all(EngineParts& parts, const std::vector<int>& holders,
                                        int chunk, Dtype dtype);
  bool past_cache(const EngineParts& parts, const Outcome& out, std::span<const Target> targets,
                  std::span<const Operand> sources) const;
  uint32_t divisor() const;

  const Operation& operation_;
  const Geometry& geometry_;
  uint64_t slice_;
  size_t next_ = 0;
  bool settled_ = false;
  std::vector<Range> ranges_;          // By chunk.
  std::vector<Value> values_;          // By local rank, then chunk.
  std::map<int, size_t> local_index_;  // Rank to its place in operation_.local.
  std::vector<Scratch::Block> taken_;
  std::shared_ptr<Landing> landing_;
};

}  // namespace tutti
