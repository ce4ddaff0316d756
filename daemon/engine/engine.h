// Runs schedules: any plan, over any links, on any device.
//
// An operation's chunks are cut into slices. Each slice runs the whole list of moves by itself, and
// several slices (and several operations) are under way at once: that is all the pipelining there
// is, and no strategy knows of it. While slice i is on the wire, slice i+1 is folded.
//
// One thread (the loop's) makes all calls. Operations start in the order of start(), the same on
// all hosts, and slices in ascending order. The oldest unfinished slice of the mesh can therefore
// always advance, as long as a link takes what a sender may have under way beyond it:
// window_bytes(). So bounded queues cannot deadlock.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/base/status.h"
#include "daemon/device/device.h"
#include "daemon/schedule/schedule.h"
#include "daemon/transport/transport.h"
#include "proto/types.h"

namespace tutti {

// A slice is not cut smaller: below this a frame's fixed cost shows.
inline constexpr uint64_t kLeastSliceBytes = 64 * 1024;

struct OpKey {
  uint32_t epoch = 0;
  uint32_t group = 0;
  uint64_t seq = 0;
  auto operator<=>(const OpKey&) const = default;
};

// A plan with this host's moves, made once and shared by all operations that use it.
struct Recipe {
  Plan plan;
  std::vector<Move> moves;
};

// The tensors of one local rank. `in` and `out` may be the same; see OpRequest in session.h for
// their sizes.
struct RankBuffers {
  int rank = 0;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
};

struct Operation {
  OpKey key;
  std::shared_ptr<const Recipe> recipe;
  Dtype dtype = Dtype::f32;
  Op op = Op::sum;
  uint64_t count = 0;
  uint64_t slice_bytes = 0;                         // The same on all hosts.
  std::vector<RankBuffers> local;                   // Every rank of this host that takes part.
  std::vector<std::shared_ptr<const void>> memory;  // Kept until the last byte is released.
  std::function<void(Status)> done;                 // Called once, from inside an engine call.
};

// How the engine reaches other hosts; the group's business.
class Wire {
 public:
  virtual ~Wire() = default;
  // As Link::send, to the host of a rank.
  virtual Status send(const OpKey& key, int rank, Outgoing frame) = 0;
};

struct EngineLimits {
  int slices_in_flight = 4;
  int ops_in_flight = 4;
  size_t stash_bytes_max = size_t{256} << 20;
};

// The least a link must hold for that: each operation's slices under way, sent at most twice
// (ring), twice as long where 16-bit floats travel as f32.
constexpr size_t window_bytes(const EngineLimits& limits, size_t slice_bytes) {
  return size_t{4} * static_cast<size_t>(limits.ops_in_flight) *
         static_cast<size_t>(limits.slices_in_flight) * slice_bytes;
}

class Engine {
 public:
  using Post =
      std::function<void(std::function<void()>)>;  // Runs a function on the loop; any thread.
  virtual ~Engine() = default;
  virtual void start(Operation operation) = 0;
  // A data frame arrived; its header is untrusted. Not OK: the sender broke the protocol, abort its
  // epoch.
  virtual Status on_frame(Frame frame) = 0;
  // As LinkHandler's, for data frames; the header is as untrusted.
  virtual std::shared_ptr<Landing> place(const FrameHeader& header) = 0;
  // Ends every operation of the epoch with the cause, and drops its stashed frames.
  virtual void abort(uint32_t epoch, const Status& cause) = 0;
  // What the operation waits for ("slice 3: chunk 1 from rank 2"), and that rank (-1: nobody), for
  // messages.
  struct Waiting {
    std::string what;
    int rank = -1;
  };
  virtual Waiting waiting(const OpKey& key) const = 0;
};

std::unique_ptr<Engine> make_engine(Device& device, Wire& wire, const EngineLimits& limits,
                                    Engine::Post post);

}  // namespace tutti
