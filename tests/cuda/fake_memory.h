// Device memory of the fake driver: memfds, mapped twice, the second time at a fixed distance. The
// address that programs see cannot be read or written, so that code which takes device memory for
// host memory crashes as with a GPU; the driver works through the other mapping.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "daemon/base/fd.h"

namespace tutti::fake {

inline constexpr size_t kGranule = size_t{2} << 20;
inline constexpr size_t kGpuBytes = size_t{4} << 30;  // Memory of one GPU, for one process.

constexpr size_t granules(size_t bytes) { return (bytes + kGranule - 1) / kGranule * kGranule; }

// Memory of a GPU: lives as long as anyone maps or holds it, in any process.
struct Allocation {
  Fd memory;
  size_t bytes = 0;
  int gpu = 0;
  bool has_descriptor = false;  // It can be exported as a descriptor.
};

// Device addresses [at, at + bytes) stand for an allocation.
struct Mapped {
  uint64_t at = 0;
  size_t bytes = 0;
  std::shared_ptr<const Allocation> allocation;
  uint64_t buffer_id = 0;
  bool is_virtual = false;   // Made by the virtual memory functions.
  bool is_imported = false;  // Made of an IPC handle.
  unsigned gpus = ~0u;       // A bit for each GPU whose kernels may use it.
};

// The device addresses of this process. Any thread.
class AddressSpace {
 public:
  AddressSpace();
  ~AddressSpace();
  AddressSpace(const AddressSpace&) = delete;
  AddressSpace& operator=(const AddressSpace&) = delete;

  // 0: there are no such addresses.
  uint64_t reserve(size_t bytes);
  void free(uint64_t at, size_t bytes);
  bool map(Mapped mapped);
  std::optional<Mapped> unmap(uint64_t at);
  std::optional<Mapped> find(uint64_t address);
  size_t mapped_bytes();
  // False: some of it is not mapped.
  bool set_access(uint64_t address, size_t bytes, unsigned gpus);
  // The memory behind [address, address + bytes), for kernels of the GPU; null: some of it has
  // none. An address beyond the device's stands for itself. `gpu` -1: for any.
  std::byte* resolve(uint64_t address, size_t bytes, int gpu = -1);
  bool is_device(uint64_t address) const { return address - base_ < kWindow; }

 private:
  static constexpr size_t kWindow = size_t{1} << 36;

  std::mutex mutex_;
  uint64_t base_ = 0;
  std::map<uint64_t, size_t> free_;    // Addresses that are not reserved.
  std::map<uint64_t, Mapped> mapped_;  // By the first address.
  uint64_t next_buffer_ = 1;
};

// Null: there is no memory for it.
std::shared_ptr<Allocation> make_allocation(size_t bytes, int gpu);

// Host memory that the device may use. Any thread.
class Registered {
 public:
  bool add(const void* at, size_t bytes);  // False: it overlaps what is registered.
  bool remove(const void* at);
  bool contains(uint64_t address, size_t bytes);

 private:
  std::mutex mutex_;
  std::map<uint64_t, size_t> ranges_;
};

}  // namespace tutti::fake
