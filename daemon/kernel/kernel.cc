#include "daemon/kernel/kernel.h"

#include <cstring>

namespace tutti {
namespace {

constexpr size_t kPieceBytes = 256;  // libc takes vectors for these.

}  // namespace

Kernel choose_kernel() { return usable_kernels().at[0]; }

void copy_bytes(void* to, const void* from, size_t bytes) {
  auto* target = static_cast<std::byte*>(to);
  const auto* source = static_cast<const std::byte*>(from);
  for (; bytes >= kPieceBytes; bytes -= kPieceBytes) {
    std::memcpy(target, source, kPieceBytes);
    target += kPieceBytes;
    source += kPieceBytes;
  }
  if (bytes != 0) std::memcpy(target, source, bytes);
}

}  // namespace tutti
