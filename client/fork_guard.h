// Whether this is still the process that made an object, or a child that it forked since; where the
// system can, without a call to it.
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

  bool is_here() const { return mark_ != nullptr ? *mark_ != std::byte{0} : same_process(); }

 private:
  bool same_process() const;

  const pid_t owner_;
  std::byte* mark_ = nullptr;  // A page that reads as 0 in a forked child.
};

}  // namespace tutti::client
