#include "daemon/worker/limits.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "daemon/base/threads.h"
#include "proto/board.h"

namespace tutti {

uint64_t slice_bytes(const Settings& settings) {
  return std::bit_floor(
      static_cast<uint64_t>(std::min(settings.slice_bytes, settings.frame_bytes_max / 2)));
}

EngineLimits engine_limits(const Settings& settings) {
  EngineLimits limits;
  limits.slices_in_flight = static_cast<int>(settings.slices_in_flight);
  limits.ops_in_flight = static_cast<int>(settings.ops_in_flight);
  limits.kept_early_bytes_max = std::numeric_limits<size_t>::max();
  return limits;
}

LinkLimits link_limits(const Settings& settings, size_t cores) {
  LinkLimits limits;
  limits.frame_bytes_max = static_cast<size_t>(settings.frame_bytes_max);
  // For small frames links count more than senders do.
  constexpr size_t kCountedMost = 8;
  const size_t slice = whole_slice_bytes(slice_bytes(settings), 1);
  const size_t needed = kCountedMost * static_cast<size_t>(settings.early_bytes) +
                        min_link_capacity(engine_limits(settings), slice);
  limits.queue_bytes_max = std::max(needed, static_cast<size_t>(settings.link_queue_bytes));
  limits.connect_timeout_ms = static_cast<int>(settings.connect_timeout_ms);
  limits.silence_ms = static_cast<int>(settings.silence_ms);
  limits.half_open_max = static_cast<size_t>(settings.half_open_links);
  limits.congestion = settings.tcp_congestion;
  limits.tls = settings.tls == "require";
  const size_t streams = data_streams(settings, cores);
  limits.streams = streams == 1 ? 0 : static_cast<int>(streams);
  return limits;
}

Pipeline pipeline(const Settings& settings) {
  return {slice_bytes(settings), static_cast<int>(settings.slices_in_flight)};
}

EpochOptions epoch_options(const Settings& settings) {
  return {static_cast<uint32_t>(settings.op_timeout_ms),
          slice_bytes(settings),
          static_cast<uint64_t>(settings.early_bytes),
          static_cast<uint64_t>(settings.slices_in_flight),
          static_cast<uint64_t>(settings.ops_in_flight),
          settings.gpu_link};
}

}  // namespace tutti
