// Data streams of TCP links: bare sockets play the dialler, whose payloads come when a test wants.
#include "tests/transport/bare.h"

namespace tutti {
namespace {

class DataStreams : public testing::TestWithParam<const char*> {
 protected:
  DataStreams() {
    DiallerHandshake handshake({"demo", 7, "a", kSecret}, {.streams = 3}, "");
    link_.say(handshake.hello());
    link_.say(*handshake.prove(link_.hear(sizeof(LinkChallenge))));
    EXPECT_TRUE(handshake.check(link_.hear(sizeof(LinkAnswerHead))).ok());
    terms_ = handshake.terms();
  }
  Bare open(uint16_t stream) { return open(stream, terms_.token); }
  Bare open(uint16_t stream, const LinkProof& token) {
    Bare opened = Bare::dial(listener_.address);
    opened.say(write_stream_hello(stream, token));
    return opened;
  }
  // The header of a frame whose payload comes by `stream`; with 0 it follows.
  Bytes header_of(uint64_t op_seq, uint8_t stream, size_t bytes) {
    FrameHeader header = sequencer_.complete({.op_seq = op_seq}, bytes);
    header.stream = stream;
    return frame(header, stream == 0 ? bytes : 0);
  }
  void announce(uint64_t op_seq, uint8_t stream, size_t bytes) {
    link_.say(header_of(op_seq, stream, bytes));
  }
  // Waits until the listener has served all that came before.
  void settle() {
    const Bare other = Bare::dial(listener_.address);
    other.say(hello_of(kSecret));
    EXPECT_EQ(other.hear(sizeof(LinkChallenge)).size(), sizeof(LinkChallenge));
  }
  void expect_frame(uint64_t op_seq, char filled_with) {
    const auto arrived = placer_->next();
    ASSERT_TRUE(arrived.has_value());
    EXPECT_EQ(arrived->header.op_seq, op_seq);
    EXPECT_EQ(arrived->bytes.size(), arrived->header.payload_bytes);
    for (const std::byte each : arrived->bytes) ASSERT_EQ(each, std::byte(filled_with));
  }

