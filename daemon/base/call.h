// One rank's call of a collective, as the worker handles it: what the rank asked for, its memory,
// and how to answer.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "daemon/base/signature.h"
#include "proto/board.h"

namespace tutti {

// Words in a rank's shared memory that order an operation with a stream of the rank: the stream
// stores `ready` when it reaches the operation, and waits until `done` is stored. A word has been
// passed when it is `value` or more, as a signed difference. Values are even: what the processor
// stores in place of a stream is one more, by which the rank knows that its stream may still store
// the word.
struct StreamWords {
  std::atomic<uint64_t>* ready = nullptr;
  std::atomic<uint64_t>* done = nullptr;
  uint64_t value = 0;

  static bool is_passed(const std::atomic<uint64_t>& word, uint64_t value) {
    return static_cast<int64_t>(word.load(std::memory_order_acquire) - value) >= 0;
  }
  bool is_ready() const { return is_passed(*ready, value); }
  // What the processor does in place of a stream. Never takes a word back.
  static void release(std::atomic<uint64_t>& word, uint64_t value) {
    uint64_t seen = word.load();
    while (static_cast<int64_t>(seen - value) < 0 && !word.compare_exchange_weak(seen, value + 1)) {
    }
  }
};

// The tensors of a call that are in device memory.
struct DeviceCall {
  DeviceRequest asked;  // As the rank wrote it; checked as far as its session can.
  uint64_t in_bytes = 0;
  uint64_t out_bytes = 0;
  uint64_t own_block = 0;  // Of SideBytes.
  int gpu = -1;            // Whose memory the tensors are in, as the worker numbers GPUs.
  StreamWords words;
};

struct Call {
  uint32_t group = 0;
  uint64_t number = 0;  // Counts the rank's calls of the group, from 0.
  Signature signature;
  // Of each block, where the blocks have counts of their own; else null.
  std::shared_ptr<const std::vector<uint64_t>> counts;
  // The rank's input and output, of the sizes that signature and counts imply; nullptr: it has no
  // such side, or count is 0.
  std::byte* in = nullptr;
  std::byte* out = nullptr;
  uint32_t timeout_ms = 0;  // 0: the default.
  // Not OK: the call is refused. It keeps its place in the group's order, and fails on all ranks.
  Status invalid;
  std::shared_ptr<const void> memory;       // Keeps `in` and `out` while they are in use.
  std::function<void(const Status&)> done;  // Called once, perhaps while the call is submitted.
  uint32_t waited_ms = 0;                   // The part of `timeout_ms` that has passed already.
  bool blocking = false;                    // The rank waits for it.
  // Not 0: `in` and `out` are windows of this size, through which ordinary memory passes: its byte
  // b lies at b % window_bytes.
  uint64_t window_bytes = 0;
  std::function<uint64_t()> filled = nullptr;       // Bytes written to the window so far.
  std::optional<DeviceCall> device = std::nullopt;  // `in` and `out` are device addresses.
  bool ranks_only = false;  // Tensors that the worker cannot reach: only the ranks can fold them.
};

}  // namespace tutti
