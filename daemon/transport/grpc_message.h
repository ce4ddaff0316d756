// Frames as gRPC messages, neither copied: the header's bytes, then the payload's.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <memory>
#include <string>

#include "daemon/transport/lending.h"
#include "daemon/transport/mailbox.h"
#include "daemon/transport/transport.h"

namespace tutti {

// gRPC drops its last reference to a sent payload anywhere: deep in its own threads, or inside
// send(). The borrow therefore ends on `courier`, where its owner may take locks and send again.
// `courier` outlives the message.
grpc::ByteBuffer pack_frame(std::unique_ptr<Borrow> borrow, Mailbox& courier);

// A goodbye's text is cut at 1 KiB.
grpc::ByteBuffer pack_goodbye(FrameHeader sealed, const std::string& text);
std::string cut_text(std::string text);

// The payload refers to the message's slices and keeps them. DATA_LOSS: no room for a header. The
// header is unchecked.
Result<Frame> unpack_frame(const grpc::ByteBuffer& message);

}  // namespace tutti
