// The library's handles as a bench holds them.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>

#include "client/tutti.h"
#include "daemon/base/status.h"

namespace tutti {

inline Status status_of(tutti_code code) {
  if (code == TUTTI_OK) return {};
  const tutti_error* error = tutti_last_error();
  return Status(code_of(code), error->message, {.rank = error->rank, .host = error->host});
}

struct LeaveGroup {
  void operator()(tutti_group* group) const { tutti_group_free(group); }
};
using Group = std::unique_ptr<tutti_group, LeaveGroup>;

// A tensor in the daemon's shared memory, or an ordinary one.
class Buffer {
 public:
  Buffer(tutti_group* group, size_t bytes, bool shared)
      : group_(shared ? group : nullptr), bytes_(bytes) {
    constexpr size_t kAlignment = 64;
    const size_t rounded = (bytes / kAlignment + 1) * kAlignment;
    memory_ = shared ? tutti_alloc(group, rounded) : std::aligned_alloc(kAlignment, rounded);
  }
  ~Buffer() {
    if (group_ != nullptr) {
      tutti_free(group_, memory_);
    } else {
      std::free(memory_);
    }
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  bool valid() const { return memory_ != nullptr; }
  void* data() const { return memory_; }
  std::span<std::byte> bytes() const { return {static_cast<std::byte*>(memory_), bytes_}; }

 private:
  tutti_group* group_;
  size_t bytes_;
  void* memory_ = nullptr;
};

}  // namespace tutti
