// Runs schedules among hosts: any plan, over any links, on any device. It knows hosts only, by
// their places in the plan; what a host contributes and takes is a HostTensor's business.
//
// An operation's tensor is cut into slices (geometry.h), and the strategy's chunks split each
// slice. Each slice runs the whole list of steps by itself, and several slices (and several
// operations) are under way at once: that is all the pipelining there is, and no strategy knows of
// it. While slice i is on the wire, slice i+1 is folded.
//
// One thread (the loop's) makes all calls. Of each group the operations with the lowest numbers are
// under way, and of each operation slices in ascending order. The oldest unfinished slice of a
// group can therefore always advance, as long as a link takes what a sender may have under way
// beyond it: window_bytes() a group. So bounded queues cannot deadlock.
//
// Hosts start an operation without a word to each other. Every frame carries what its sender
// believes the operation to be (Operation::agreement), and a frame that says otherwise is never
// used. Frames that come before the operation starts here are kept; those of one that is over are
// dropped. Nobody completes before all have started and agree (schedule.h). For that an operation
// without elements sends all its frames, empty; one with elements leaves out empty chunks. The
// empty messages of a schedule go with the first slice only, and the others wait with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/base/op_key.h"
#include "daemon/base/status.h"
#include "daemon/device/device.h"
#include "daemon/engine/geometry.h"
#include "daemon/schedule/schedule.h"
#include "daemon/transport/transport.h"
#include "proto/types.h"

namespace tutti {

// This host's tensor in one operation: what its local phase yields, slice by slice, and takes back.
// Loop thread only.
//
// A slice is ready, then finished, then released, and slices become so in ascending order; no more
// than slices_in_flight of them are ready and not released. So a window of so many slices is memory
// enough for a tensor of any size. Every slice that was ready is released, in an operation that
// fails too, and before its done().
class HostTensor {
 public:
  virtual ~HostTensor() = default;

  // Whether the slice's contributions lie at their sources, and its targets may be written. Not
  // yet: the engine asks again when poked. On a host alone the targets hold the result then;
  // neither sources nor targets are asked for.
  virtual Result<bool> ready(uint64_t slice) = 0;

  // The host's contribution to the range, in the operation's type, or, where several ranks made a
  // sum of 16-bit floats, in f32. `scratch`: the same place, where the engine may change it.
  struct Source {
    const std::byte* at = nullptr;
    Dtype dtype = Dtype::f32;
    std::byte* scratch = nullptr;
  };
  // Asked for chunks that the host contributes to, of slices that are ready; never for an empty
  // range.
  virtual Source source(int chunk, const Range& range) = 0;
  // Where the result goes, in the operation's type; the engine may keep sums that are not complete
  // there. The same place as the source, or apart from it; null: nowhere. Asked for chunks that the
  // host wants, likewise.
  virtual std::byte* target(int chunk, const Range& range) = 0;

  // The slice's results lie at their targets, complete: divided, rounded. Links may still read
  // them, the engine no more writes them.
  virtual Status finished(uint64_t slice) = 0;
  // Nobody reads or writes the slice's memory any more.
  virtual void released(uint64_t slice) = 0;
  // The rank of the plan that the next slice waits for; -1: none.
  virtual int missing() const { return -1; }
};

// A plan with this host's steps, made once and shared by all operations that use it.
struct ExecutionPlan {
  Plan plan;
  int self = 0;  // This host's place in it.
  std::vector<Step> steps;
  std::vector<int>
      ordinals;  // By step: how many messages between the two went the same way before.
};
std::shared_ptr<const ExecutionPlan> make_execution_plan(const Plan& plan, int self);

// The tensors of one local rank. `in` and `out` may be the same; see Call in base/call.h for
// their sizes.
struct RankBuffers {
  int rank = 0;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  // The tensors pass through `in` and `out`, byte b at b % window_bytes, a multiple of the slice;
  // 0: they lie there as a whole.
  uint64_t window_bytes = 0;
  std::function<uint64_t()> filled =
      nullptr;  // Bytes of the tensor that came to the window so far.
};

// A frame of another agreement than the operation's came from that host of the plan and was
// dropped. May come several times, and from inside start(), on_frame() or the loop; may cancel the
// operation.
using OnMismatch = std::function<void(const OpKey& key, int from)>;

struct Operation {
  OpKey key;
  std::shared_ptr<const ExecutionPlan> execution;
  Dtype dtype = Dtype::f32;
  Op op = Op::sum;
  uint64_t count = 0;
  uint64_t slice_bytes = 0;                         // The same on all hosts.
  uint64_t agreement = 0;                           // Goes with every frame.
  std::shared_ptr<HostTensor> tensor;               // Null: the engine makes one, of `local`.
  std::vector<RankBuffers> local;                   // Every rank of this host that takes part.
  std::vector<std::shared_ptr<const void>> memory;  // Kept until the last byte is released.
  OnMismatch mismatch;                              // May be empty.
  // So many bytes of windows hold results, and nobody uses them any more. May be empty.
  std::function<void(uint64_t bytes)> passed;
  // Called once, from inside an engine call or the loop, and not before every link has released
  // what it borrowed of the operation's memory.
  std::function<void(Status)> done;
};

// How the engine reaches other hosts; the group's business.
class Wire {
 public:
  virtual ~Wire() = default;
  // As Link::send, to a host of the operation's plan.
  virtual Status send(const OpKey& key, int host, Outgoing frame) = 0;
};

struct EngineLimits {
  int slices_in_flight = 4;
  int ops_in_flight = 4;  // Of each group.
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
  // The key is new: neither started nor cancelled before.
  virtual void start(Operation operation) = 0;
  // More of the operation's tensor may be ready now.
  virtual void poke(const OpKey& key) = 0;
  // A data frame arrived; its header is untrusted. Not OK: the sender broke the protocol, abort its
  // epoch.
  virtual Status on_frame(Frame frame) = 0;
  // As LinkHandler's, for data frames; the header is as untrusted.
  virtual std::shared_ptr<RecvBuffer> recv_buffer_for(const FrameHeader& header) = 0;
  // What Wire::send refused may be taken now.
  virtual void wake() = 0;
  // Ends one operation with the cause, where it has not ended; where it has not started it never
  // will. Its frames, early or late, are dropped.
  virtual void cancel(const OpKey& key, const Status& cause) = 0;
  // Ends every operation of the epoch with the cause, and drops its stashed frames.
  virtual void abort(uint32_t epoch, const Status& cause) = 0;
  // What the operation waits for ("slice 3: chunk 1 from rank 2"), where a host is called by its
  // lowest rank, and the rank that it waits for (-1: none), for messages.
  struct Waiting {
    std::string what;
    int rank = -1;
  };
  virtual Waiting waiting(const OpKey& key) const = 0;
};

std::unique_ptr<Engine> make_engine(Device& device, Wire& wire, const EngineLimits& limits,
                                    Engine::Post post);

}  // namespace tutti
