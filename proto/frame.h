// The header of every frame between two workers, on any transport; the payload follows at once.
//
// Little-endian, 64 bytes. A data frame carries one slice of one chunk from one rank to another; a
// control frame carries a group.proto Control message.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti {

inline constexpr uint32_t kFrameMagic = 0x46545554;  // "TUTF"
inline constexpr uint16_t kFrameVersion = 2;

// `goodbye` is the links' own: the last frame of a direction, its payload the cause in words. It
// is never handed to a LinkHandler; nor is `ping`, by which a link shows that it lives.
enum class FrameKind : uint16_t { data = 1, control = 2, goodbye = 3, ping = 4 };

struct FrameHeader {
  uint32_t magic = kFrameMagic;
  uint16_t version = kFrameVersion;
  FrameKind kind = FrameKind::data;
  uint64_t link_seq =
      0;  // Frames sent before on this link in this direction; links fill and check it.
  uint64_t payload_bytes = 0;  // Links fill and check it.
  uint32_t epoch = 0;
  uint32_t group = 0;
  uint64_t op_seq = 0;     // The operation's number in its group and epoch.
  uint64_t agreement = 0;  // What its hosts must agree on, hashed; compared before a byte is used.
  uint32_t slice = 0;      // Which slice of the chunk.
  uint32_t chunk = 0;      // Which chunk of the plan.
  uint16_t from = 0;       // Ranks of the group.
  uint16_t to = 0;         //
  uint16_t ordinal = 0;    // The how-manieth message from `from` to `to` within the plan.
  uint8_t dtype =
      0;  // tutti_dtype of the payload: the tensor's, or its accumulator's for partial results.
  uint8_t reserved = 0;
};
static_assert(sizeof(FrameHeader) == 64);
static_assert(offsetof(FrameHeader, op_seq) == 32);

}  // namespace tutti
