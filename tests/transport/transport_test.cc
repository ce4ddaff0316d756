// The contract of links, over every transport. A new transport adds its name at the end.
#include <atomic>
#include <thread>

#include "tests/transport/fixture.h"

namespace tutti {
namespace {

class LinkContract : public testing::TestWithParam<const char*> {};

size_t mixed_size(uint64_t i) {
  constexpr size_t kSizes[] = {0, 1, 55, 56, 57, 4'096, 65'537, 3, 300'001, 12};
  return i % 100 == 99 ? 4 * kMiB : kSizes[i % std::size(kSizes)];
}

void expect_frames(Recorder& recorder, uint64_t count) {
  uint64_t first = 0;  // Some may have gone before.
  for (uint64_t i = 0; i < count; ++i) {
    auto frame = recorder.next();
    ASSERT_TRUE(frame.has_value()) << "frame " << i << " never came";
    ASSERT_EQ(frame->header.op_seq, i);
    if (i == 0) first = frame->header.link_seq;
    ASSERT_EQ(frame->header.link_seq, first + i);
    ASSERT_EQ(frame->header.payload_bytes, mixed_size(i));
    ASSERT_TRUE(frame->bytes == pattern(mixed_size(i), i)) << "frame " << i << " was changed";
  }
}

TEST_P(LinkContract, KeepsOrderAndBytesBothWays) {
  constexpr uint64_t kFrames = 1'000;
  Sender forth, back;
  Pair pair(GetParam());  // Without pings, which take sequence numbers.
  Joined link = pair.join();
  auto send_all = [](Sender& sender, Link& over) {
    for (uint64_t i = 0; i < kFrames; ++i) sender.send_patiently(over, mixed_size(i), i);
  };
  std::thread forth_thread([&] { send_all(forth, *link.near); });
  std::thread back_thread([&] { send_all(back, *link.far); });
  expect_frames(*link.far_end, kFrames);
  expect_frames(*link.near_end, kFrames);
  forth_thread.join();
  back_thread.join();
  EXPECT_TRUE(forth.wait_released(kFrames));
  EXPECT_TRUE(back.wait_released(kFrames));
}

TEST_P(LinkContract, CarriesTheWholeHeader) {
  Pair pair(GetParam());
  Joined link = pair.join();
  FrameHeader sent{.kind = FrameKind::control,
                   .epoch = 7,
                   .group = 8,
                   .op_seq = 1ull << 40,
                   .slice = 9,
                   .chunk = 10,
                   .from = 11,
                   .to = 12,
                   .ordinal = 13,
                   .dtype = 3};
  ASSERT_TRUE(link.near->send({sent, {}, nullptr}).ok());
  auto frame = link.far_end->next();
  ASSERT_TRUE(frame.has_value());
  sent.link_seq = frame->header.link_seq;  // Which is the link's.
  EXPECT_EQ(std::memcmp(&frame->header, &sent, sizeof(sent)), 0);
}

TEST_P(LinkContract, TellsTheAcceptorWhoDials) {
  Pair pair(GetParam());
  pair.hello = {.job = "wörk",
                .epoch = 4'000'000'000,
                .host = "node b",
                .secret = std::string("\0\xff\n", 3)};
  pair.join();
  EXPECT_EQ(pair.heard->job, pair.hello.job);
  EXPECT_EQ(pair.heard->epoch, pair.hello.epoch);
  EXPECT_EQ(pair.heard->host, pair.hello.host);
  EXPECT_TRUE(pair.heard->verify_secret(pair.hello.secret));
  EXPECT_FALSE(pair.heard->verify_secret("another"));
}

TEST_P(LinkContract, RefusesToSendWhatIsTooLargeOrNotForCallers) {
  Sender sender;
  Pair pair(GetParam(), {.frame_bytes_max = 1'000});
  Joined link = pair.join();
  EXPECT_EQ(sender.send(*link.near, 1'001, 0).code(), Code::invalid_argument);
  FrameHeader goodbye{.kind = FrameKind::goodbye};
  EXPECT_EQ(link.near->send({goodbye, {}, nullptr}).code(), Code::invalid_argument);
  EXPECT_TRUE(sender.send(*link.near, 1'000, 5).ok());
  EXPECT_EQ(link.far_end->next().value().header.op_seq, 5u);
}

TEST_P(LinkContract, RefusesWhatThePeerMayNotSend) {
  // The two sides' limits differ; the receiver's applies.
  Sender sender;
  Pair generous(GetParam());
  Pair pair(GetParam());
  auto network = make_local_network();
  auto make = [&](const LinkLimits& limits) { return make_transport(GetParam(), limits, network); };
  auto here = make({.frame_bytes_max = 2'000});
  auto there = make({.frame_bytes_max = 1'000});
  auto far_end = std::make_shared<Recorder>();
  auto near_end = std::make_shared<Recorder>();
  auto address = there->listen("127.0.0.1:0", take_all(far_end));
  auto link = here->connect(*address, {}, near_end);
  EXPECT_TRUE(sender.send(*link, 1'001, 0).ok());
  EXPECT_EQ(far_end->closed_code(), Code::invalid_argument);
  EXPECT_EQ(near_end->closed_code(), Code::unavailable);
  EXPECT_NE(near_end->closed()->message().find("frame_bytes_max"), std::string::npos);
}

TEST_P(LinkContract, SaysAtOnceThatNobodyListens) {
  Sender sender;
  Pair pair(GetParam(), {.connect_timeout_ms = 120'000});
  pair.there.reset();
  Joined link = pair.dial();
  (void)sender.send(*link.near, 10, 0);
  EXPECT_EQ(link.near_end->closed_code(), Code::unavailable);
  EXPECT_NE(link.near_end->closed()->message().find(host_and_port(pair.address)),
            std::string::npos);
}

TEST_P(LinkContract, TellsTheDiallerWhyItIsRefused) {
  Sender sender;
  Pair pair(GetParam());
  pair.refusal = permission_denied("the secret is of epoch 6");
  Joined link = pair.dial();
  (void)sender.send(*link.near, kMiB, 0);
  EXPECT_EQ(link.near_end->closed(), pair.refusal);
  EXPECT_EQ(link.near->send({}).code(), Code::unavailable);
}

TEST_P(LinkContract, ClosesBothEndsWithTheCause) {
  for (bool by_dialler : {true, false}) {
    Pair pair(GetParam());
    Joined link = pair.join();
    Link& closer = by_dialler ? *link.near : *link.far;
    Recorder& own = by_dialler ? *link.near_end : *link.far_end;
    Recorder& other = by_dialler ? *link.far_end : *link.near_end;
    // Sends one frame first, because a dialler may not know yet that it was accepted.
    ASSERT_TRUE(link.far->send({}).ok());
    ASSERT_TRUE(link.near_end->next().has_value());
    closer.close(aborted("epoch 7 is over"));
    closer.close(internal_error("a second cause"));
    EXPECT_EQ(own.closed(), aborted("epoch 7 is over"));
    EXPECT_EQ(other.closed_code(), Code::unavailable);
    EXPECT_NE(other.closed()->message().find("epoch 7 is over"), std::string::npos);
    for (const auto& end : {link.near, link.far}) {
      EXPECT_EQ(end->send({}).code(), Code::unavailable);
      EXPECT_NE(end->send({}).message().find("epoch 7 is over"), std::string::npos);
    }
  }
}

TEST_P(LinkContract, ReleasesWhatACloseLeavesUnsent) {
  Sender sender;
  Pair pair(GetParam());
  Joined link = pair.join();
  link.far_end->shut(true);
  Status status;
  while (status.ok()) status = sender.send(*link.near, kMiB, sender.sent());
  link.near->close(aborted("enough"));
  EXPECT_EQ(link.near_end->closed_code(), Code::aborted);
  link.far_end->shut(false);
  EXPECT_EQ(link.far_end->closed_code(), Code::unavailable);
  EXPECT_TRUE(sender.wait_released(sender.sent()));
}

TEST_P(LinkContract, ReleasesEverythingBeforeTheTransportIsGone) {
  for (bool dialler_first : {true, false}) {
    Sender forth, back;
    Pair pair(GetParam());
    Joined link = pair.join();
    for (uint64_t i = 0; i < 32; ++i) {
      ASSERT_TRUE(forth.send(*link.near, kMiB, i).ok());
      ASSERT_TRUE(back.send(*link.far, kMiB, i).ok());
    }
    (dialler_first ? pair.here : pair.there).reset();
    Sender& gone = dialler_first ? forth : back;
    EXPECT_EQ(gone.released(), gone.sent());
    EXPECT_EQ(link.near_end->closed_code(), Code::unavailable);
    EXPECT_EQ(link.far_end->closed_code(), Code::unavailable);
    (dialler_first ? pair.there : pair.here).reset();
    EXPECT_EQ(link.near->send({}).code(), Code::unavailable);
  }
}

TEST_P(LinkContract, LetsAPayloadOutliveItsLink) {
  class Keeper : public Recorder {
   public:
    void on_frame(Frame frame) override {
      monitor.change([&] { kept = std::move(frame); });
    }
    Monitor monitor;
    std::optional<Frame> kept;
  };
  Sender sender;
  auto keeper = std::make_shared<Keeper>();
  {
    Pair pair(GetParam());
    auto third = pair.make();
    auto address = third->listen("127.0.0.1:0", take_all(keeper));
    auto link = pair.here->connect(*address, {}, std::make_shared<Recorder>());
    ASSERT_TRUE(sender.send(*link, kMiB, 3).ok());
    ASSERT_TRUE(keeper->monitor.wait([&] { return keeper->kept.has_value(); }));
    ASSERT_TRUE(sender.wait_released(1)) << "a kept payload must not hold the sender's bytes";
  }
  EXPECT_TRUE(bytes_of(keeper->kept->payload) == pattern(kMiB, 3));
}

// `released` may take a lock held around send(), and may send.
TEST_P(LinkContract, ReleasesOutsideTheCallersLocks) {
  constexpr int kFrames = 200;
  Pair pair(GetParam());
  Joined link = pair.join();
  const auto bytes = pattern(100'000, 1);
  std::mutex mutex;
  std::atomic<int> sent = 0;
  Monitor monitor;
  int released = 0;
  std::function<void()> send_one = [&] {
    std::lock_guard lock(mutex);
    if (sent++ >= kFrames) return;
    EXPECT_TRUE(link.near
                    ->send({{},
                            bytes,
                            [&] {
                              send_one();
                              monitor.change([&] { ++released; });
                            }})
                    .ok());
  };
  for (int i = 0; i < 4; ++i) send_one();
  EXPECT_TRUE(monitor.wait([&] { return released == kFrames; }));
}

TEST_P(LinkContract, ReleasesOutsideTheLocksHeldAroundAClose) {
  Pair pair(GetParam());
  Joined link = pair.join();
  link.far_end->shut(true);
  const auto bytes = pattern(kMiB, 1);
  std::mutex mutex;
  Monitor monitor;
  int sent = 0, released = 0;
  auto release = [&] {
    std::lock_guard lock(mutex);
    monitor.change([&] { ++released; });
  };
  {
    std::lock_guard lock(mutex);
    while (sent < 60 && link.near->send({{}, bytes, release}).ok()) ++sent;
    link.near->close(aborted("enough"));
  }
  link.far_end->shut(false);
  EXPECT_TRUE(monitor.wait([&] { return released == sent; }));
}

TEST_P(LinkContract, StaysOpenWhenNobodyHoldsTheLink) {
  Sender sender;
  Pair pair(GetParam());
  Joined link = pair.join();
  link.near.reset();
  ASSERT_TRUE(sender.send(*link.far, 9, 0).ok());
  EXPECT_EQ(link.near_end->next().value().bytes, pattern(9, 0));
}

TEST_P(LinkContract, ConnectsBothWaysAtOnce) {
  Pair pair(GetParam());
  auto end = std::make_shared<Recorder>();
  auto address = pair.here->listen("127.0.0.1:0", take_all(end));
  ASSERT_TRUE(address.ok());
  Sender sender;
  auto back = pair.there->connect(*address, {}, std::make_shared<Recorder>());
  Joined forth = pair.dial();
  ASSERT_TRUE(sender.send(*back, 11, 0).ok());
  ASSERT_TRUE(sender.send(*forth.near, 12, 0).ok());
  EXPECT_EQ(end->next().value().bytes.size(), 11u);
  EXPECT_TRUE(sender.wait_released(2));
}

TEST_P(LinkContract, SaysThatAnAddressIsTaken) {
  Pair pair(GetParam());
  auto accept = [](auto&, auto) { return Result<std::shared_ptr<LinkHandler>>(aborted("no")); };
  EXPECT_EQ(pair.there->listen("127.0.0.1:0", accept).status().code(), Code::failed_precondition);
  EXPECT_EQ(pair.make()->listen(host_and_port(pair.address), accept).status().code(),
            Code::already_exists);
}

// Closing races with sending, receiving, accepting and the other end's closing.
TEST_P(LinkContract, SurvivesClosesAtAnyMoment) {
  constexpr int kLinks = 60;
  Sender sender;
  Pair pair(GetParam());
  Pair hasty(GetParam());  // Its links are closed whether they were accepted or not.
  std::vector<Joined> links;
  for (int i = 0; i < kLinks; ++i) {
    links.push_back(i % 3 == 0 ? hasty.dial() : pair.join());
    Joined& link = links.back();
    for (uint64_t f = 0; f < 3; ++f) (void)sender.send(*link.near, 50'000 * f, f);
    std::thread far_closer([&] {
      if (link.far) link.far->close(aborted("far"));
    });
    if (i % 2 == 0) link.near->close(aborted("near"));
    far_closer.join();
    if (i % 3 == 0) link.near->close(aborted("near"));
  }
  for (int i = 0; i < kLinks; ++i)
    EXPECT_TRUE(links[i].near_end->closed().has_value()) << "link " << i;
  pair.here.reset();
  hasty.here.reset();
  EXPECT_EQ(sender.released(), sender.sent());
}

INSTANTIATE_TEST_SUITE_P(Transports, LinkContract,
                         testing::Values("local", "grpc", "tcp", "grpc+tls", "tcp+tls", "tcp*1",
                                         "tcp*8", "tcp*2+tls"),
                         [](const auto& each) { return name_of_kind(each.param); });

}  // namespace
}  // namespace tutti
