// Runs the schedules of operations among hosts: any plan, over any links, on any device. Hosts are
// known by their places in the plan; HostTensor is what a host contributes and receives.
//
// An operation's tensor is cut into slices (geometry.h), and each slice into the strategy's chunks.
// Each slice runs the whole list of steps on its own, and several slices of several operations are
// in flight at once. This is the only pipelining, and no strategy is aware of it: while slice i is
// on the wire, slice i+1 is folded.
//
// One thread (the loop's) makes all calls. The engine runs the operations of a group with the
// lowest numbers, and the slices of an operation in ascending order. The oldest unfinished slice of
// a group can therefore always advance, provided that a link accepts what a sender may have in
// flight beyond it: min_link_capacity() per group. So bounded queues cannot deadlock.
//
// Hosts start an operation without a handshake. Every frame carries a hash of what its sender runs
// (Operation::agreement), and a frame with another hash is never used. Frames that arrive before
// the operation starts here are kept; frames of an ended operation are dropped. No host completes
// before all have started and agree (schedule.h). To guarantee this, an operation without elements
// sends all its frames, empty, while one with elements omits empty chunks, except for the first
// slice of blocks with counts of their own. The empty messages of a schedule are sent for the first
// slice only, and later slices wait for them as well.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "daemon/base/call.h"
#include "daemon/base/op_id.h"
#include "daemon/base/staged_rows.h"
#include "daemon/base/status.h"
#include "daemon/board/board.h"
#include "daemon/device/device.h"
#include "daemon/engine/geometry.h"
#include "daemon/engine/scratch_pool.h"
#include "daemon/nccl/nccl.h"
#include "daemon/schedule/schedule.h"
#include "daemon/transport/transport.h"
#include "proto/types.h"

namespace tutti {

// This host's tensor in one operation: what its ranks contribute, slice by slice, and the
// destinations of the operation's result. Loop thread only.
//
// Each slice becomes ready, then finished, then released, and slices do so in ascending order. At
// most slices_in_flight of them are ready and not released, so a window of that many slices is
// enough memory for a tensor of any size. Every slice that became ready is released before done(),
// even if the operation fails.
class HostTensor {
 public:
  virtual ~HostTensor() = default;

  // Whether the slice's contributions are available and its targets may be written. After false the
  // engine asks again on resume().
  virtual Result<bool> ready(uint64_t slice) = 0;

  // The host's contributions to a range: those of its ranks, or one that was folded of them.
  struct Contributions {
    std::span<const std::byte* const> at;  // Until the tensor's next call.
    const Folds* folds = nullptr;          // How several are associated: see FoldWork.
    // The operation's type, or f32 where one was made of several of 16-bit floats.
    Dtype dtype = Dtype::f32;
    std::byte* scratch = nullptr;  // The address of the only one, if the engine may overwrite it.
  };
  // Called for non-empty ranges of ready slices, and chunks to which the host contributes.
  virtual Contributions contributions(int chunk, const Range& range) = 0;
  // Destinations of the result, in the operation's type, until the tensor's next call; the engine
  // may keep partial sums in the first. Each equals a contribution or overlaps none. Called for
  // non-empty ranges of ready slices, and chunks that the host wants. Empty where the tensor writes
  // the results itself.
  virtual std::span<std::byte* const> targets(int chunk, const Range& range) = 0;

