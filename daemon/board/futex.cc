#include "daemon/board/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
#include <climits>
#include <ctime>

namespace tutti::board {
namespace {

static_assert(std::endian::native == std::endian::little);

void wait(void* word, uint32_t value, int64_t timeout_us) {
  const timespec limit{.tv_sec = timeout_us / 1'000'000, .tv_nsec = timeout_us % 1'000'000 * 1000};
  syscall(SYS_futex, word, FUTEX_WAIT, value, &limit);
}

void wake(void* word) { syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX); }

}  // namespace

void sleep_on_low_half(std::atomic<uint64_t>& word, uint32_t low, int64_t timeout_us) {
  wait(&word, low, timeout_us);
}
void wake_low_half(std::atomic<uint64_t>& word) { wake(&word); }
void sleep_on(std::atomic<uint32_t>& word, uint32_t value, int64_t timeout_us) {
  wait(&word, value, timeout_us);
}
void wake_all(std::atomic<uint32_t>& word) { wake(&word); }

}  // namespace tutti::board
