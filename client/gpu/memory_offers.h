// How memory is made known to the worker: that of GPUs, and pinned parts of the rank's segment. Any
// thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <vector>

#include "client/rank/connection.h"
#include "client/rank/task_thread.h"
#include "daemon/cuda/cuda.h"
#include "proto/board.h"

namespace tutti::client {

// The driver's addresses are numbers.
inline cuda::Pointer address_of(const void* memory) {
  return reinterpret_cast<cuda::Pointer>(memory);
}
inline void* pointer_to(cuda::Pointer address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

// An allocation, or a run of chunks one behind the other.
struct Chunks {
  std::vector<cuda::Pointer> bases;
  std::vector<uint64_t> sizes;
  std::vector<uint64_t> buffer_ids;  // By which memory at a reused address is known.
};

class MemoryOffers {
 public:
  MemoryOffers(Connection& connection, cuda::DriverWatch& watch)
      : connection_(connection), watch_(watch), asks_("tutti-offers"), unpins_("tutti-unpin") {}

  // Asks the worker on a thread of the library, and waits for that, but not longer than `limit`:
  // then DEADLINE_EXCEEDED, and the question goes on. `question` keeps alive what it needs besides
  // the connection.
  Status ask(TimePoint limit, std::function<Status()> question);
  // The same, without a wait. False: there is no thread, or no memory.
  bool ask_later(std::function<void()> question);
  // Unpins memory of the segment on a thread of the library, since the driver may wait for all
  // streams of the context. The segment stays mapped until then, and for good if the driver refuses
  // it. `then`: called when it is done; the connection may be gone.
  void unpin(cuda::Context context, std::byte* data, std::function<void()> then);

  // What follows waits for the worker for as long as the job's timeout lets it.

  // Offers memory of a GPU, by an IPC handle or by descriptors; `number` is its name then. Not OK:
  // the driver does not export it, or the worker does not take it.
  Status offer(const Chunks& chunks, uint64_t& number);
  // Offers [offset, offset + bytes) of the segment, which is pinned. `memory`: of the GPU that uses
  // it; null: that of the current context. OUT_OF_RANGE: more for staging than the rank may have;
  // RESOURCE_EXHAUSTED: more than there is now.
  Status offer_pinned(OfferKind kind, const void* memory, uint64_t offset, uint64_t bytes,
                      uint64_t& number);
  // For staging memory, FAILED_PRECONDITION: the worker still uses it.
  Status forget(uint64_t number);

  // The stream's own context, or that of the memory's GPU, or without memory that of the current
  // one. Null: the stream is none.
  cuda::Context context_of(cuda::Stream stream, const void* memory);
  // Which GPU holds the memory; null: the first.
  int gpu_of(const void* memory);

 private:
  const cuda::Driver& driver() { return *watch_.find(); }
  cuda::Context primary_context(cuda::DeviceId device);
  Status name_gpu(const void* memory, MemoryOffer& offer);
  Status offer_chunks(const Chunks& chunks, MemoryOffer& offer);
  Status send(const MemoryOffer& offer, std::span<const uint64_t> chunk_bytes = {},
              std::span<const int> descriptors = {});

  Connection& connection_;
  cuda::DriverWatch& watch_;
  std::atomic<uint64_t> next_number_ = 1;
  std::mutex mutex_;             // Guards what follows, and is held while an offer is answered.
  std::byte* record_ = nullptr;  // Kept, since memory must be forgotten where the segment is full.
  TaskThread asks_;              // That waits for the worker.
  TaskThread unpins_;            // That waits for streams.
};

}  // namespace tutti::client
