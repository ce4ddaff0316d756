// This rank's memory on GPUs: what the worker was offered of it, what is staged, and the operations
// that use it. stream_words.h orders them with the rank's streams. Safe from any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "client/gpu/memory_offers.h"
#include "client/gpu/staging.h"
#include "client/gpu/stream_failure.h"
#include "client/gpu/stream_words.h"
#include "client/rank/connection.h"
#include "client/rank/task_thread.h"
#include "daemon/cuda/cuda.h"
#include "proto/board.h"

namespace tutti::client {

// An operation on device memory that was submitted.
struct DeviceOperation {
  std::function<const Status*()> poll;  // Its outcome; null: it has none yet.
  std::function<void()> release;        // Copies its result out. Called once it has an outcome.
  Words words;
  std::shared_ptr<StreamFailure> failure;  // Null: somebody waits for the operation.
  std::shared_ptr<StagedSides> staged;     // Null: its tensors are not.
};

class DeviceMemory final : public Attachment {
 public:
  // For this rank, whose connection keeps it and is kept by what this returns.
  static std::shared_ptr<DeviceMemory> attach(const std::shared_ptr<Connection>& connection);
  explicit DeviceMemory(Connection& connection);
  ~DeviceMemory() override;

  // Whether this process has loaded the driver: otherwise it has no memory on GPUs.
  bool has_driver() { return watch_.find() != nullptr; }
  // Whether a GPU holds the memory, and programs may not read it.
  bool is_device(const void* memory);
  // How a request names the memory, which is offered to the worker where it has not been. For an
  // operation that has words: the worker keeps the memory until that ends. `found.memory` 0: the
  // driver does not export it, or the worker cannot map it; it must be staged.
  // INVALID_ARGUMENT: the memory is smaller. DEADLINE_EXCEEDED: the worker has not taken it by
  // `limit`; it may later.
  Status find(const char* side, const void* memory, uint64_t bytes, TimePoint limit,
              DeviceSide& found);
  // Stages tensors of an operation on this stream, or the default stream of the GPU that holds
  // `memory`. Waits for the worker, and for memory that others use, until `limit`.
  // RESOURCE_EXHAUSTED: there is none, at once where no wait would help; otherwise the driver's
  // reason.
  Status stage(cuda::Stream stream, const void* memory, const StagedSides::Side& in,
               const StagedSides::Side& out, TimePoint limit, DeviceRequest& sides,
               std::shared_ptr<StagedSides>& staged);
  // The same for a list, which must not be empty.
  Status stage(cuda::Stream stream, const void* memory, std::span<const TensorSides> tensors,
               TimePoint limit, std::span<DeviceSide> places, std::shared_ptr<StagedSides>& staged);

  // Whether what the stream is given goes into a graph, for later: an operation cannot.
  bool is_captured(cuda::Stream stream);
  // Begins an operation. Waits until `limit` while too many are under way, then RESOURCE_EXHAUSTED,
  // or for the worker to take the memory for words, then DEADLINE_EXCEEDED.
  Status take_words(cuda::Stream stream, const void* memory, TimePoint limit, Words& words);
  // What orders operations with streams.
  StreamWords& words() { return words_; }
  // Sees to the end of the operation: releases the stream if it fails, also for ranks gone, and
  // uses its words again.
  void watch(DeviceOperation operation);
  // The rank leaves, and every operation has an outcome at `limit`. Waits until then for GPUs and
  // streams that touch the rank's memory; if they do for longer, the segment stays mapped. It is
  // unpinned then, which waits for all streams of the program: but a moment of it here, the rest on
  // a thread. Idempotent.
  void close(TimePoint limit) override;

 private:
  // Memory that the worker was offered.
  struct Offered {
    Chunks chunks;
    uint64_t bytes = 0;
    uint64_t number = 0;  // 0: it was refused.
  };

  const cuda::Driver& driver() { return *watch_.find(); }
  Status describe(const void* memory, uint64_t bytes, Chunks& chunks);
  bool is_current(const Offered& offered);
  bool find_known(const void* memory, uint64_t bytes, DeviceSide& found);
  void offer(const Chunks& chunks);
  void forget(uint64_t number);
  void forget_freed();
  void find_freed();
  void start_forgetting();
  void send_forgotten();
  bool run_task(const std::function<void()>& task);
  bool has_ended(const DeviceOperation& operation);
  void release(const DeviceOperation& operation);
  std::shared_ptr<StagingPool> staging();
  bool is_idle();
  bool was_used();
  void release_pinned(TimePoint limit);
  template <class Prepare>
  Status stage_by(cuda::Stream stream, const void* memory, TimePoint limit,
                  std::shared_ptr<StagedSides>& staged, const Prepare& prepare);
  void sweep();
  void run_watch();

  Connection& connection_;
  cuda::DriverWatch watch_;
  MemoryOffers offers_;
  StreamWords words_;
  std::mutex memory_mutex_;                   // Guards what follows.
  std::map<cuda::Pointer, Offered> offered_;  // By the first address.
  std::shared_ptr<StagingPool> staging_;      // Null: nothing was staged yet.
  std::mutex forgotten_mutex_;  // Guards what follows. May be taken while memory_mutex_ is held.
  // Numbers of memory, each with the serial of the first operation that does not name it.
  std::vector<std::pair<uint64_t, uint64_t>> forgotten_;
  bool is_forgetting_ = false;
  TimePoint next_look_;     // For memory that was freed.
  std::mutex watch_mutex_;  // Guards what follows.
  std::condition_variable changed_;
  std::vector<DeviceOperation> watched_;
  int sweeps_ = 0;  // That hold what is watched.
  bool is_watching_ = false;
  bool is_closed_ = false;
  TaskThread tasks_;   // That may wait for a GPU.
  TaskThread thread_;  // Last: both use all of the above.
};

}  // namespace tutti::client
