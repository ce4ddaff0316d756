// Helpers for the worker's reads and writes of single fields of a board.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

#include "daemon/base/loop.h"
#include "daemon/base/status.h"
#include "proto/board.h"
#include "proto/types.h"

namespace tutti {

// Cut where it is too long, and NUL-terminated.
template <size_t N>
void copy_text(char (&target)[N], const std::string& text) {
  const size_t length = std::min(text.size(), N - 1);
  std::memcpy(target, text.data(), length);
  target[length] = '\0';
}

inline void write_failure(BoardFailure& failure, uint64_t number, const Status& status) {
  failure.number = number;
  failure.code = static_cast<int32_t>(status.code());
  failure.culprit_rank = status.culprit_rank();
  copy_text(failure.culprit_host, status.culprit_host());
  copy_text(failure.message, status.message());
}

// CLOCK_MONOTONIC, as BoardEntry::started_ns.
inline int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

// BoardEntry::started_ns as a time; unset where that is no time in the past.
inline std::optional<TimePoint> started_at(int64_t started_ns) {
  if (started_ns <= 0 || started_ns > now_ns()) return std::nullopt;
  return TimePoint(std::chrono::nanoseconds(started_ns));
}

// Clears all bits and calls `use` with the number of each that was set.
template <size_t N, class Use>
void take_bits(std::atomic<uint64_t> (&words)[N], const Use& use) {
  for (size_t word = 0; word < N; ++word) {
    if (words[word].load(std::memory_order_relaxed) == 0) continue;
    for (uint64_t bits = words[word].exchange(0); bits != 0; bits &= bits - 1)
      use(static_cast<uint32_t>(word * 64 + static_cast<size_t>(__builtin_ctzll(bits))));
  }
}

inline std::string name_of_collective(const Request& request) {
  return request.collective < kCollectives
             ? std::string(name_of(static_cast<Collective>(request.collective)))
             : "operation";
}

}  // namespace tutti
