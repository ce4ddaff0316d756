// The rules of frames on a link, the same for every transport: which frames may be sent, how they
// are numbered, and which received headers are valid. Pure; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "daemon/base/status.h"
#include "proto/frame.h"

namespace tutti {

// Returns INVALID_ARGUMENT if the payload is larger than `frame_bytes_max` or the frame is neither
// data nor control.
Status check_outgoing(const FrameHeader& header, size_t payload_bytes, size_t frame_bytes_max);

// The sending side of one direction: fills in the header fields that belong to the link.
class FrameSequencer {
 public:
  FrameHeader complete(FrameHeader header, size_t payload_bytes);

 private:
  uint64_t next_seq_ = 0;
};

// The receiving side of one direction. After the first error the link must be closed.
class FrameChecker {
 public:
  explicit FrameChecker(size_t frame_bytes_max) : frame_bytes_max_(frame_bytes_max) {}
  // `payload_bytes` is the size of the payload that arrived. INVALID_ARGUMENT: not a frame of this
  // version, or too large. DATA_LOSS: out of order, or of another length than the header says.
  Status check(const FrameHeader& header, size_t payload_bytes);

 private:
  size_t frame_bytes_max_;
  uint64_t next_seq_ = 0;
};

}  // namespace tutti
