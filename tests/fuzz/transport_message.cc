// gRPC messages of any bytes, cut into slices of the input's sizes: what comes out is the message's
// header and the rest, and what was packed comes out again and is released.
#include "daemon/transport/grpc_message.h"
#include "tests/fuzz/input.h"

namespace tutti {
namespace {

grpc::ByteBuffer cut_up(std::string_view bytes, fuzz::Input& input) {
  std::vector<grpc::Slice> slices;
  while (!bytes.empty()) {
    const std::string_view part = bytes.substr(0, input.take<uint8_t>());
    // By itself gRPC has no empty slice, but nothing says so.
    slices.emplace_back(part.data(), part.size());
    bytes.remove_prefix(part.size());
    if (input.at_end()) {
      slices.emplace_back(bytes.data(), bytes.size());
      break;
    }
  }
  return {slices.data(), slices.size()};
}

std::string text_of(const UnpackedFrame& frame) {
  std::string text(reinterpret_cast<const char*>(&frame.header), sizeof(frame.header));
  for (const auto& fragment : frame.fragments)
    text.append(reinterpret_cast<const char*>(fragment.data()), fragment.size());
  return text;
}

void unpack_any(std::string_view bytes, fuzz::Input& input) {
  const Result<UnpackedFrame> frame = unpack_frame(cut_up(bytes, input));
  require(frame.ok() == (bytes.size() >= sizeof(FrameHeader)), "a message has room for a header");
  if (!frame.ok()) return;
  require(text_of(*frame) == bytes, "every byte, once and in its place");
  require(frame->payload_bytes == bytes.size() - sizeof(FrameHeader), "the payload's size");
}

void pack_and_unpack(std::string_view payload) {
  Loop loop;
  int releases = 0;
  Outgoing frame{{.op_seq = 7}, std::as_bytes(std::span(payload)), [&] { ++releases; }};
  auto borrow = PendingFrame::accept(frame, std::make_shared<SendBudget>(payload.size()),
                                     std::make_shared<PendingFrameCount>());
  {
    const Result<UnpackedFrame> unpacked = unpack_frame(pack_frame(std::move(borrow), loop));
    require(unpacked.ok() && unpacked->header.op_seq == 7, "the header that was packed");
    require(text_of(*unpacked).substr(sizeof(FrameHeader)) == payload, "the payload, too");
    loop.run_once(Clock::now());
    require(releases == 0, "what is still read is not released");
  }
  loop.run_once(Clock::now());
  require(releases == 1, "what nobody reads any more is");
}

}  // namespace
}  // namespace tutti

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti;
  fuzz::Input input(data, size);
  const std::string_view bytes = input.take_text(input.take<uint16_t>());
  unpack_any(bytes, input);
  pack_and_unpack(bytes);
  return 0;
}
