// Converts frames to and from gRPC messages without copying payloads: the header's bytes, then the
// payload's.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <memory>
#include <span>
#include <vector>

#include "daemon/base/loop.h"
#include "daemon/base/status.h"
#include "daemon/transport/pending_frame.h"

namespace tutti {

// The frame is released on `loop`, because gRPC drops its last reference to a sent payload on any
// thread, even inside send(); there `released` could not take locks or send again. `loop` must
// outlive the message.
grpc::ByteBuffer pack_frame(std::unique_ptr<PendingFrame> frame, Loop& loop);

// A received frame. The fragments point into the slices; the header is not checked.
struct UnpackedFrame {
  FrameHeader header;
  size_t payload_bytes = 0;
  std::vector<std::span<const std::byte>> fragments;
  std::vector<grpc::Slice> slices;
};
// Returns DATA_LOSS if the message is too short for a header.
Result<UnpackedFrame> unpack_frame(const grpc::ByteBuffer& message);

}  // namespace tutti
