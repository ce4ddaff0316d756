// How large the segments of a host's ranks may be: the setting segment_bytes, or less where limits
// of the processes (ulimit -v, ulimit -f) leave no room for that.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>

#include "daemon/base/status.h"

namespace tutti {

// Room that one process has; UINT64_MAX: no limit, or it is not known.
struct SegmentRoom {
  std::string whose;                    // "rank 3 (pid 4711)".
  uint64_t address_bytes = UINT64_MAX;  // Of address space that is not taken yet.
  uint64_t file_bytes = UINT64_MAX;     // Of one file.
};

struct SegmentFit {
  uint64_t bytes = 0;
  std::string why;  // Where it is less than wanted: whose limit, and which.
};

// Each process maps the board, the recorder and all `local_ranks` segments, and keeps as much
// address space for itself as the segments take. RESOURCE_EXHAUSTED: none fits that is of use; the
// message names the limit and the remedy.
Result<SegmentFit> fit_segments(uint64_t wanted, size_t local_ranks,
                                std::span<const SegmentRoom> rooms);

// A trainer's. `joins`: of its ranks, which share the room.
SegmentRoom segment_room(pid_t process, const std::string& whose, size_t joins);
// This process's, which also makes the files.
SegmentRoom own_segment_room();

}  // namespace tutti
