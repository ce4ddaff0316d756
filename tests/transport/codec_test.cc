// The rules of frame headers, and how a link reacts to headers that break them.
#include "daemon/transport/frame_codec.h"
#include "daemon/transport/local_link.h"
#include "tests/transport/bare.h"

namespace tutti {
namespace {

TEST(FrameCodec, SealsWhatTheCheckerAccepts) {
  FrameSequencer sequencer;
  FrameChecker checker(kMax);
  for (size_t bytes : {size_t{0}, size_t{1}, kMax}) {
    FrameHeader header{.magic = 0, .version = 99, .link_seq = 55, .payload_bytes = 66, .slice = 4};
    header = sequencer.complete(header, bytes);
    EXPECT_EQ(header.payload_bytes, bytes);
    EXPECT_EQ(header.slice, 4u);
    EXPECT_EQ(checker.check(header, bytes), Status());
  }
}

TEST(FrameCodec, RefusesStrangersByName) {
  FrameHeader header = first_header(0);
  header.magic ^= 1;
  EXPECT_EQ(FrameChecker(kMax).check(header, 0).code(), Code::invalid_argument);
  header = first_header(0);
  header.version = kFrameVersion + 1;
  EXPECT_EQ(FrameChecker(kMax).check(header, 0).code(), Code::invalid_argument);
  for (int kind : {0, 5, 0xffff}) {
    header = first_header(0);
    header.kind = static_cast<FrameKind>(kind);
    EXPECT_EQ(FrameChecker(kMax).check(header, 0).code(), Code::invalid_argument) << kind;
  }
}

TEST(FrameCodec, RefusesLyingLengths) {
  EXPECT_EQ(FrameChecker(kMax).check(first_header(10), 9).code(), Code::data_loss);
  EXPECT_EQ(FrameChecker(kMax).check(first_header(0), 1).code(), Code::data_loss);
  EXPECT_EQ(FrameChecker(kMax).check(first_header(kMax + 1), kMax + 1).code(),
            Code::invalid_argument);
  EXPECT_EQ(FrameChecker(kMax).check(first_header(~size_t{0}), 4).code(), Code::invalid_argument);
  EXPECT_EQ(FrameChecker(kMax).check(first_header(4), kMax + 1).code(), Code::invalid_argument);
}

TEST(FrameCodec, RefusesGapsAndRepeats) {
  FrameChecker checker(kMax);
  FrameHeader header = first_header(0);
  ASSERT_TRUE(checker.check(header, 0).ok());
  EXPECT_EQ(checker.check(header, 0).code(), Code::data_loss);
  header.link_seq = 2;
  EXPECT_EQ(checker.check(header, 0).code(), Code::data_loss);
  header.link_seq = 1;
  EXPECT_TRUE(checker.check(header, 0).ok());
}

TEST(FrameCodec, RefusesToSendOtherKindsAndSizes) {
  EXPECT_TRUE(check_outgoing({}, kMax, kMax).ok());
  EXPECT_EQ(check_outgoing({}, kMax + 1, kMax).code(), Code::invalid_argument);
  EXPECT_EQ(check_outgoing({.kind = FrameKind::goodbye}, 0, kMax).code(), Code::invalid_argument);
}

TEST(Payload, CountsAndCopiesItsFragments) {
  const auto bytes = pattern(100, 1);
  const std::span all(bytes);
  Payload payload{{all.first(3), all.subspan(3, 0), all.subspan(3)}, nullptr};
  EXPECT_EQ(payload.bytes(), 100u);
  EXPECT_TRUE(bytes_of(payload) == bytes);
  EXPECT_EQ(Payload().bytes(), 0u);
}

// Sends an invalid header over a local link and returns why the link closed.
Code after_raw(FrameHeader header, size_t payload_bytes) {
  Pair pair("local", {.frame_bytes_max = kMax});
  Joined link = pair.join();
  static_cast<LocalLink&>(*link.near).send_raw(header, std::string(payload_bytes, 'x'));
  const Code code = link.far_end->closed_code();
  EXPECT_EQ(link.near_end->closed_code(), Code::unavailable);
  return code;
}

TEST(LocalLink, ClosesOnFramesThatLie) {
  FrameHeader header = first_header(8);
  header.magic = 0;
  EXPECT_EQ(after_raw(header, 8), Code::invalid_argument);
  EXPECT_EQ(after_raw(first_header(kMax + 1), kMax + 1), Code::invalid_argument);
  EXPECT_EQ(after_raw(first_header(8), 7), Code::data_loss);
  header = first_header(8);
  header.link_seq = 1;
  EXPECT_EQ(after_raw(header, 8), Code::data_loss);
}

}  // namespace
}  // namespace tutti
