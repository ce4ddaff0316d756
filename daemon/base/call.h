// One rank's part in one operation, on its way from its session to its group.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "daemon/base/signature.h"

namespace tutti {

struct Call {
  uint32_t group = 0;
  uint64_t number = 0;  // Its place among the rank's calls of the group, from 0.
  Signature signature;
  // Of the sizes that the collective asks for (side_bytes() of daemon/board); nullptr where the
  // rank has no such side or count is 0.
  std::byte* in = nullptr;
  std::byte* out = nullptr;
  uint32_t timeout_ms = 0;  // 0: the default.
  // Not OK: refused, but it takes its place in the group's order so that all ranks learn of it.
  Status invalid;
  std::shared_ptr<const void> memory;       // Keeps `in` and `out` while they are in use.
  std::function<void(const Status&)> done;  // Called once, perhaps from inside Epoch::submit().
  uint32_t waited_ms = 0;                   // Of `timeout_ms`, before it came.
  bool blocking = false;                    // The rank does nothing else until it is done.
  // Not 0: ordinary memory passes through `in` and `out`, byte b of it at b % window_bytes.
  uint64_t window_bytes = 0;
  std::function<uint64_t()> filled = nullptr;  // Bytes that came so far.
  bool ranks_only = false;  // The tensors pass through windows, or are many: only ranks can fold.
};

}  // namespace tutti
