#include "daemon/worker/segment_fit.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "proto/board.h"
#include "proto/recorder.h"

namespace tutti {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kLeastBytes = uint64_t{16} << 20;  // Unless the setting is lower.
constexpr uint64_t kNoLimit = UINT64_MAX;

// UINT64_MAX: none, or it is not known.
uint64_t limit_of(pid_t process, __rlimit_resource resource) {
  rlimit limit{};
  const bool known = process != 0 && prlimit(process, resource, nullptr, &limit) == 0;
  return known && limit.rlim_cur != RLIM_INFINITY ? limit.rlim_cur : kNoLimit;
}

// What it has mapped; 0: not known, as without /proc.
uint64_t mapped_bytes(pid_t process) {
  uint64_t pages = 0;
  std::ifstream("/proc/" + std::to_string(process) + "/statm") >> pages;
  return pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

Status too_little(uint64_t bytes, const std::string& why) {
  return resource_exhausted("there is no room for the ranks' shared memory: segments could have " +
                            std::to_string(bytes) + " bytes at most, by the limit of " + why +
                            "; raise that limit, or run fewer ranks on the host");
}

}  // namespace

Result<SegmentFit> fit_segments(uint64_t wanted, size_t local_ranks,
                                std::span<const SegmentRoom> rooms) {
  SegmentFit fit{.bytes = wanted, .why = ""};
  const auto lower = [&](uint64_t bytes, const std::string& why) {
    if (bytes < fit.bytes) fit = {.bytes = bytes / kPage * kPage, .why = why};
  };
  const uint64_t board = board_bytes(static_cast<uint32_t>(local_ranks));
  const uint64_t recorder = recorder_bytes(static_cast<uint32_t>(local_ranks));
  for (const SegmentRoom& room : rooms) {
    const uint64_t free = room.address_bytes - std::min(room.address_bytes, board + recorder);
    if (room.address_bytes != kNoLimit)
      lower(free / 2 / local_ranks, "address space (ulimit -v) of " + room.whose);
    lower(room.file_bytes < std::max(board, recorder) ? 0 : room.file_bytes,
          "file size (ulimit -f) of " + room.whose);
  }
  if (fit.bytes < std::min(wanted, kLeastBytes)) return too_little(fit.bytes, fit.why);
  return fit;
}

SegmentRoom segment_room(pid_t process, const std::string& whose, size_t joins) {
  SegmentRoom room{.whose = whose};
  const uint64_t most = limit_of(process, RLIMIT_AS);
  if (most == kNoLimit) return room;
  const uint64_t used = mapped_bytes(process);
  room.address_bytes = most > used ? (most - used) / std::max<size_t>(joins, 1) : 0;
  return room;
}

SegmentRoom own_segment_room() {
  SegmentRoom room = segment_room(getpid(), "the worker (pid " + std::to_string(getpid()) + ")", 1);
  room.file_bytes = limit_of(getpid(), RLIMIT_FSIZE);
  return room;
}

}  // namespace tutti
