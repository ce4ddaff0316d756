// The contract of flow control, over every transport: slow senders and slow receivers.
#include <algorithm>

#include "tests/transport/bare.h"

namespace tutti {
namespace {

// Keeps received payloads until it is asked to drop them.
class Keeper : public Recorder {
 public:
  void on_frame(Frame frame) override {
    monitor.change([&] {
      ++delivered;
      if (keeps) kept.push_back(std::move(frame));
    });
  }
  void let_go() {
    std::vector<Frame> dropped;
    monitor.change([&] {
      keeps = false;
      dropped.swap(kept);
    });
  }
  Monitor monitor;
  bool keeps = true;
  size_t delivered = 0;
  std::vector<Frame> kept;
};

class LinkPressure : public testing::TestWithParam<const char*> {};

TEST_P(LinkPressure, RefusesToQueueMoreThanItsShare) {
  Sender sender;
  Pair pair(GetParam(), {.queue_bytes_max = 8 * kMiB});
  Joined link = pair.join();
  link.far_end->shut(true);
  // Windows and sockets hold some bytes beside the queue, but fewer than this.
  Status status;
  while (status.ok() && sender.sent() < 1'000)
    status = sender.send(*link.near, kMiB, sender.sent());
  EXPECT_EQ(status.code(), Code::resource_exhausted);
  const size_t sent = sender.sent();
  EXPECT_TRUE(sender.wait_released(sent - std::min<size_t>(sent, 8)));
  link.far_end->shut(false);
  ASSERT_TRUE(sender.wait_released(sent));
  EXPECT_TRUE(sender.send(*link.near, kMiB, sent).ok());
  for (uint64_t i = 0; i <= sent; ++i) {
    auto frame = link.far_end->next();
    ASSERT_TRUE(frame.has_value());
    EXPECT_EQ(frame->header.op_seq, i);
  }
}

// The engine keeps frames that it cannot use yet; peers must not be able to fill its memory.
TEST_P(LinkPressure, ReceiverThatKeepsPayloadsHoldsItsSenderBack) {
  Sender sender;
  auto keeper = std::make_shared<Keeper>();
  Pair pair(GetParam(), {.queue_bytes_max = 4 * kMiB});
  auto third = pair.make();
  auto address = third->listen("127.0.0.1:0", take_all(keeper));
  auto link = pair.here->connect(*address, {}, std::make_shared<Recorder>());
  for (size_t i = 0; i < 4; ++i) sender.send_patiently(*link, kMiB, i);
  ASSERT_TRUE(keeper->monitor.wait([&] { return keeper->delivered >= 4; }));
  for (int i = 0; i < 100 && sender.sent() < 1'000; ++i)
    if (sender.send(*link, kMiB, sender.sent()).ok()) i = 0;  // What drains by itself has drained.
  keeper->monitor.change(
      [&] { EXPECT_LE(keeper->delivered, 6u) << "more was delivered than may be kept"; });
  keeper->let_go();
  const size_t sent = sender.sent();
  EXPECT_TRUE(keeper->monitor.wait([&] { return keeper->delivered == sent; }));
  EXPECT_TRUE(sender.wait_released(sent));
}

TEST(TcpPressure, CountsWhatKeepingAFrameTakes) {
  constexpr size_t kFrames = 2'000;
  const auto keeper = std::make_shared<Keeper>();
  Listener listener({.queue_bytes_max = 64 << 10}, keeper);
  const Bare client = Bare::dial(listener.address);
  introduce(client, kSecret);
  FrameSequencer sequencer;
  Bytes bytes;
  for (size_t i = 0; i < kFrames; ++i) bytes += frame(sequencer.complete({}, 1), 1);
  client.say(bytes);
  ASSERT_TRUE(keeper->monitor.wait([&] { return keeper->delivered >= 100; }));
  for (int i = 0; i < 10; ++i) introduce(Bare::dial(listener.address), kSecret);  // Turns the loop.
  keeper->monitor.change(
      [&] { EXPECT_LE(keeper->delivered, 150u) << "of one byte each, in a queue of 64 KiB"; });
  keeper->let_go();
  EXPECT_TRUE(keeper->monitor.wait([&] { return keeper->delivered == kFrames; }));
}

INSTANTIATE_TEST_SUITE_P(Transports, LinkPressure,
                         testing::Values("local", "grpc", "tcp", "grpc+tls", "tcp+tls", "tcp*1",
                                         "tcp*8", "tcp*2+tls"),
                         [](const auto& each) { return name_of_kind(each.param); });

}  // namespace
}  // namespace tutti
