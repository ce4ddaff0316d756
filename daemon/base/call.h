// One rank's call of a collective, as the worker handles it: what the rank asked for, its memory,
// and how to answer.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "daemon/base/signature.h"

namespace tutti {

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
  std::function<uint64_t()> filled = nullptr;  // Bytes written to the window so far.
  bool ranks_only = false;  // Tensors that the worker cannot reach: only the ranks can fold them.
};

}  // namespace tutti
