// Tensors in GPU memory that the worker cannot map pass through pinned memory of the rank's
// segment: the rank's stream copies inputs there before the operation, and results back after it.
// The worker's GPU reads and writes that memory like any other. Any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "client/gpu/memory_offers.h"
#include "client/rank/connection.h"
#include "client/rank/tensor_sides.h"

namespace tutti::client {

// A pinned block of the segment that the worker has. One operation uses it at a time.
struct StagingBlock {
  uint64_t number = 0;  // By which requests name it.
  std::byte* data = nullptr;
  uint64_t bytes = 0;
  std::byte* allocation = nullptr;  // What `data` lies in.
  cuda::Context context = nullptr;  // Of the streams that copy.
  int gpu = 0;                      // That works on it, as this process numbers them.
  cuda::Event last_copy =
      nullptr;             // Once it is done, no stream touches the block. Null: none does.
  bool is_pinned = false;  // In this process.
};

// Asks the worker, pins and unpins on threads of the library, and holds no lock meanwhile: what is
// given back may be what a stream waits for that the driver waits for. Keep in a shared_ptr.
class StagingPool : public std::enable_shared_from_this<StagingPool> {
 public:
  StagingPool(Connection& connection, const cuda::Driver& driver, MemoryOffers& offers)
      : connection_(connection), driver_(driver), offers_(offers) {}
  StagingPool(const StagingPool&) = delete;
  StagingPool& operator=(const StagingPool&) = delete;

  // A block of at least `bytes`, for this context and the GPU that holds `memory`. Waits for the
  // worker until `limit`, then DEADLINE_EXCEEDED. RESOURCE_EXHAUSTED: the worker's
  // gpu_staging_bytes or the segment has no room now, but what is not used is being freed.
  // OUT_OF_RANGE: it is more than gpu_staging_bytes. Otherwise the driver's reason.
  Status take(cuda::Context context, const void* memory, uint64_t bytes, TimePoint limit,
              std::unique_ptr<StagingBlock>& block);
  // `failed`: of an operation that failed, so that the worker's GPU may still write there.
  void give_back(std::unique_ptr<StagingBlock> block, bool failed);
  // How many blocks were given back or freed so far.
  uint64_t changes();
  // Waits until there are more changes than these, or until `limit`.
  void await_change(uint64_t changes, TimePoint limit);
  // Whether there are so many blocks, those included that are being freed, and have been since
  // there were so many changes.
  bool has_only(size_t blocks, uint64_t changes);
  // Whether no operation has blocks, and no stream touches any.
  bool is_idle();
  // The blocks of a pool that is idle, which the caller unpins. The pool makes no others.
  std::vector<std::unique_ptr<StagingBlock>> close();

  const cuda::Driver& driver() const { return driver_; }
  // Whether no stream touches the block any more.
  bool is_idle(const StagingBlock& block) const;

 private:
  using Blocks = std::vector<std::unique_ptr<StagingBlock>>;
  bool take_spare(cuda::Context context, int gpu, uint64_t bytes,
                  std::unique_ptr<StagingBlock>& block);
  Status make(cuda::Context context, const void* memory, uint64_t bytes);
  Status pin(StagingBlock& block);
  bool add(Blocks& blocks, std::unique_ptr<StagingBlock>& block);
  void free_idle(Blocks& blocks);
  void free(std::unique_ptr<StagingBlock> block);
  void unpin(const StagingBlock& block);
  void count_freed();

  Connection& connection_;
  const cuda::Driver& driver_;
  MemoryOffers& offers_;
  std::mutex mutex_;  // Guards what follows.
  std::condition_variable changed_;
  uint64_t changes_ = 0;
  size_t blocks_ = 0;  // All of them, until they are unpinned.
  size_t in_use_ = 0;  // Of operations.
  bool is_closed_ = false;
  Blocks spare_;
  Blocks retired_;
};

// The tensors of one operation that are staged, until it has ended.
class StagedSides {
 public:
  // A tensor of the rank; without bytes where it is not staged.
  struct Side {
    const void* memory = nullptr;
    uint64_t bytes = 0;
  };
  // `stream`: what copies are queued on; null: the default stream of `context`, which is its own
  // otherwise. `limit`: until when blocks are waited for.
  StagedSides(std::shared_ptr<StagingPool> pool, cuda::Stream stream, cuda::Context context,
              TimePoint limit)
      : pool_(std::move(pool)), stream_(stream), context_(context), limit_(limit) {}
  StagedSides(const StagedSides&) = delete;
  StagedSides& operator=(const StagedSides&) = delete;
  ~StagedSides();

  // Takes blocks, and tells where in them the tensors are: overlapping ones overlap there, too.
  // Errors as StagingPool::take().
  Status prepare(const Side& in, const Side& out, DeviceRequest& sides);
  // The same for a list of tensors, each of which is one place in a block that all share.
  Status prepare(std::span<const TensorSides> tensors, std::span<DeviceSide> places);
  Status copy_in() { return queue(ins_, false, stream_); }
  Status copy_out() { return queue(outs_, true, stream_); }
  // Copies results out beside what the stream does, and waits until that is done.
  Status copy_out_now();
  // How many it has.
  size_t blocks() const { return blocks_.size(); }
  // Whether no stream touches the staged tensors any more.
  bool is_idle() const;
  // Where the first of the staged inputs, or outputs, is.
  std::byte* input() const { return ins_.front().block->data + ins_.front().offset; }
  std::byte* output() const { return outs_.front().block->data + outs_.front().offset; }
  // The operation failed.
  void fail() { failed_ = true; }

 private:
  struct Part {
    Side side;
    StagingBlock* block = nullptr;
    uint64_t offset = 0;
  };
  Status take_block(const void* first, const void* end, StagingBlock*& block);
  Status queue(const std::vector<Part>& parts, bool outwards, cuda::Stream stream);
  Status queue(const Part& part, bool outwards, cuda::Stream stream);

  const std::shared_ptr<StagingPool> pool_;
  const cuda::Stream stream_;
  const cuda::Context context_;
  const TimePoint limit_;
  std::vector<std::unique_ptr<StagingBlock>> blocks_;
  std::vector<Part> ins_;
  std::vector<Part> outs_;
  std::atomic<bool> failed_ = false;
};

}  // namespace tutti::client
