#include "tests/nccl/fake_meeting.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>

#include "daemon/base/fd.h"

namespace tutti::fake {
namespace {

constexpr size_t kHeaderBytes = 4096;
constexpr size_t kBytes = kHeaderBytes + kRanksMax * kPartBytes;

}  // namespace

void look_away() {
  std::mutex mutex;
  std::condition_variable never;
  std::unique_lock lock(mutex);
  never.wait_for(lock, std::chrono::microseconds(50));
}

std::string Meeting::make() {
  std::string path = std::filesystem::temp_directory_path() / "fake-nccl-XXXXXX";
  const Fd file(mkstemp(path.data()));
  const bool made = file.valid() && ftruncate(file.get(), kBytes) == 0;
  return made ? path : "";
}

std::unique_ptr<Meeting> Meeting::open(const std::string& path, int ranks, int rank) {
  const Fd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file.valid() || ranks > kRanksMax || rank < 0 || rank >= ranks) return nullptr;
  void* mapped = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (mapped == MAP_FAILED) return nullptr;
  return std::unique_ptr<Meeting>(new Meeting(path, ranks, rank, static_cast<std::byte*>(mapped)));
}

// Nobody opens it any more: all have, or one was aborted.
Meeting::~Meeting() {
  munmap(memory_, kBytes);
  unlink(path_.c_str());
}

std::byte* Meeting::part(int rank) const {
  return memory_ + kHeaderBytes + static_cast<size_t>(rank) * kPartBytes;
}

bool Meeting::is_complete(uint64_t times) const {
  for (int rank = 0; rank < ranks_; ++rank)
    if (shared().arrived[rank] < times) return false;
  return true;
}

bool Meeting::meet() {
  const uint64_t times = ++shared().arrived[rank_];
  while (!is_complete(times)) {
    if (is_aborted_) return false;
    look_away();
  }
  return !is_aborted_;
}

}  // namespace tutti::fake
