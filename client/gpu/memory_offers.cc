#include "client/gpu/memory_offers.h"

#include <condition_variable>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include "daemon/base/fd.h"
#include "daemon/base/no_throw.h"

namespace tutti::client {

// ---- Threads ----

Status MemoryOffers::ask(TimePoint limit, std::function<Status()> question) {
  struct Answer {
    std::mutex mutex;
    std::condition_variable given;
    std::optional<Status> status;
  };
  auto answer = std::make_shared<Answer>();
  const bool is_asked = ask_later([answer, question] {
    Status status = no_throw(question);
    const std::lock_guard lock(answer->mutex);
    answer->status = std::move(status);
    answer->given.notify_one();
  });
  if (!is_asked) return question();
  std::unique_lock lock(answer->mutex);
  if (answer->given.wait_until(lock, limit, [&] { return answer->status.has_value(); }))
    return *answer->status;
  return deadline_exceeded(
      connection_.worker_name() +
          " has not taken the call's memory before the deadline; pass a longer timeout",
      {-1, connection_.own_host()});
}

bool MemoryOffers::ask_later(std::function<void()> question) {
  std::shared_ptr<Connection> self = connection_.weak_from_this().lock();
  if (self == nullptr) return false;
  try {
    return asks_.add([self = std::move(self), question = std::move(question)] { question(); }).ok();
  } catch (const std::exception&) {
    return false;  // Out of memory.
  }
}

void MemoryOffers::unpin(cuda::Context context, std::byte* data, std::function<void()> then) {
  const auto unpin = [driver = &driver(), segment = connection_.own_memory().segment(), context,
                      data, then = std::move(then)] {
    const cuda::Current current(*driver, context);
    if (driver->mem_host_unregister(data) != cuda::kSuccess) return segment->keep();
    then();
  };
  if (!unpins_.add(unpin).ok()) connection_.own_memory().segment()->keep();
}

// ---- Offers ----

cuda::Context MemoryOffers::context_of(cuda::Stream stream, const void* memory) {
  cuda::Context context = nullptr;
  if (stream != nullptr) {
    driver().stream_get_ctx(stream, &context);
    return context;
  }
  cuda::DeviceId device = 0;
  if (memory == nullptr && driver().ctx_get_device(&device) == cuda::kSuccess)
    return primary_context(device);
  // Memory of the virtual memory functions belongs to no context.
  const cuda::Error asked =
      driver().pointer_get_attribute(&context, cuda::kPointerContext, address_of(memory));
  if (asked == cuda::kSuccess && context != nullptr) return context;
  int ordinal = 0;
  driver().pointer_get_attribute(&ordinal, cuda::kPointerDeviceOrdinal, address_of(memory));
  driver().device_get(&device, ordinal);
  return primary_context(device);
}

// The program that works there keeps it.
cuda::Context MemoryOffers::primary_context(cuda::DeviceId device) {
  cuda::Context context = nullptr;
  if (driver().device_primary_ctx_retain(&context, device) == cuda::kSuccess)
    driver().device_primary_ctx_release(device);
  return context;
}

int MemoryOffers::gpu_of(const void* memory) {
  int ordinal = 0;
  if (memory != nullptr)
    driver().pointer_get_attribute(&ordinal, cuda::kPointerDeviceOrdinal, address_of(memory));
  return ordinal;
}

Status MemoryOffers::name_gpu(const void* memory, MemoryOffer& offer) {
  cuda::DeviceId device = 0;
  cuda::Uuid uuid{};
  cuda::Error error = memory == nullptr ? driver().ctx_get_device(&device)
                                        : driver().device_get(&device, gpu_of(memory));
  if (error == cuda::kSuccess) error = driver().device_get_uuid(&uuid, device);
  std::memcpy(offer.gpu, uuid.bytes, sizeof(offer.gpu));
  return cuda::status_of(driver(), error, "the memory's GPU has no name");
}

// An IPC handle covers one allocation; memory of the virtual memory functions has none.
Status MemoryOffers::offer(const Chunks& chunks, uint64_t& number) {
  MemoryOffer offer{};
  offer.number = number = next_number_++;
  for (const uint64_t size : chunks.sizes) offer.bytes += size;
  const void* memory = pointer_to(chunks.bases.front());
  if (Status s = name_gpu(memory, offer); !s.ok()) return s;
  const cuda::Current current(driver(), context_of(nullptr, memory));
  cuda::IpcHandle handle{};
  const bool has_ipc = chunks.bases.size() == 1 &&
                       driver().ipc_get_mem_handle(&handle, chunks.bases[0]) == cuda::kSuccess;
  if (!has_ipc) return offer_chunks(chunks, offer);
  offer.kind = static_cast<uint32_t>(OfferKind::ipc);
  std::memcpy(offer.ipc, handle.bytes, sizeof(offer.ipc));
  return send(offer);
}

Status MemoryOffers::offer_chunks(const Chunks& chunks, MemoryOffer& offer) {
  if (chunks.bases.size() > kOfferedChunksMax)
    return resource_exhausted("it has more than " + std::to_string(kOfferedChunksMax) + " chunks");
  offer.kind = static_cast<uint32_t>(OfferKind::chunks);
  offer.chunks = static_cast<uint32_t>(chunks.bases.size());
  std::vector<Fd> owned;
  std::vector<int> descriptors;
  for (const cuda::Pointer base : chunks.bases) {
    cuda::Allocation allocation = 0;
    int fd = -1;
    cuda::Error error = driver().mem_retain_allocation_handle(&allocation, pointer_to(base));
    if (error == cuda::kSuccess) {
      error = driver().mem_export_to_shareable_handle(&fd, allocation, cuda::kHandleDescriptor, 0);
      driver().mem_release(allocation);
    }
    if (error != cuda::kSuccess)
      return cuda::status_of(driver(), error, "the driver does not export it");
    owned.emplace_back(fd);
    descriptors.push_back(fd);
  }
  return send(offer, chunks.sizes, descriptors);
}

Status MemoryOffers::offer_pinned(OfferKind kind, const void* memory, uint64_t offset,
                                  uint64_t bytes, uint64_t& number) {
  MemoryOffer offer{};
  offer.kind = static_cast<uint32_t>(kind);
  offer.number = number = next_number_++;
  offer.offset = offset;
  offer.bytes = bytes;
  if (Status s = name_gpu(memory, offer); !s.ok()) return s;
  return send(offer);
}

Status MemoryOffers::forget(uint64_t number) {
  MemoryOffer offer{};
  offer.kind = static_cast<uint32_t>(OfferKind::forget);
  offer.number = number;
  return send(offer);
}

Status MemoryOffers::send(const MemoryOffer& offer, std::span<const uint64_t> chunk_bytes,
                          std::span<const int> descriptors) {
  const std::lock_guard lock(mutex_);
  if (record_ == nullptr) record_ = connection_.own_memory().allocate(sizeof(offer));
  std::byte* record =
      chunk_bytes.empty()
          ? record_
          : connection_.own_memory().allocate(sizeof(offer) + chunk_bytes.size_bytes());
  if (record == nullptr) return resource_exhausted("the segment is full");
  std::memcpy(record, &offer, sizeof(offer));
  if (!chunk_bytes.empty())
    std::memcpy(record + sizeof(offer), chunk_bytes.data(), chunk_bytes.size_bytes());
  Status answered = connection_.offer(connection_.own_memory().offset_of(record), descriptors);
  if (record != record_) connection_.own_memory().free(record);
  return answered;
}

}  // namespace tutti::client
