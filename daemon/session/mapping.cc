#include "daemon/session/mapping.h"

#include <fcntl.h>
#include <sys/mman.h>

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

}  // namespace

Mapping::~Mapping() { munmap(base_, bytes_); }

Result<SealedMemory> make_sealed_memory(const char* name, const std::string& what, uint64_t bytes,
                                        const std::string& detail) {
  Fd memory(memfd_create(name, MFD_ALLOW_SEALING | MFD_CLOEXEC));
  if (!memory.valid()) return errno_status("cannot make " + what);
  if (ftruncate(memory.get(), static_cast<off_t>(bytes)) != 0)
    return errno_status("cannot size " + what + detail);
  if (fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return errno_status("cannot seal " + what);
  void* base =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memory.get(), 0);
  if (base == MAP_FAILED) return errno_status("cannot map " + what + detail);
  return SealedMemory{std::move(memory),
                      std::make_shared<const Mapping>(static_cast<std::byte*>(base), bytes)};
}

Status check_sealed_memory() {
  return make_sealed_memory("tutti-check", "shared memory", kPageBytes).status();
}

Result<SealedMemory> make_segment(uint64_t bytes) {
  if (bytes <= kArenaOffset || bytes > kSegmentBytesMax)
    return invalid_argument("segment_bytes " + std::to_string(bytes) + " must lie between " +
                            std::to_string(kArenaOffset + 1) + " and " +
                            std::to_string(kSegmentBytesMax));
  bytes = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  Result<SealedMemory> segment = make_sealed_memory("tutti-segment", "a segment", bytes,
                                                    " of " + std::to_string(bytes) + " bytes");
  if (segment.ok()) fill_header(segment->mapping->base(), bytes);
  return segment;
}

}  // namespace tutti
