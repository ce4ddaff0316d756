#include "daemon/transport/grpc_message.h"

#include <algorithm>
#include <cstring>

namespace tutti {
namespace {

struct SentFrame {
  std::unique_ptr<PendingFrame> frame;
  Loop& loop;
};

void release_on_loop(void* data) {
  auto* sent = static_cast<SentFrame*>(data);
  sent->loop.post([sent] { delete sent; });
}

std::span<const std::byte> bytes_of(const grpc::Slice& slice) {
  return std::as_bytes(std::span(slice.begin(), slice.size()));
}

}  // namespace

grpc::ByteBuffer pack_frame(std::unique_ptr<PendingFrame> frame, Loop& loop) {
  auto* sent = new SentFrame{std::move(frame), loop};
  FrameHeader& header = sent->frame->header;
  const std::span<const std::byte> bytes = sent->frame->bytes();
  if (bytes.empty()) {
    const grpc::Slice alone(&header, sizeof(header), release_on_loop, sent);
    return {&alone, 1};
  }
  // The slice is mutable, but gRPC only reads a sent one.
  const grpc::Slice slices[] = {
      grpc::Slice(&header, sizeof(header)),
      grpc::Slice(const_cast<std::byte*>(bytes.data()), bytes.size(), release_on_loop, sent)};
  return {slices, 2};
}

Result<UnpackedFrame> unpack_frame(const grpc::ByteBuffer& message) {
  UnpackedFrame frame;
  if (message.Length() < sizeof(FrameHeader))
    return data_loss("a message of " + std::to_string(message.Length()) +
                     " bytes has no room for a frame header");
  if (!message.Dump(&frame.slices).ok()) return data_loss("a message could not be read");
  frame.payload_bytes = message.Length() - sizeof(FrameHeader);
  auto* header = reinterpret_cast<std::byte*>(&frame.header);
  size_t wanted = sizeof(FrameHeader);
  for (const grpc::Slice& slice : frame.slices) {
    std::span<const std::byte> bytes = bytes_of(slice);
    const size_t part = std::min(wanted, bytes.size());
    std::memcpy(header + sizeof(FrameHeader) - wanted, bytes.data(), part);
    wanted -= part;
    if (part < bytes.size()) frame.fragments.push_back(bytes.subspan(part));
  }
  return frame;
}

}  // namespace tutti
