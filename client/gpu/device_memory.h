// This rank's memory on GPUs, as its worker knows it, and the words that order operations with the
// rank's streams. Safe from any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "client/gpu/memory_offers.h"
#include "client/gpu/staging.h"
#include "client/gpu/stream_failure.h"
#include "client/rank/connection.h"
#include "client/rank/task_thread.h"
#include "daemon/cuda/cuda.h"
#include "proto/board.h"

namespace tutti::client {

struct PendingOp;

// The words of DeviceRequest in the segment, for one operation at a time, and one more: `resumed`,
// where the rank's stream stores the value once it has gone on.
struct Words {
  static constexpr uint64_t kDone = sizeof(uint64_t);
  static constexpr uint64_t kPassed = 2 * sizeof(uint64_t);
  static constexpr uint64_t kResumed = 3 * sizeof(uint64_t);

  uint64_t offset = 0;    // Of `ready`; the others follow.
  uint64_t value = 0;     // See DeviceRequest.
  uint64_t serial = 0;    // Of the operation, among all of this rank on GPUs.
  bool resumes = false;   // The stream waits for `done`.
  bool is_passed = true;  // Not: the worker may still store them.
};

// An operation on device memory that was submitted.
struct DeviceOperation {
  std::shared_ptr<OpQueue> queue;
  std::shared_ptr<PendingOp> op;
  Words words;
  std::shared_ptr<StreamFailure> failure;  // Null: somebody waits for the operation.
  std::shared_ptr<StagedSides> staged;     // Null: its tensors are not.
};

class DeviceMemory {
 public:
  explicit DeviceMemory(Connection& connection);
  ~DeviceMemory();

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
  // Ends an operation that was not submitted, whose stream was not asked to store anything.
  void give_back(const Words& words);
  // Ends an operation that was not submitted, whose stream was asked to store `ready`.
  void retire(const Words& words);
  // Where the worker finds the words.
  static void place(const Words& words, DeviceRequest& request);
  // Has the stream store `ready`, then, apart from that, wait for `done`. INVALID_ARGUMENT: it is
  // no stream of this process. `memory`: on the GPU whose default stream nullptr is.
  Status store_ready(cuda::Stream stream, const void* memory, const Words& words);
  Status wait_for_done(cuda::Stream stream, const void* memory, const Words& words);
  // Has the stream say that it has gone on.
  Status store_resumed(cuda::Stream stream, const void* memory, const Words& words);
  bool has_resumed(const Words& words) { return holds(words, Words::kResumed); }
  // Whether GPUs of the worker may still touch the operation's memory. `has_failed`: as the board
  // says, which was asked before.
  bool is_in_use(const Words& words, bool has_failed);
  bool is_ready(const Words& words) { return holds(words, 0); }
  // Stores `done` in place of the worker: the stream goes on.
  void resume(const Words& words);
  // The same, and ends the operation, which was not submitted.
  void release(const Words& words);
  // Sees to the end of the operation: releases the stream if it fails, also for ranks gone, and
  // uses its words again. `self`: the connection.
  void watch(const std::shared_ptr<Connection>& self, DeviceOperation operation);
  // The rank leaves, and every operation has an outcome at `limit`. Waits until then for GPUs and
  // streams that touch the rank's memory; if they do for longer, the segment stays mapped. It is
  // unpinned then, which waits for all streams of the program: but a moment of it here, the rest on
  // a thread. Idempotent.
  void close(TimePoint limit);

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
  uint64_t oldest_under_way() const;
  void start_forgetting();
  void send_forgotten();
  bool run_task(const std::function<void()>& task);
  bool has_words();
  Status prepare_words(cuda::Context context, const void* memory);
  bool holds(const Words& words, uint64_t which);
  cuda::Pointer word_address(uint64_t offset);
  std::atomic<uint64_t>& word(uint64_t offset);
  bool has_ended(const DeviceOperation& operation);
  void release(const DeviceOperation& operation);
  bool is_free(const Words& words);
  void reuse_retired();
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
  std::mutex memory_mutex_;                   // Guards what follows.
  std::map<cuda::Pointer, Offered> offered_;  // By the first address.
  std::shared_ptr<StagingPool> staging_;      // Null: nothing was staged yet.
  // Guards what follows. May be taken while memory_mutex_ is held.
  std::mutex words_mutex_;
  // Numbers of memory, each with the serial of the first operation that does not name it.
  std::vector<std::pair<uint64_t, uint64_t>> forgotten_;
  bool is_forgetting_ = false;
  TimePoint next_look_;  // For memory that was freed.
  uint64_t next_serial_ = 1;
  std::set<uint64_t> under_way_;  // Serials.
  uint64_t words_offset_ = 0;     // 0: not prepared.
  bool has_released_words_ = false;
  cuda::Context words_context_ = nullptr;
  std::vector<Words> spare_words_;
  // For operations that have ended: their streams may still touch them.
  std::vector<Words> retired_words_;
  std::mutex watch_mutex_;  // Guards what follows. May be taken while words_mutex_ is held.
  std::weak_ptr<Connection> self_;
  std::condition_variable changed_;
  std::vector<DeviceOperation> watched_;
  int sweeps_ = 0;  // That hold what is watched.
  bool is_watching_ = false;
  bool is_closed_ = false;
  TaskThread tasks_;   // That may wait for a GPU.
  TaskThread thread_;  // Last: both use all of the above.
};

}  // namespace tutti::client
