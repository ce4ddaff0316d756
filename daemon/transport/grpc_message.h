// Frames as gRPC messages, neither copied: the header's bytes, then the payload's.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <memory>
#include <span>
#include <vector>

#include "daemon/base/loop.h"
#include "daemon/base/status.h"
#include "daemon/transport/lending.h"

namespace tutti {

// gRPC drops its last reference to a sent payload anywhere: deep in its own threads, or inside
// send(). The borrow therefore ends on `loop`, where its owner may take locks and send again. The
// loop outlives the message.
grpc::ByteBuffer pack_frame(std::unique_ptr<Borrow> borrow, Loop& loop);

// A received frame, its payload in the slices. The header is unchecked.
struct UnpackedFrame {
  FrameHeader header;
  size_t payload_bytes = 0;
  std::vector<std::span<const std::byte>> fragments;
  std::vector<grpc::Slice> slices;
};
// DATA_LOSS: no room for a header.
Result<UnpackedFrame> unpack_frame(const grpc::ByteBuffer& message);

}  // namespace tutti
