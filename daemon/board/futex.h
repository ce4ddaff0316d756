// Futexes in memory that processes share: on a slot's word, or on a sub-group request's state.
#pragma once

#include <atomic>
#include <cstdint>

namespace tutti::board {

// Sleeps while the low half of the word is `low`, at most `timeout_us`. May return early.
void sleep_on_low_half(std::atomic<uint64_t>& word, uint32_t low, int64_t timeout_us);
void wake_low_half(std::atomic<uint64_t>& word);

void sleep_on(std::atomic<uint32_t>& word, uint32_t value, int64_t timeout_us);
void wake_all(std::atomic<uint32_t>& word);

}  // namespace tutti::board
