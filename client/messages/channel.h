// A channel: the group of two ranks in which one sends messages to the other (messages.h), and what
// passes through it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "client/operations/group.h"

namespace tutti::client {

// What a message says of itself.
struct MessageShape {
  uint32_t magic = 0;
  uint32_t dtype = 0;  // tutti_dtype.
  uint64_t count = 0;
  uint64_t tag = 0;

  uint64_t bytes() const { return count * tutti_dtype_size(static_cast<tutti_dtype>(dtype)); }
  // Whether a receiver may use it: another process wrote it.
  bool is_sound() const;
};

// The first broadcast of a message.
struct MessageHeader {
  static constexpr uint32_t kMagic = 0x4753454d;  // "MESG"
  // In place of a message, where its sender's call was refused: `dtype` is a code, `count` bytes of
  // the data say why. The second one: whatever the tag.
  static constexpr uint32_t kRefused = 0x53554652;        // "RFUS"
  static constexpr uint32_t kRefusedAnyTag = 0x41554652;  // "RFUA"
  static constexpr size_t kBytes = 4096;
  static constexpr size_t kDataBytes = kBytes - sizeof(MessageShape);

  MessageShape shape;
  std::array<std::byte, kDataBytes> data;  // The message if it is no longer than this.
};
static_assert(sizeof(MessageHeader) == MessageHeader::kBytes);

// Bytes of a message that one of the later broadcasts brings; the last may bring fewer.
inline constexpr uint64_t kMessagePartBytes = uint64_t{4} << 20;
// Least timeout of a broadcast: one that ends while its last frames are on their way between hosts
// ends the epoch.
inline constexpr int64_t kLeastPartMs = 200;
// Parts have a dtype of their own, so that a header is never taken for a part, nor a part for a
// header, after a failure of which one side has learned earlier.
inline constexpr tutti_dtype kHeaderDtype = TUTTI_U8;
inline constexpr tutti_dtype kPartDtype = TUTTI_I8;
constexpr uint64_t part_bytes(uint64_t message_bytes, uint64_t done) {
  return message_bytes - done < kMessagePartBytes ? message_bytes - done : kMessagePartBytes;
}

// Whether a message that failed for this reason stands for no call of its other side: nobody took
// it in time, or there is no next message.
bool is_lost_alone(const Status& why);

// The channel from one rank of the group to another, of which this rank is one. Waits for the
// worker, not for the other rank, until the deadline of the call, and kAnswerGrace more.
Result<std::unique_ptr<Group>> make_channel(const Members& members, uint32_t from, uint32_t to,
                                            TimePoint deadline);

}  // namespace tutti::client
