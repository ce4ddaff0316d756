// How memory is made known to the worker: that of GPUs, and pinned parts of the rank's segment. Any
// thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "client/connection.h"
#include "daemon/cuda/cuda.h"
#include "proto/board.h"

namespace tutti::client {

// An allocation, or a run of chunks one behind the other.
struct Chunks {
  std::vector<cuda::Pointer> bases;
  std::vector<uint64_t> sizes;
  std::vector<uint64_t> buffer_ids;  // By which memory at a reused address is known.
};

class MemoryOffers {
 public:
  MemoryOffers(Connection& connection, cuda::DriverWatch& watch)
      : connection_(connection), watch_(watch) {}

  // Offers memory of a GPU, by an IPC handle or by descriptors; `number` is its name then. Not OK:
  // the driver does not export it, or the worker does not take it.
  Status offer(const Chunks& chunks, uint64_t& number);
  // Offers [offset, offset + bytes) of the segment, which is pinned. `memory`: of the GPU that uses
  // it; null: that of the current context.
  Status offer_pinned(OfferKind kind, const void* memory, uint64_t offset, uint64_t bytes,
                      uint64_t& number);
  // Of staging memory, FAILED_PRECONDITION: the worker still uses it.
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
};

}  // namespace tutti::client
