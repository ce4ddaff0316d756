#include "client/rank/fork_guard.h"

#include <sys/mman.h>
#include <unistd.h>

namespace tutti::client {
namespace {

constexpr size_t kMarkBytes = 4096;  // A page: the kernel wipes no less.

}  // namespace

ForkGuard::ForkGuard() : owner_(getpid()) {
  void* page =
      mmap(nullptr, kMarkBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return;
  if (madvise(page, kMarkBytes, MADV_WIPEONFORK) != 0) {
    munmap(page, kMarkBytes);
    return;
  }
  mark_ = static_cast<std::byte*>(page);
  *mark_ = std::byte{1};
}

ForkGuard::~ForkGuard() {
  if (mark_ != nullptr) munmap(mark_, kMarkBytes);
}

bool ForkGuard::has_same_pid() const { return getpid() == owner_; }

}  // namespace tutti::client