  const std::shared_ptr<Placer> placer_ = std::make_shared<Placer>();
  static constexpr int kSilenceMs = 4'000;
  Listener listener_{{.silence_ms = kSilenceMs, .streams = 2}, placer_, GetParam()};
  Bare link_ = Bare::dial(listener_.address);
  LinkTerms terms_;
  FrameSequencer sequencer_;
};

TEST_P(DataStreams, AreAsManyAsBothSidesTake) { EXPECT_EQ(terms_.streams, 2); }

TEST_P(DataStreams, DeliverFramesInTheOrderOfTheirHeaders) {
  const Bare one = open(1), two = open(2);
  Bytes headers = header_of(2, 2, Placer::kBytes);
  headers += header_of(3, 1, Placer::kBytes);
  headers += header_of(4, 0, 5);
  headers += header_of(5, 2, Placer::kBytes);
  link_.say(headers);
  one.say(Bytes(Placer::kBytes, 'b'));
  settle();
  EXPECT_EQ(placer_->count(), 0u) << "the first has not arrived";
  two.say(Bytes(Placer::kBytes, 'a') + Bytes(Placer::kBytes, 'c'));
  expect_frame(2, 'a');
  expect_frame(3, 'b');
  expect_frame(4, 'x');
  expect_frame(5, 'c');
}

TEST_P(DataStreams, MayOpenAfterTheirFirstHeader) {
  announce(2, 1, Placer::kBytes);
  settle();
  const Bare one = open(1);
  one.say(Bytes(Placer::kBytes, 'a'));
  expect_frame(2, 'a');
}

TEST_P(DataStreams, PutPayloadsWhereTheHandlerWants) {
  const Bare one = open(1);
  announce(1, 1, Placer::kBytes);
  one.say(Bytes(Placer::kBytes, 'a'));
  expect_frame(1, 'a');
  EXPECT_EQ(placer_->arrived_at, placer_->memory.data());
}

TEST_P(DataStreams, TouchNoMemoryThatWasWithdrawn) {
  const Bare one = open(1);
  announce(1, 1, Placer::kBytes);
  one.say(Bytes(Placer::kBytes / 2, 'a'));
  ASSERT_TRUE(placer_->monitor.wait([&] { return placer_->placed; }));
  placer_->recv_buffer->withdraw();
  const std::vector<std::byte> then = placer_->memory;
  one.say(Bytes(Placer::kBytes / 2, 'b'));
  ASSERT_EQ(placer_->next().value().bytes.size(), Placer::kBytes);
  EXPECT_NE(placer_->arrived_at, placer_->memory.data());
  EXPECT_TRUE(placer_->memory == then);
}

TEST_P(DataStreams, AreOpenedByTheLinksDiallerAlone) {
  LinkProof guess = terms_.token;
  guess[31] ^= 1;
  EXPECT_TRUE(open(1, guess).hung_up());
  EXPECT_TRUE(open(1, {}).hung_up());
  EXPECT_TRUE(open(3).hung_up()) << "there are two";
  const Bare one = open(1);
  EXPECT_EQ(one.hear(sizeof(LinkAnswerHead)).size(), sizeof(LinkAnswerHead));
  EXPECT_TRUE(open(1).hung_up()) << "it is open already";
  announce(2, 1, Placer::kBytes);
  one.say(Bytes(Placer::kBytes, 'a'));
  expect_frame(2, 'a');
}

TEST_P(DataStreams, BreakTheirLink) {
  Bare one = open(1);
  one.hear(sizeof(LinkAnswerHead));
  announce(2, 1, Placer::kBytes);
  one.say(Bytes(Placer::kBytes / 2, 'a'));
  one.vanish();
  const auto cause = placer_->closed();
  ASSERT_TRUE(cause.has_value());
  EXPECT_EQ(cause->code(), Code::unavailable);
  EXPECT_NE(cause->message().find("data stream 1"), Bytes::npos) << cause->message();
}

TEST_P(DataStreams, BreakTheirLinkWhileIdleToo) {
  Bare one = open(1);
  one.hear(sizeof(LinkAnswerHead));
  one.vanish();
  EXPECT_NE(placer_->closed().value().message().find("data stream 1"), Bytes::npos);
}

TEST_P(DataStreams, ThatEndLeaveWhatTheySaidBefore) {
  const Bare one = open(1);
  one.hear(sizeof(LinkAnswerHead));
  one.say(Bytes(Placer::kBytes, 'a'));
  one.say_no_more();
  settle();
  announce(2, 1, Placer::kBytes);
  expect_frame(2, 'a');
  EXPECT_EQ(placer_->closed_code(), Code::unavailable);
}

TEST_P(DataStreams, ThatBreakBehindAGoodbyeLeaveItsCause) {
  Bare one = open(1);
  one.hear(sizeof(LinkAnswerHead));
  const Bytes cause = "the job is over";
  // At once, or the kernel holds the goodbye back.
  const Bytes header = header_of(2, 1, Placer::kBytes);
  const FrameHeader goodbye = sequencer_.complete({.kind = FrameKind::goodbye}, cause.size());
  link_.say(header + frame(goodbye, 0) + cause);
  settle();
  one.vanish();
  EXPECT_EQ(placer_->closed().value().message(), cause);
}

// Nothing comes by the link's own connection meanwhile, not even a ping.
TEST_P(DataStreams, ThatCarryBytesAreNoSilence) {
  const Bare one = open(1);
  announce(2, 1, Placer::kBytes);
  for (int i = 0; i < 15; ++i) {
    one.say("a");
    ASSERT_FALSE(placer_->closed(std::chrono::milliseconds(kSilenceMs / 10)).has_value()) << i;
  }
  EXPECT_EQ(placer_->closed_code(), Code::unavailable) << "now it is silent";
}

// The end of the link's own connection may arrive first.
TEST_P(DataStreams, DeliverWhatIsBeforeAGoodbye) {
  const Bare one = open(1);
  const Bytes cause = "the job is over";
  const Bytes header = header_of(2, 1, Placer::kBytes);
  const FrameHeader goodbye = sequencer_.complete({.kind = FrameKind::goodbye}, cause.size());
  link_.say(header + frame(goodbye, 0) + cause);
  link_.say_no_more();
  settle();
  one.say(Bytes(Placer::kBytes, 'a'));
  expect_frame(2, 'a');
  EXPECT_EQ(placer_->closed().value().message(), cause);
}

TEST_P(DataStreams, ThatALinkDoesNotHaveCloseIt) {
  announce(2, 3, Placer::kBytes);
  EXPECT_EQ(placer_->closed_code(), Code::invalid_argument);
}

TEST_P(DataStreams, CarryNoControlFrames) {
  FrameHeader header = sequencer_.complete({.kind = FrameKind::control}, Placer::kBytes);
  header.stream = 1;
  link_.say(frame(header, 0));
  EXPECT_EQ(placer_->closed_code(), Code::invalid_argument);
}

TEST(DataStreamsOfALink, CarryNeitherSmallFramesNorFirstSlices) {
  constexpr size_t kLarge = 128 << 10;
  Pair pair("tcp*2");
  Joined link = pair.join();
  const std::vector<std::byte> bytes(kMiB);
  const auto stream_of = [&](FrameHeader header, size_t size) {
    EXPECT_TRUE(link.near->send({header, std::span(bytes).first(size), nullptr}).ok());
    const auto arrived = link.far_end->next();
    EXPECT_EQ(arrived.value().bytes.size(), size);
    return static_cast<int>(arrived->header.stream);
  };
  EXPECT_NE(stream_of({.slice = 1}, kLarge), 0);
  EXPECT_EQ(stream_of({.slice = 1}, kLarge - 1), 0);
  EXPECT_EQ(stream_of({.slice = 0}, kMiB), 0);
  EXPECT_EQ(stream_of({.kind = FrameKind::control, .slice = 1}, kMiB), 0);
  EXPECT_EQ(stream_of({.stream = 2}, 100), 0) << "the link's to say, not its caller's";
}

INSTANTIATE_TEST_SUITE_P(Transports, DataStreams, testing::Values("tcp", "tcp+tls"),
                         [](const auto& each) { return name_of_kind(each.param); });

}  // namespace
}  // namespace tutti
