// Tells the process that made an object from its forked children, without a system call where the
// kernel has MADV_WIPEONFORK.
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace tutti::client {

class ForkGuard {
 public:
  ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;
  ~ForkGuard();

  // Whether this is the process in which the constructor ran.
  bool is_own_process() const { return mark_ != nullptr ? *mark_ != std::byte{0} : has_same_pid(); }

 private:
  bool has_same_pid() const;

  const pid_t owner_;
  std::byte* mark_ = nullptr;  // In a page that reads as 0 in a forked child; nullptr: unsupported.
};

}  // namespace tutti::client