  // The slice's results are complete at their targets. The engine no longer writes them, but links
  // may still read them.
  virtual Status finished(uint64_t slice) = 0;
  // The slice's memory is no longer in use.
  virtual void released(uint64_t slice) = 0;
  // The operation ends before its time: what has not begun on the ranks' memory must not begin any
  // more. Called at most once, before released().
  virtual void cancel() {}
  // Whether all work on the ranks' memory has ended, after the last slice was finished or after
  // cancel(). After false the engine asks again on resume() and settle().
  virtual bool settled() { return true; }
  // The ranks of the plan for whose input ready() waits, or some of them.
  virtual std::vector<int> blocking_ranks() const { return {}; }
};

// A plan with this host's steps, made once and shared by all operations that use it.
struct ExecutionPlan {
  Plan plan;     // The local strategy of a reproducible one is Centralized.
  int self = 0;  // This host's place in the plan.
  std::vector<Step> steps;
  std::vector<int> ordinals;  // By step: the number of earlier messages from and to the same hosts.
  std::vector<int> order;     // This host's ranks as they are folded, by their place on it.
  Folds folds;                // Of the contributions of them all.
};
std::shared_ptr<const ExecutionPlan> make_execution_plan(const Plan& plan, int self);

// The tensors of one local rank. `in` and `out` may be equal; see Call in base/call.h for their
// sizes.
struct RankBuffers {
  int rank = 0;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  // 0: `in` and `out` hold the whole tensors. Else they are windows: byte b of a tensor is at
  // b % window_bytes, which is a multiple of the slice; with blocks, it lies as its rows say. Ranks
  // may have one for results in common: then one rank alone has `out`.
  uint64_t window_bytes = 0;
  // Blocks of the board, or rows, of the input that were written to the window so far.
  std::function<uint64_t()> filled = nullptr;
  StagedRows rows = {};  // Of a windowed tensor with blocks; else the part is 0.
  // For an operation on GPUs: whose memory the tensors are in, and the words of the rank's stream.
  int gpu = -1;
  StreamWords words = {};
  double factor = 1;  // Of premul_sum there: what the input is multiplied by.
  // For a list there: its tensors, in place of `in` and `out`. Ranks may have cut theirs otherwise,
  // though not if they are sound.
  std::shared_ptr<const std::vector<ListedSides>> listed;
};

// Sends the frames of operations to other hosts.
class FrameSender {
 public:
  virtual ~FrameSender() = default;
  // As Link::send, to a host of the operation's plan.
  virtual Status send(const OpId& id, int host, Outgoing frame) = 0;
};

// NCCL among all hosts of a group: what moves the values of operations on GPUs in place of frames.
// Shared by the operations; the loop's thread alone.
struct NcclLink {
  explicit NcclLink(const nccl::CommunicatorParts& parts) : communicator(parts) {}

