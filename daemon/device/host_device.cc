// The host device: memory in sealed memfds, work done at once by the processor's kernel.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "daemon/base/fd.h"
#include "daemon/device/device.h"
#include "daemon/device/reduce_check.h"

namespace tutti {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// Mapped memory. Where it is owned, its memfd is kept for export_memory().
class HostBuffer : public Buffer {
 public:
  HostBuffer(void* data, size_t mapped_bytes, size_t bytes, Fd fd)
      : data_(data), mapped_bytes_(mapped_bytes), bytes_(bytes), fd_(std::move(fd)) {}
  ~HostBuffer() override { munmap(data_, mapped_bytes_); }
  std::byte* data() const override { return static_cast<std::byte*>(data_); }
  size_t bytes() const override { return bytes_; }
  int fd() const { return fd_.get(); }

 private:
  void* data_;
  size_t mapped_bytes_;
  size_t bytes_;
  Fd fd_;
};

class HostStream : public Stream {};
class HostEvent : public Event {};

Status no_memory(size_t bytes) {
  return resource_exhausted("the host has no " + std::to_string(bytes) + " bytes to allocate");
}

bool exceeds_memory(size_t bytes) {
  const auto pages = static_cast<size_t>(sysconf(_SC_PHYS_PAGES));
  return bytes / static_cast<size_t>(sysconf(_SC_PAGESIZE)) >= pages;
}

// A mapping may not be empty.
size_t mapped_bytes_of(size_t bytes) { return bytes == 0 ? 1 : bytes; }

// `flags`: MAP_POPULATE for owned memory, as the first touch of a memfd's page is ten times slower
// than any later one.
Result<std::unique_ptr<Buffer>> map(Fd owned, int fd, size_t bytes, int flags) {
  const size_t mapped = mapped_bytes_of(bytes);
  void* data = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED | flags, fd, 0);
  if (data == MAP_FAILED) return no_memory(bytes);
  return std::unique_ptr<Buffer>(
      std::make_unique<HostBuffer>(data, mapped, bytes, std::move(owned)));
}

class HostDevice : public Device {
 public:
  std::string name() const override { return "host"; }

  // A memfd whose size is sealed, so that importers can rely on it.
  Result<std::unique_ptr<Buffer>> allocate(size_t bytes) override {
    if (exceeds_memory(bytes)) return no_memory(bytes);
    Fd fd(memfd_create("tutti", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd.valid()) return errno_status("cannot create memory");
    if (ftruncate(fd.get(), static_cast<off_t>(mapped_bytes_of(bytes))) != 0)
      return no_memory(bytes);
    if (fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return errno_status("cannot seal memory");
    const int raw = fd.get();
    return map(std::move(fd), raw, bytes, MAP_POPULATE);
  }

  Result<MemoryHandle> export_memory(const Buffer& buffer) override {
    const auto* ours = dynamic_cast<const HostBuffer*>(&buffer);
    if (ours == nullptr || ours->fd() < 0)
      return failed_precondition("only memory that the host device allocated can be exported");
    return MemoryHandle{.fd = ours->fd(), .bytes = buffer.bytes()};
  }

  // Refuses memory that its owner could shrink while it is mapped.
  Result<std::unique_ptr<Buffer>> import_memory(const MemoryHandle& handle) override {
    struct stat about = {};
    if (fstat(handle.fd, &about) != 0) return errno_status("cannot import memory");
    const int seals = fcntl(handle.fd, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
      return invalid_argument("imported memory must be a memfd sealed against shrinking");
    if (handle.bytes > static_cast<size_t>(about.st_size))
      return invalid_argument("imported memory has " + std::to_string(about.st_size) +
                              " bytes, not " + std::to_string(handle.bytes));
    return map(Fd(), handle.fd, handle.bytes, MAP_NORESERVE);
  }

  Result<std::unique_ptr<Stream>> make_stream() override {
    return std::unique_ptr<Stream>(std::make_unique<HostStream>());
  }
  Result<std::unique_ptr<Event>> record(Stream&) override {
    return std::unique_ptr<Event>(std::make_unique<HostEvent>());
  }
  Status wait(Stream&, const Event&) override { return {}; }
  Status wait(Stream&) override { return {}; }

  Status copy(Stream&, void* to, const void* from, size_t bytes) override {
    copy_bytes(to, from, bytes);
    return {};
  }

  Status reduce(Stream&, std::span<const Target> targets, std::span<const Operand> sources,
                const Reduction& how) override {
    Status status = check_reduce(targets, sources, how);
    if (!status.ok() || how.count == 0) return status;
    const FoldJob job{.targets = targets.data(),
                      .target_count = targets.size(),
                      .sources = sources.data(),
                      .source_count = sources.size(),
                      .count = how.count,
                      .op = how.op,
                      .divisor = how.divisor,
                      .past_cache = how.past_cache,
                      .factors = how.factors.data()};
    if (how.factors.empty())
      kernel_(job);
    else
      fold_scaled(kernel_, job);
    return status;
  }

  // Not every system reports it.
  size_t cache_bytes() const override {
    const long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return bytes > 0 ? static_cast<size_t>(bytes) : SIZE_MAX;
  }

 private:
  const Kernel kernel_ = choose_kernel();
};

}  // namespace

std::unique_ptr<Device> make_host_device() { return std::make_unique<HostDevice>(); }

}  // namespace tutti
