#include "client/device_memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "client/op_queue.h"

namespace tutti::client {
namespace {

constexpr uint64_t kWordsBytes = 64 << 10;
constexpr uint64_t kPairBytes = 64;  // A cache line, so that no two streams share one.
constexpr Millis kWatchPause{5};

cuda::Pointer address_of(const void* memory) { return reinterpret_cast<cuda::Pointer>(memory); }

std::string driver_library() {
  const char* given = std::getenv("TUTTI_CUDA_DRIVER");
  return given != nullptr ? given : cuda::kDriverLibrary;
}

}  // namespace

DeviceMemory::DeviceMemory(Connection& connection)
    : connection_(connection), watch_(driver_library()), thread_("tutti-stream") {}

// Memory that streams may still write to stays pinned.
DeviceMemory::~DeviceMemory() {
  if (words_offset_ != 0 && connection_.is_own_process())
    driver().mem_host_unregister(connection_.at(words_offset_));
}

bool DeviceMemory::is_device(const void* memory) {
  const cuda::Driver* driver = watch_.find();
  if (driver == nullptr || memory == nullptr) return false;
  unsigned type = 0;
  const cuda::Error error =
      driver->pointer_get_attribute(&type, cuda::kPointerMemoryType, address_of(memory));
  if (error != cuda::kSuccess || type != cuda::kMemoryTypeDevice) return false;
  unsigned managed = 0;
  driver->pointer_get_attribute(&managed, cuda::kPointerIsManaged, address_of(memory));
  return managed == 0;
}

// ---- Memory ----

// The allocations that the tensor lies in, from the first to the last.
Status DeviceMemory::describe(const void* memory, uint64_t bytes, Chunks& chunks) {
  const cuda::Pointer end = address_of(memory) + std::max<uint64_t>(bytes, 1);
  for (cuda::Pointer at = address_of(memory); at < end;) {
    cuda::Pointer base = 0;
    size_t size = 0;
    uint64_t id = 0;
    cuda::Error error = driver().mem_get_address_range(&base, &size, at);
    if (error == cuda::kSuccess)
      error = driver().pointer_get_attribute(&id, cuda::kPointerBufferId, at);
    if (error != cuda::kSuccess)
      return invalid_argument("has " + std::to_string(bytes) +
                              " bytes, but its memory ends after " +
                              std::to_string(at - address_of(memory)) +
                              "; pass a smaller count, or memory that was not freed");
    chunks.bases.push_back(base);
    chunks.sizes.push_back(size);
    chunks.buffer_ids.push_back(id);
    at = base + size;
  }
  return {};
}

bool DeviceMemory::is_current(const Offered& offered) {
  for (size_t i = 0; i < offered.bases.size(); ++i) {
    uint64_t id = 0;
    const cuda::Error error =
        driver().pointer_get_attribute(&id, cuda::kPointerBufferId, offered.bases[i]);
    if (error != cuda::kSuccess || id != offered.buffer_ids[i]) return false;
  }
  return true;
}

Status DeviceMemory::find(const char* side, const void* memory, uint64_t bytes, DeviceSide& found) {
  const std::lock_guard lock(memory_mutex_);
  const cuda::Pointer at = address_of(memory);
  auto after = offered_.upper_bound(at);
  while (after != offered_.begin()) {
    const auto known = std::prev(after);
    const bool holds_all = at + bytes <= known->first + known->second.bytes;
    if (holds_all && is_current(known->second)) {
      found = {known->second.number, at - known->first};
      return {};
    }
    if (at >= known->first + known->second.bytes) break;
    forget(known->second.number);  // Freed since, or a part of what follows now.
    after = offered_.erase(known);
  }
  Chunks chunks;
  if (Status s = describe(memory, bytes, chunks); !s.ok())
    return Status(s.code(), std::string(side) + " " + s.message());
  Offered offered;
  if (Status s = offer_memory(memory, chunks, offered); !s.ok())
    return Status(s.code(),
                  std::string(side) + " cannot be shared with the worker: " + s.message());
  found = {offered.number, at - chunks.bases.front()};
  offered_[chunks.bases.front()] = std::move(offered);
  return {};
}

Status DeviceMemory::name_gpu(const void* memory, MemoryOffer& offer) {
  int ordinal = 0;
  cuda::DeviceId device = 0;
  cuda::Uuid uuid{};
  cuda::Error error = cuda::kSuccess;
  if (memory != nullptr)
    error =
        driver().pointer_get_attribute(&ordinal, cuda::kPointerDeviceOrdinal, address_of(memory));
  if (error == cuda::kSuccess) error = driver().device_get(&device, ordinal);
  if (error == cuda::kSuccess) error = driver().device_get_uuid(&uuid, device);
  std::memcpy(offer.gpu, uuid.bytes, sizeof(offer.gpu));
  return cuda::status_of(driver(), error, "the memory's GPU has no name");
}

// An IPC handle covers one allocation; memory of the virtual memory functions has none.
Status DeviceMemory::offer_memory(const void* memory, const Chunks& chunks, Offered& offered) {
  MemoryOffer offer{};
  offered.number = offer.number = next_number_++;
  for (const uint64_t size : chunks.sizes) offer.bytes += size;
  offered.bytes = offer.bytes;
  offered.bases.assign(chunks.bases.begin(), chunks.bases.end());
  offered.buffer_ids = chunks.buffer_ids;
  if (Status s = name_gpu(memory, offer); !s.ok()) return s;
  const cuda::Current current(driver(), context_of(nullptr, memory));
  cuda::IpcHandle handle{};
  const bool has_ipc = chunks.bases.size() == 1 &&
                       driver().ipc_get_mem_handle(&handle, chunks.bases[0]) == cuda::kSuccess;
  if (!has_ipc) return offer_chunks(chunks, offer);
  offer.kind = static_cast<uint32_t>(OfferKind::ipc);
  std::memcpy(offer.ipc, handle.bytes, sizeof(offer.ipc));
  return send(offer, {}, {});
}

Status DeviceMemory::offer_chunks(const Chunks& chunks, MemoryOffer& offer) {
  if (chunks.bases.size() > kOfferedChunksMax)
    return resource_exhausted("it has more than " + std::to_string(kOfferedChunksMax) + " chunks");
  offer.kind = static_cast<uint32_t>(OfferKind::chunks);
  offer.chunks = static_cast<uint32_t>(chunks.bases.size());
  std::vector<Fd> owned;
  std::vector<int> descriptors;
  for (const cuda::Pointer base : chunks.bases) {
    cuda::Allocation allocation = 0;
    int fd = -1;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver's addresses are numbers.
    void* const at = reinterpret_cast<void*>(base);
    cuda::Error error = driver().mem_retain_allocation_handle(&allocation, at);
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

Status DeviceMemory::send(const MemoryOffer& offer, std::span<const uint64_t> chunk_bytes,
                          std::span<const int> descriptors) {
  std::byte* record = connection_.allocate(sizeof(offer) + chunk_bytes.size_bytes());
  if (record == nullptr) return resource_exhausted("the segment is full");
  std::memcpy(record, &offer, sizeof(offer));
  if (!chunk_bytes.empty())
    std::memcpy(record + sizeof(offer), chunk_bytes.data(), chunk_bytes.size_bytes());
  Status answered = connection_.offer(connection_.offset_of(record), descriptors);
  connection_.free(record);
  return answered;
}

// Operations that began before may still name the memory.
void DeviceMemory::forget(uint64_t number) {
  const std::lock_guard lock(words_mutex_);
  forgotten_.emplace_back(number, next_serial_);
}

// Best effort: the worker keeps memory that it is not told of until the rank ends.
void DeviceMemory::send_forgotten() {
  const std::lock_guard memory_lock(memory_mutex_);
  uint64_t oldest = 0;
  {
    const std::lock_guard lock(words_mutex_);
    oldest = under_way_.empty() ? next_serial_ : *under_way_.begin();
  }
  std::erase_if(forgotten_, [&](const auto& entry) {
    if (entry.second > oldest) return false;
    MemoryOffer offer{};
    offer.kind = static_cast<uint32_t>(OfferKind::forget);
    offer.number = entry.first;
    static_cast<void>(send(offer, {}, {}));
    return true;
  });
}

// ---- Words ----

// Pins memory for words in this process and in the worker.
Status DeviceMemory::prepare_words(const void* memory) {
  constexpr uint64_t kPage = 4096;
  std::byte* block = connection_.allocate(kWordsBytes + kPage);
  if (block == nullptr) return resource_exhausted("the segment is full");
  const uint64_t offset = (connection_.offset_of(block) + kPage - 1) / kPage * kPage;
  std::byte* words = connection_.at(offset);
  std::memset(words, 0, kWordsBytes);
  const cuda::Current current(driver(), context_of(nullptr, memory));
  const cuda::Error error =
      driver().mem_host_register(words, kWordsBytes, cuda::kHostPortable | cuda::kHostDeviceMap);
  if (error != cuda::kSuccess)
    return cuda::status_of(driver(), error, "memory for words cannot be pinned");
  MemoryOffer offer{};
  offer.kind = static_cast<uint32_t>(OfferKind::words);
  offer.bytes = kWordsBytes;
  offer.offset = offset;
  Status taken = name_gpu(memory, offer);
  if (taken.ok()) taken = send(offer, {}, {});
  if (!taken.ok()) {
    driver().mem_host_unregister(words);
    connection_.free(block);
    return taken;
  }
  words_offset_ = offset;
  for (uint64_t at = 0; at < kWordsBytes; at += kPairBytes)
    spare_words_.push_back({offset + at, 0, 0});
  return {};
}

Status DeviceMemory::take_words(const void* memory, Words& words) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    {
      const std::lock_guard lock(words_mutex_);
      if (words_offset_ == 0)
        if (Status s = prepare_words(memory); !s.ok()) return s;
      if (spare_words_.empty()) reuse_retired();
      if (!spare_words_.empty()) {
        words = spare_words_.back();
        spare_words_.pop_back();
        words.value += 2;
        words.serial = next_serial_++;
        under_way_.insert(words.serial);
        return {};
      }
    }
    sweep();
  }
  return resource_exhausted("too many operations on streams are under way; wait for some");
}

std::atomic<uint64_t>& DeviceMemory::word(uint64_t offset) {
  return *reinterpret_cast<std::atomic<uint64_t>*>(connection_.at(offset));
}

cuda::Pointer DeviceMemory::word_address(uint64_t offset) {
  cuda::Pointer address = 0;
  driver().mem_host_get_device_pointer(&address, connection_.at(offset), 0);
  return address;
}

// The stream's own context, or that of the memory's GPU. Null: the stream is none.
cuda::Context DeviceMemory::context_of(cuda::Stream stream, const void* memory) {
  cuda::Context context = nullptr;
  if (stream != nullptr) {
    driver().stream_get_ctx(stream, &context);
    return context;
  }
  int ordinal = 0;
  cuda::DeviceId device = 0;
  driver().pointer_get_attribute(&ordinal, cuda::kPointerDeviceOrdinal, address_of(memory));
  driver().device_get(&device, ordinal);
  // The program that allocated there keeps the context.
  if (driver().device_primary_ctx_retain(&context, device) == cuda::kSuccess)
    driver().device_primary_ctx_release(device);
  return context;
}

Status DeviceMemory::store_ready(cuda::Stream stream, const void* memory, const Words& words) {
  const cuda::Current current(driver(), context_of(stream, memory));
  const cuda::Error error =
      current.error() != cuda::kSuccess
          ? current.error()
          : driver().stream_write_value(stream, word_address(words.offset), words.value, 0);
  if (error == cuda::kSuccess) return {};
  return invalid_argument(cuda::status_of(driver(), error, "the stream cannot be used").message() +
                          "; pass a stream of this process that was not destroyed");
}

Status DeviceMemory::wait_for_done(cuda::Stream stream, const void* memory, const Words& words) {
  const cuda::Current current(driver(), context_of(stream, memory));
  const cuda::Error error =
      driver().stream_wait_value(stream, word_address(words.offset + sizeof(uint64_t)), words.value,
                                 cuda::kWaitGreaterOrEqual);
  return cuda::status_of(driver(), error, "the stream cannot wait");
}

// ---- Watching ----

void DeviceMemory::watch(const std::shared_ptr<Connection>& self, DeviceOperation operation) {
  const std::lock_guard lock(watch_mutex_);
  watched_.push_back(std::move(operation));
  if (std::exchange(is_watching_, true)) return;
  if (!thread_.add([self] { self->device_memory().run_watch(); }).ok()) is_watching_ = false;
}

// Until no operation is under way.
void DeviceMemory::run_watch() {
  for (;;) {
    sweep();
    std::unique_lock lock(watch_mutex_);
    if (watched_.empty() && sweeps_ == 0) {
      is_watching_ = false;
      return;
    }
    changed_.wait_for(lock, kWatchPause);
  }
}

// Sees to operations that have ended, and forgets them.
void DeviceMemory::sweep() {
  std::vector<DeviceOperation> all;
  {
    const std::lock_guard lock(watch_mutex_);
    all.swap(watched_);
    ++sweeps_;
  }
  const size_t ended =
      std::erase_if(all, [this](const DeviceOperation& operation) { return has_ended(operation); });
  if (ended != 0) send_forgotten();
  const std::lock_guard lock(watch_mutex_);
  --sweeps_;
  watched_.insert(watched_.end(), std::make_move_iterator(all.begin()),
                  std::make_move_iterator(all.end()));
}

bool DeviceMemory::has_ended(const DeviceOperation& operation) {
  if (!operation.queue->poll(*operation.op)) return false;
  operation.queue->release(*operation.op);
  const Status& outcome = operation.op->outcome;
  const Words& words = operation.words;
  if (!outcome.ok()) word(words.offset + sizeof(uint64_t)).store(words.value);
  {
    const std::lock_guard lock(words_mutex_);
    under_way_.erase(words.serial);
    (outcome.ok() ? spare_words_ : retired_words_).push_back(words);
  }
  if (outcome.ok() || operation.failure == nullptr) return true;
  const std::lock_guard lock(operation.failure->mutex);
  if (operation.failure->first.ok()) operation.failure->first = outcome;
  return true;
}

// A stream that has stored its word no longer touches it; what the worker stored differs.
void DeviceMemory::reuse_retired() {
  std::erase_if(retired_words_, [this](const Words& words) {
    if (word(words.offset).load(std::memory_order_acquire) != words.value) return false;
    spare_words_.push_back(words);
    return true;
  });
}

void DeviceMemory::give_back(const Words& words) {
  const std::lock_guard lock(words_mutex_);
  under_way_.erase(words.serial);
  spare_words_.push_back(words);
}

}  // namespace tutti::client
