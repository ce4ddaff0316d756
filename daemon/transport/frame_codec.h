// The pure rules of frames on a link, the same for every transport: what may go out, how it is
// numbered, and what is believed of what comes in. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "daemon/base/status.h"
#include "proto/frame.h"

namespace tutti {

// Whether a caller may send this: INVALID_ARGUMENT if it is larger than `frame_bytes_max` or is
// neither data nor control.
Status check_outgoing(const FrameHeader& header, size_t payload_bytes, size_t frame_bytes_max);

// One direction of a link, the sending side: fills in what links promise to fill in.
class FrameSealer {
 public:
  FrameHeader seal(FrameHeader header, size_t payload_bytes);

 private:
  uint64_t next_seq_ = 0;
};

// One direction of a link, the receiving side. After the first refusal the link is to be closed.
class FrameChecker {
 public:
  explicit FrameChecker(size_t frame_bytes_max) : frame_bytes_max_(frame_bytes_max) {}
  // `payload_bytes` is what came behind the header. INVALID_ARGUMENT: not a frame of this version,
  // or too large. DATA_LOSS: out of order, or of another length than it says.
  Status check(const FrameHeader& header, size_t payload_bytes);

 private:
  size_t frame_bytes_max_;
  uint64_t next_seq_ = 0;
};

}  // namespace tutti
