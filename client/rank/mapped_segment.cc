#include "client/rank/mapped_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <functional>

namespace tutti::client {
namespace {

std::string address_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  return "; this process is limited to " + std::to_string(limit.rlim_cur) +
         " bytes of address space (ulimit -v): raise that";
}

}  // namespace

MappedSegment::~MappedSegment() {
  if (base_ != nullptr && !is_kept_) munmap(base_, bytes_);
}

Status MappedSegment::map(Fd memory) {
  struct stat info {};
  if (fstat(memory.get(), &info) != 0 || static_cast<uint64_t>(info.st_size) <= kArenaOffset)
    return internal_error("the worker's segment has no size");
  const auto bytes = static_cast<uint64_t>(info.st_size);
  void* base =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memory.get(), 0);
  if (base == MAP_FAILED)
    return resource_exhausted("cannot map a segment of " + std::to_string(bytes) +
                              " bytes: " + std::strerror(errno) + address_limit() +
                              "; lower the setting segment_bytes of tuttid");
  base_ = static_cast<std::byte*>(base);
  bytes_ = bytes;
  // Uses huge pages if the administrator allows them for shared memory (shmem_enabled = advise).
  static_cast<void>(madvise(base_, bytes_, MADV_HUGEPAGE));
  memory_ = std::move(memory);
  const SegmentHeader& h = header();
  if (h.magic == kSegmentMagic && h.version == kProtocolVersion && h.bytes == bytes) return {};
  return failed_precondition(
      "the worker's segment is of another version; install the same version of both");
}

bool MappedSegment::contains(const void* memory, uint64_t bytes) const {
  const std::less<const std::byte*> before;
  const auto* at = static_cast<const std::byte*>(memory);
  if (before(at, base_ + kArenaOffset) || !before(at, base_ + bytes_)) return false;
  return bytes <= bytes_ - offset_of(memory);
}

uint64_t MappedSegment::offset_of(const void* memory) const {
  return static_cast<uint64_t>(static_cast<const std::byte*>(memory) - base_);
}

void MappedSegment::populate(uint64_t offset, uint64_t bytes) const {
  constexpr uint64_t kPage = 4096;
  const uint64_t first = offset / kPage * kPage;
  // If this fails, pages appear when touched, which is only slower.
  static_cast<void>(madvise(base_ + first, offset + bytes - first, MADV_POPULATE_WRITE));
}

void MappedSegment::discard(uint64_t offset, uint64_t bytes) const {
  // If this fails, the pages stay in use, which is harmless.
  static_cast<void>(fallocate(memory_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                              static_cast<off_t>(offset), static_cast<off_t>(bytes)));
}

}  // namespace tutti::client
