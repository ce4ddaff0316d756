// One rank's call of a collective, as the worker handles it: what the rank asked for, and its
// memory.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "daemon/base/signature.h"
#include "daemon/base/staged_rows.h"
#include "proto/board.h"

namespace tutti {

// Words in a rank's shared memory that order an operation with a stream of the rank, as
// DeviceRequest says. What the processor stores in place of a stream is one more than `value`, by
// which the rank knows that its stream may still store the word.
struct StreamWords {
  std::atomic<uint64_t>* ready = nullptr;
  std::atomic<uint64_t>* done = nullptr;
  std::atomic<uint64_t>* passed = nullptr;
  uint64_t value = 0;

  static bool is_passed(const std::atomic<uint64_t>& word, uint64_t value) {
    return static_cast<int64_t>(word.load(std::memory_order_acquire) - value) >= 0;
  }
  bool is_ready() const { return is_passed(*ready, value); }
  // What the processor does in place of a stream. Never takes a word back.
  static void release(std::atomic<uint64_t>& word, uint64_t value) {
    advance(word, value, value + 1);
  }
  // The worker has the request.
  void take() const { advance(*passed, value - 1, value - 1); }
  // No GPU touches the operation's memory any more: the rank's stream and its program may go on.
  void pass() const {
    release(*done, value);
    advance(*passed, value, value);
  }

 private:
  static void advance(std::atomic<uint64_t>& word, uint64_t below, uint64_t to) {
    uint64_t seen = word.load();
    while (static_cast<int64_t>(seen - below) < 0 && !word.compare_exchange_weak(seen, to)) {
    }
  }
};

// One tensor of a list in device memory, `begin` bytes behind the start of their concatenation.
struct ListedSides {
  uint64_t begin = 0;
  uint64_t bytes = 0;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
};

// The tensors of a call that are in device memory.
struct DeviceCall {
  DeviceRequest asked;  // As the rank wrote it; checked as far as its board can.
  uint64_t in_bytes = 0;
  uint64_t out_bytes = 0;
  uint64_t own_block = 0;  // Of SideBytes.
  int gpu = -1;            // Whose memory the tensors are in, as the worker numbers GPUs.
  StreamWords words;
  // For a list: its records, as the rank wrote them; and the tensors, in order and without a gap.
  std::vector<ListedDeviceTensor> listed;
  std::shared_ptr<const std::vector<ListedSides>> tensors;  // Null: no list.
};

struct Call {
  uint32_t group = 0;
  uint64_t number = 0;  // Counts the rank's calls of the group, from 0.
  Signature signature;
  // For each block, where the blocks have counts of their own; else null.
  std::shared_ptr<const std::vector<uint64_t>> counts;
  // The rank's input and output, of the sizes that signature and counts imply; nullptr: it has no
  // such side, or count is 0.
  std::byte* in = nullptr;
  std::byte* out = nullptr;
  uint32_t timeout_ms = 0;  // 0: the default.
  // Not OK: the call is refused. It keeps its place in the group's order, and fails on all ranks.
  Status invalid;
  // Keeps `in` and `out`: held by all that use them, and by nobody when the rank may have them
  // back.
  std::shared_ptr<const void> memory;
  // Held until the call has ended: by its count the worker knows of such calls.
  std::shared_ptr<const bool> counted;
  // When the rank called: `timeout_ms` counts from there. Unset: when the call is submitted.
  std::optional<std::chrono::steady_clock::time_point> started = std::nullopt;
  // Not 0: `in` and `out` are windows of this size, through which ordinary memory passes: its byte
  // b lies at b % window_bytes.
  uint64_t window_bytes = 0;
  StagedRows rows;  // Where tensors with blocks pass through them.
  // Blocks of the board, or rows, that were written to the window so far.
  std::function<uint64_t()> filled = nullptr;
  std::optional<DeviceCall> device = std::nullopt;  // `in` and `out` are device addresses.
  bool ranks_only = false;  // Tensors that the worker cannot reach: only the ranks can fold them.
};

}  // namespace tutti