  // Operations that have memory on the GPU for this at once.
  static constexpr int kOpsAtOnce = 4;
  nccl::Communicator communicator;
  nccl::LaunchOrder launch_order{kOpsAtOnce};
  // On the GPU, behind the work that was launched last. NCCL does not promise that work on several
  // streams is done in the order of its launches, which all hosts have in common.
  std::unique_ptr<Event> last;
  int gpu = -1;  // Of the operations' GpuSet: the communicator's.
  // NCCL did not take an operation's work; a GPU of this host failed it. Both must end the epoch,
  // but not from inside.
  std::function<void(const Status&)> on_refused;
  std::function<void(const Status&)> on_failed;
};

// Other cores that fold for one operation: those of the host's ranks that wait for it. Loop thread
// only.
class FoldHelpers {
 public:
  virtual ~FoldHelpers() = default;
  // `resume` is called whenever a fold has ended, or settled() has become true. Once, first.
  virtual void begin(std::function<void()> resume) = 0;
  // Begins a fold, whose contributions are associated as `local` says. The values must stay where
  // they are until it has ended; the rest of `work` need not. Returns how many parts of it have not
  // ended. Null: none began, and the caller folds.
  virtual std::shared_ptr<const int> start(const FoldWork& work, const Strategy& local) = 0;
  // Memory that they reach, besides that of the ranks.
  virtual ScratchPool& memory() = 0;
  // What has not begun must not begin any more.
  virtual void cancel() = 0;
  // Whether nobody touches memory for a fold.
  virtual bool settled() const = 0;
  // The ranks of the plan that fold now.
  virtual std::vector<int> busy_ranks() const = 0;
};

struct Operation {
  OpId id;
  std::shared_ptr<const ExecutionPlan> execution;
  Dtype dtype = Dtype::f32;
  Op op = Op::sum;
  uint64_t count = 0;  // Of the largest block, where there are blocks.
  // Where the blocks have counts of their own: of each block; else null.
  std::shared_ptr<const std::vector<uint64_t>> counts;
  uint64_t slice_bytes = 0;            // The same on all hosts.
  uint64_t agreement = 0;              // Sent with every frame.
  std::shared_ptr<HostTensor> tensor;  // Null: the engine makes one of `local`.
  GpuSet* gpus = nullptr;              // Not null: `local` are device addresses.
  // Not null: hosts exchange values by NCCL, once an exchange of empty frames has told that all
  // have started the operation and agree. For what nccl::supports() alone, in group order.
  std::shared_ptr<NcclLink> nccl;
  std::vector<RankBuffers> local;                   // Every rank of this host that takes part.
  std::vector<std::shared_ptr<const void>> memory;  // Kept until the last byte is released.
  std::shared_ptr<FoldHelpers> helpers;             // Null: none. Not for GPUs.
  // Not called after the operation ended. Null only if the plan has one host.
  FrameSender* sender = nullptr;
  // A frame with another agreement arrived from that host of the plan and was dropped. Called any
  // number of times, from inside start(), on_frame() or the loop; may cancel the operation. May be
  // empty.
  std::function<void(int from)> mismatch;
  // The first `blocks` of the board, or rows, of each windowed tensor are complete and no longer in
  // use. May be empty.
  std::function<void(uint64_t blocks)> release_window;
  // Called once, from inside an engine call or the loop, after every link has released what it
  // borrowed of the operation's memory.
  std::function<void(Status)> done;
};

struct EngineLimits {
  int slices_in_flight = 4;
  int ops_in_flight = 4;  // Per group.
  // For frames kept on receipt because their operation has not started. The setting early_bytes
  // limits senders.
  size_t kept_early_bytes_max = size_t{256} << 20;
};

// The least capacity of a link, in bytes, that rules out deadlock: the slices in flight of all
// operations in flight, each sent at most twice (ring; where it is sent more often, between ranks
// that do not follow each other, the next time waits for an answer), and twice as long if 16-bit
// floats travel as f32.
constexpr size_t min_link_capacity(const EngineLimits& limits, size_t slice_bytes) {
  return size_t{4} * static_cast<size_t>(limits.ops_in_flight) *
         static_cast<size_t>(limits.slices_in_flight) * slice_bytes;
}

class Engine {
 public:
  // Runs a function on the loop; any thread.
  using Post = std::function<void(std::function<void()>)>;
  virtual ~Engine() = default;
  // Takes the GPU memory that operations by this link will use, so that none lacks it later.
  virtual Status reserve(GpuSet& gpus, const NcclLink& link) = 0;
  // The id must be new: neither started nor cancelled before.
  virtual void start(Operation operation) = 0;
  // More of the operation's tensor may be ready. Unknown ids are ignored.
  virtual void resume(const OpId& id) = 0;
  // A data frame with an untrusted header. Not OK: the sender broke the protocol; abort its epoch.
  virtual Status on_frame(Frame frame) = 0;
  // As LinkHandler::recv_buffer_for, for data frames with untrusted headers.
  virtual std::shared_ptr<RecvBuffer> recv_buffer_for(const FrameHeader& header) = 0;
  // FrameSender::send may accept frames that it refused before.
  virtual void retry_sends() = 0;
  // Ends the operation with the cause unless it has ended; if it has not started, it never will.
  // Drops its frames, early or late.
  virtual void cancel(const OpId& id, const Status& cause) = 0;
  // Asks operations that have ended whether they are settled. Whether some are not: call it again
  // soon, since a rank may hold one back by what it writes to its memory.
  virtual bool settle() = 0;
  // Ends every operation of the epoch with the cause, and drops its early frames. Asks those that
  // have ended whether they are settled.
  virtual void abort(uint32_t epoch, const Status& cause) = 0;
  // What the operation waits for, for messages: a text ("slice 3: chunk 1 from rank 2", where a
  // host is named by its lowest rank) and the rank, -1 if none.
  struct Blocker {
    std::string what;
    int rank = -1;
  };
  virtual Blocker blocker(const OpId& id) const = 0;
  // Bytes that its own folds and copies have read of ranks' and other hosts' values.
  virtual uint64_t folded_bytes() const = 0;
};

std::unique_ptr<Engine> make_engine(Device& device, const EngineLimits& limits, Engine::Post post);

}  // namespace tutti
