// The header of every frame between two workers, on any transport; the payload follows it, or comes
// by a data stream.
//
// Little-endian, 64 bytes. A data frame carries one host's part of an operation for another: the
// elements of one slice and one chunk. A control frame carries a ControlBatch of group.proto.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti {

inline constexpr uint32_t kFrameMagic = 0x46545554;  // "TUTF"
inline constexpr uint16_t kFrameVersion = 3;

// Links handle `goodbye` and `ping` themselves and never pass them to a LinkHandler. `goodbye` is
// the last frame of a direction; its payload is the cause as text. `ping` shows that the link is
// alive.
enum class FrameKind : uint16_t { data = 1, control = 2, goodbye = 3, ping = 4 };

struct FrameHeader {
  uint32_t magic = kFrameMagic;
  uint16_t version = kFrameVersion;
  FrameKind kind = FrameKind::data;
  // Number of frames sent before this one on the link in this direction. Set and checked by links.
  uint64_t link_seq = 0;
  uint64_t payload_bytes = 0;  // Set and checked by links.
  uint32_t epoch = 0;
  uint32_t group = 0;
  uint64_t op_seq = 0;     // Number of the operation in its group and epoch.
  uint64_t agreement = 0;  // Hash of what the hosts must agree on; compared before a byte is used.
  // A tensor is cut into slices and each slice into the plan's chunks. In all_gather and
  // reduce_scatter a chunk is a rank's block, and every block is cut into slices.
  uint32_t slice = 0;
  uint32_t chunk = 0;
  uint16_t from = 0;     // Index of the sending host in the plan.
  uint16_t to = 0;       // Index of the receiving host in the plan.
  uint16_t ordinal = 0;  // Index of this message among those from `from` to `to` in the plan.
  // tutti_dtype of the payload: that of the tensor, or of its accumulator for partial results.
  uint8_t dtype = 0;
  // Not 0: the payload does not follow, but comes by that data stream of the link, where payloads
  // have the order of their headers. Set and checked by links.
  uint8_t stream = 0;
};
static_assert(sizeof(FrameHeader) == 64);
static_assert(offsetof(FrameHeader, op_seq) == 32);

}  // namespace tutti
