#include "daemon/transport/grpc_message.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace tutti {
namespace {

constexpr size_t kTextBytesMax = 1024;

struct Parcel {
  std::unique_ptr<Borrow> borrow;
  Mailbox& courier;
};

void return_parcel(void* data) {
  auto* parcel = static_cast<Parcel*>(data);
  parcel->courier.post([parcel] { delete parcel; });
}

std::span<const std::byte> bytes_of(const grpc::Slice& slice) {
  return std::as_bytes(std::span(slice.begin(), slice.size()));
}

}  // namespace

grpc::ByteBuffer pack_frame(std::unique_ptr<Borrow> borrow, Mailbox& courier) {
  auto* parcel = new Parcel{std::move(borrow), courier};
  FrameHeader& header = parcel->borrow->header;
  const std::span<const std::byte> bytes = parcel->borrow->bytes();
  if (bytes.empty()) {
    const grpc::Slice alone(&header, sizeof(header), return_parcel, parcel);
    return {&alone, 1};
  }
  // gRPC's slices are of mutable bytes, but a sent one is only read.
  const grpc::Slice slices[] = {
      grpc::Slice(&header, sizeof(header)),
      grpc::Slice(const_cast<std::byte*>(bytes.data()), bytes.size(), return_parcel, parcel)};
  return {slices, 2};
}

std::string cut_text(std::string text) {
  text.resize(std::min(text.size(), kTextBytesMax));
  return text;
}

grpc::ByteBuffer pack_goodbye(FrameHeader sealed, const std::string& text) {
  const grpc::Slice slices[] = {grpc::Slice(&sealed, sizeof(sealed)), grpc::Slice(text)};
  return {slices, 2};
}

Result<Frame> unpack_frame(const grpc::ByteBuffer& message) {
  if (message.Length() < sizeof(FrameHeader))
    return data_loss("a message of " + std::to_string(message.Length()) +
                     " bytes has no room for a frame header");
  auto slices = std::make_shared<std::vector<grpc::Slice>>();
  if (!message.Dump(slices.get()).ok()) return data_loss("a message could not be read");
  Frame frame;
  auto* header = reinterpret_cast<std::byte*>(&frame.header);
  size_t wanted = sizeof(FrameHeader);
  for (const grpc::Slice& slice : *slices) {
    std::span<const std::byte> bytes = bytes_of(slice);
    const size_t part = std::min(wanted, bytes.size());
    std::memcpy(header + sizeof(FrameHeader) - wanted, bytes.data(), part);
    wanted -= part;
    if (part < bytes.size()) frame.payload.fragments.push_back(bytes.subspan(part));
  }
  frame.payload.owner = std::move(slices);
  return frame;
}

}  // namespace tutti
