#include "tests/cuda/fake_memory.h"

#include <sys/mman.h>
#include <unistd.h>

namespace tutti::fake {
namespace {

void* pointer(uint64_t address) { return reinterpret_cast<void*>(address); }

}  // namespace

AddressSpace::AddressSpace() {
  void* window = mmap(nullptr, 2 * kWindow + kGranule, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (window == MAP_FAILED) return;
  base_ = granules(reinterpret_cast<uint64_t>(window));
  free_.emplace(base_, kWindow);
}

AddressSpace::~AddressSpace() {
  if (base_ != 0) munmap(pointer(base_), 2 * kWindow);
}

uint64_t AddressSpace::reserve(size_t bytes) {
  const std::lock_guard lock(mutex_);
  for (const auto& [at, room] : free_) {
    if (room < granules(bytes)) continue;
    const uint64_t found = at;
    const size_t left = room - granules(bytes);
    free_.erase(found);
    if (left != 0) free_.emplace(found + granules(bytes), left);
    return found;
  }
  return 0;
}

// Neighbours are not joined: tests do not run long enough to need it.
void AddressSpace::free(uint64_t at, size_t bytes) {
  const std::lock_guard lock(mutex_);
  free_.emplace(at, granules(bytes));
}

bool AddressSpace::map(Mapped mapped) {
  const std::lock_guard lock(mutex_);
  void* const alias = pointer(mapped.at + kWindow);
  const int fd = mapped.allocation->memory.get();
  if (mmap(alias, mapped.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
      MAP_FAILED)
    return false;
  mapped.buffer_id = next_buffer_++;
  mapped_.emplace(mapped.at, std::move(mapped));
  return true;
}

std::optional<Mapped> AddressSpace::unmap(uint64_t at) {
  const std::lock_guard lock(mutex_);
  const auto found = mapped_.extract(at);
  if (found.empty()) return std::nullopt;
  mmap(pointer(at + kWindow), found.mapped().bytes, PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  return found.mapped();
}

std::optional<Mapped> AddressSpace::find(uint64_t address) {
  const std::lock_guard lock(mutex_);
  auto after = mapped_.upper_bound(address);
  if (after == mapped_.begin()) return std::nullopt;
  const Mapped& mapped = std::prev(after)->second;
  if (address >= mapped.at + mapped.bytes) return std::nullopt;
  return mapped;
}

size_t AddressSpace::mapped_bytes() {
  const std::lock_guard lock(mutex_);
  size_t bytes = 0;
  for (const auto& [at, mapped] : mapped_) bytes += mapped.bytes;
  return bytes;
}

bool AddressSpace::set_access(uint64_t address, size_t bytes, unsigned gpus) {
  const std::lock_guard lock(mutex_);
  for (uint64_t at = address; at < address + bytes;) {
    const auto found = mapped_.find(at);
    if (found == mapped_.end()) return false;
    found->second.gpus = gpus;
    at += found->second.bytes;
  }
  return true;
}

std::byte* AddressSpace::resolve(uint64_t address, size_t bytes, int gpu) {
  if (!is_device(address)) return static_cast<std::byte*>(pointer(address));
  for (uint64_t at = address; at < address + bytes;) {
    const std::optional<Mapped> mapped = find(at);
    if (!mapped || (gpu >= 0 && (mapped->gpus >> gpu & 1) == 0)) return nullptr;
    at = mapped->at + mapped->bytes;
  }
  return static_cast<std::byte*>(pointer(address + kWindow));
}

std::shared_ptr<Allocation> make_allocation(size_t bytes, int gpu) {
  if (bytes > kGpuBytes) return nullptr;
  auto made = std::make_shared<Allocation>();
  made->memory = Fd(memfd_create("fake-gpu", MFD_CLOEXEC));
  made->bytes = bytes;
  made->gpu = gpu;
  if (!made->memory.valid() || ftruncate(made->memory.get(), static_cast<off_t>(bytes)) != 0)
    return nullptr;
  return made;
}

bool Registered::add(const void* at, size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto address = reinterpret_cast<uint64_t>(at);
  const auto after = ranges_.upper_bound(address);
  if (after != ranges_.end() && after->first < address + bytes) return false;
  if (after != ranges_.begin() && std::prev(after)->first + std::prev(after)->second > address)
    return false;
  ranges_.emplace(address, bytes);
  return true;
}

bool Registered::remove(const void* at) {
  const std::lock_guard lock(mutex_);
  return ranges_.erase(reinterpret_cast<uint64_t>(at)) != 0;
}

bool Registered::contains(uint64_t address, size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto after = ranges_.upper_bound(address);
  if (after == ranges_.begin()) return false;
  const auto& [at, room] = *std::prev(after);
  return address + bytes <= at + room;
}

}  // namespace tutti::fake
