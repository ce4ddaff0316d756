#include "daemon/session/mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <new>
#include <utility>

namespace tutti {
namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kSegmentBytesMax = uint64_t{1} << 46;

void fill_header(std::byte* base, uint64_t bytes) {
  auto* header = new (base) SegmentHeader{};
  header->magic = kSegmentMagic;
  header->version = kProtocolVersion;
  header->bytes = bytes;
  header->arena_offset = kArenaOffset;
  header->arena_bytes = bytes - kArenaOffset;
}

// errno's text, and the limit of this process that may be the cause.
Status limited_status(const std::string& what, __rlimit_resource resource, const char* option) {
  const Status failed = errno_status(what);
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return failed;
  return resource_exhausted(failed.message() + "; the worker is limited to " +
                            std::to_string(limit.rlim_cur) + " bytes (ulimit " + option +
                            "): raise that where tuttid is started, or lower segment_bytes");
}

}  // namespace

Mapping::~Mapping() { munmap(base_, bytes_); }

Result<SealedMemory> make_sealed_memory(const char* name, const std::string& what, uint64_t bytes,
                                        const std::string& detail) {
  Fd memory(memfd_create(name, MFD_ALLOW_SEALING | MFD_CLOEXEC));
  if (!memory.valid()) return errno_status("cannot make " + what);
  if (ftruncate(memory.get(), static_cast<off_t>(bytes)) != 0)
    return limited_status("cannot size " + what + detail, RLIMIT_FSIZE, "-f");
  if (fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return errno_status("cannot seal " + what);
  void* base =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memory.get(), 0);
  if (base == MAP_FAILED) return limited_status("cannot map " + what + detail, RLIMIT_AS, "-v");
  return SealedMemory{std::move(memory),
                      std::make_shared<const Mapping>(static_cast<std::byte*>(base), bytes)};
}

Status check_sealed_memory() {
  return make_sealed_memory("tutti-check", "shared memory", kPageBytes).status();
}

Status check_segment_bytes(uint64_t bytes) {
  if (bytes > kArenaOffset && bytes <= kSegmentBytesMax) return {};
  return invalid_argument("segment_bytes " + std::to_string(bytes) + " must lie between " +
                          std::to_string(kArenaOffset + 1) + " and " +
                          std::to_string(kSegmentBytesMax));
}

Result<SealedMemory> make_segment(uint64_t bytes) {
  if (Status good = check_segment_bytes(bytes); !good.ok()) return good;
  bytes = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  Result<SealedMemory> segment = make_sealed_memory("tutti-segment", "a segment", bytes,
                                                    " of " + std::to_string(bytes) + " bytes");
  if (segment.ok()) fill_header(segment->mapping->base(), bytes);
  return segment;
}

}  // namespace tutti
