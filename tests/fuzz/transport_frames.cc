// A TCP link's stream of frames, written as the input says and read in pieces of the input's sizes.
// Payloads are a pattern; headers are the input's, fixed where it says so. A second reading of the
// same bytes, by the format's definition, says what must come out.
#include <memory>

#include "daemon/transport/frame_reader.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/sockets.h"

namespace tutti {
namespace {

constexpr size_t kFrameBytesMax = 24 * 1024;
constexpr size_t kStreamBytesMax = 128 * 1024;

// What an input does to a frame.
enum Deed : uint8_t { lie_head = 1, lie_order = 2, lie_length = 4, cut = 8, place = 16, take = 32 };

struct Script {
  std::string stream;
  std::string deeds;  // A byte a frame.
};

Script take_script(fuzz::Input& input) {
  Script script;
  for (uint64_t seq = 0; !input.at_end() && script.stream.size() < kStreamBytesMax; ++seq) {
    const auto deed = input.take<uint8_t>();
    auto header = input.take<FrameHeader>();
    if ((deed & lie_head) == 0) {
      header.magic = kFrameMagic;
      header.version = kFrameVersion;
      header.kind = static_cast<FrameKind>(1 + static_cast<uint16_t>(header.kind) % 4);
    }
    if ((deed & lie_order) == 0) header.link_seq = seq;
    if ((deed & lie_length) == 0) header.payload_bytes %= kFrameBytesMax + 1;
    script.deeds.push_back(static_cast<char>(deed));
    script.stream.append(reinterpret_cast<const char*>(&header), sizeof(header));
    const size_t bytes = std::min<uint64_t>(header.payload_bytes, kFrameBytesMax + 100);
    for (size_t i = 0; i < bytes; ++i) script.stream.push_back(static_cast<char>(i * 7 + seq));
    if ((deed & cut) != 0) script.stream.resize(script.stream.size() - bytes / 2);
  }
  return script;
}

// What the stream is, by proto/frame.h.
struct Reading {
  struct Seen {
    FrameHeader header;
    std::string_view payload;
  };
  std::vector<Seen> frames;
  bool broken = false;
};

bool is_sound(const FrameHeader& header, uint64_t seq) {
  const auto kind = static_cast<int>(header.kind);
  return header.magic == kFrameMagic && header.version == kFrameVersion && kind >= 1 && kind <= 4 &&
         header.link_seq == seq && header.payload_bytes <= kFrameBytesMax;
}

Reading read(std::string_view stream) {
  Reading reading;
  while (stream.size() >= sizeof(FrameHeader)) {
    FrameHeader header;
    std::memcpy(&header, stream.data(), sizeof(header));
    reading.broken = !is_sound(header, reading.frames.size());
    if (reading.broken || stream.size() - sizeof(header) < header.payload_bytes) break;
    reading.frames.push_back({header, stream.substr(sizeof(header), header.payload_bytes)});
    stream.remove_prefix(sizeof(header) + header.payload_bytes);
  }
  return reading;
}

// Places payloads where the script says, and takes some places back, memory and all.
class Placer final : public LinkHandler {
 public:
  explicit Placer(const std::string& deeds) : deeds_(deeds) {}
  std::shared_ptr<RecvBuffer> recv_buffer_for(const FrameHeader& header) override {
    if ((deeds_[header.link_seq] & Deed::place) == 0) return nullptr;
    memory_ = std::make_unique<std::byte[]>(header.payload_bytes);
    recv_buffer_ = std::make_shared<RecvBuffer>(memory_.get());
    return recv_buffer_;
  }
  void on_frame(Frame) override {}
  void on_closed(Status) override {}
  // For the frame that comes next, once some of it has come.
  void between(size_t next) {
    if (recv_buffer_ == nullptr || next >= deeds_.size() || (deeds_[next] & Deed::take) == 0)
      return;
    recv_buffer_->withdraw();
    memory_.reset();
  }

 private:
  const std::string& deeds_;
  std::unique_ptr<std::byte[]> memory_;
  std::shared_ptr<RecvBuffer> recv_buffer_;
};

struct Case {
  const Script script;
  const Reading expected;
  Placer placer{script.deeds};
  FrameReader reader{std::make_shared<BufferPool>(1 << 20), kFrameBytesMax};
  size_t frames = 0;
  bool broken = false;
};

void check_frame(Case& run, const Frame& frame) {
  require(run.frames < run.expected.frames.size(), "no frame that was not sent");
  const auto& [header, payload] = run.expected.frames[run.frames];
  require(std::memcmp(&frame.header, &header, sizeof(header)) == 0, "the header that was sent");
  require(frame.payload.bytes() == payload.size(), "as many bytes as were sent");
  const bool taken = (run.script.deeds[run.frames] & Deed::take) != 0;
  if (!taken && !payload.empty())
    require(std::memcmp(frame.payload.fragments.at(0).data(), payload.data(), payload.size()) == 0,
            "the payload that was sent");
  ++run.frames;
}

// All frames that are there.
void read_frames(Case& run) {
  for (;;) {
    const size_t coming = run.frames;
    Result<std::optional<Frame>> next = run.reader.next(&run.placer);
    run.broken = !next.ok();
    if (!next.ok() || !next->has_value()) return run.placer.between(coming);
    check_frame(run, **next);
  }
}

void feed(Case& run, size_t piece) {
  fuzz::SocketPair sockets = fuzz::socket_pair(SOCK_STREAM);
  const std::unique_ptr<Wire> wire = make_plain_wire(std::move(sockets.ours));
  std::string_view left = run.script.stream;
  while (!left.empty() && !run.broken) {
    fuzz::send_all(sockets.theirs, left.substr(0, piece));
    left.remove_prefix(std::min(left.size(), piece));
    while (!run.broken && run.reader.fill(*wire) > 0) read_frames(run);
  }
}

}  // namespace
}  // namespace tutti

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti;
  fuzz::Input input(data, size);
  const size_t piece = 512 + input.take<uint16_t>() % (16 * 1024);
  Script script = take_script(input);
  Reading expected = read(script.stream);
  Case run{std::move(script), std::move(expected)};
  feed(run, piece);
  require(run.frames == run.expected.frames.size(), "every sound frame comes out");
  require(run.broken == run.expected.broken, "what is unsound is refused");
  return 0;
}
