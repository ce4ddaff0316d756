// A peer that stops answering is noticed within silence_ms, with or without traffic. A proxy
// between the two ends stops forwarding, which looks to either end like a stopped process or a lost
// host.
#include "tests/transport/proxy.h"

namespace tutti {
namespace {

constexpr int kSilenceMs = 2'000;
constexpr std::chrono::milliseconds kSlack{15'000};  // For a loaded machine.

class Silence : public testing::TestWithParam<const char*> {
 protected:
  Silence() {
    direct_ = pair_.address;
    proxy_ = std::make_unique<Proxy>(direct_);
    pair_.address = proxy_->address;
    pair_.awaits_streams = false;  // The proxy takes no second connection.
    link_ = pair_.join();
    EXPECT_TRUE(link_.far->send({}).ok());
    EXPECT_TRUE(link_.near_end->next().has_value());
  }
  void flood(Link& link) {
    while (sender_.send(link, size_t{1} << 20, 0).ok()) continue;
  }
  void expect_noticed() {
    for (Recorder* end : {link_.near_end.get(), link_.far_end.get()}) {
      auto cause = end->closed(std::chrono::milliseconds(kSilenceMs) + kSlack);
      ASSERT_TRUE(cause.has_value());
      EXPECT_EQ(cause->code(), Code::unavailable) << cause->to_string();
    }
  }

  Sender sender_;
  Pair pair_{GetParam(), {.silence_ms = kSilenceMs}};
  std::string direct_;
  std::unique_ptr<Proxy> proxy_;
  Joined link_;
};

TEST_P(Silence, OfAnIdlePeerThatAnswersIsFine) {
  EXPECT_FALSE(link_.near_end->closed(std::chrono::milliseconds(2 * kSilenceMs)).has_value());
  ASSERT_TRUE(sender_.send(*link_.far, 10, 1).ok());
  EXPECT_EQ(link_.near_end->next().value().bytes, pattern(10, 1));
}

// One late ping must not count as silence. (gRPC has pings of its own.)
struct TcpSilence : Silence {};

TEST_P(TcpSilence, OfAnIdlePeerIsBrokenInEveryEighth) {
  constexpr std::chrono::milliseconds kEighth{kSilenceMs / 8};
  // A busy machine may hold up the pings of some rounds; ends that ping too seldom fail all.
  bool broken = false;
  for (int round = 0; round < 6 && !broken; ++round) {
    const int before[2] = {proxy_->forwarded[0], proxy_->forwarded[1]};
    const auto began = std::chrono::steady_clock::now();
    ASSERT_FALSE(link_.near_end->closed(16 * kEighth).has_value());
    const auto eighths = (std::chrono::steady_clock::now() - began) / kEighth;
    broken = true;
    for (const int way : {0, 1})
      broken = broken && proxy_->forwarded[way] - before[way] >= eighths - 2;
  }
  EXPECT_TRUE(broken);
}

// A frame stands for no ping: the next one would come a tick later.
TEST_P(TcpSilence, OfAPeerThatHasSentIsBrokenAsSoon) {
  constexpr int kFrames = 8;  // Each way, two pings after each.
  bool broken = false;
  for (int round = 0; round < 6 && !broken; ++round) {
    const int before[2] = {proxy_->forwarded[0], proxy_->forwarded[1]};
    for (int i = 0; i < kFrames; ++i) {
      ASSERT_TRUE(link_.near->send({}).ok());
      ASSERT_TRUE(link_.far->send({}).ok());
      ASSERT_FALSE(link_.near_end->closed(std::chrono::milliseconds(kSilenceMs / 4)).has_value());
    }
    broken = true;
    for (const int way : {0, 1})
      broken = broken && proxy_->forwarded[way] - before[way] > kFrames * 5 / 2;
  }
  EXPECT_TRUE(broken);
}

TEST_P(Silence, OfAStoppedPeerIsNoticedWhenIdle) {
  proxy_->stop();
  expect_noticed();
}

TEST_P(Silence, OfAStoppedPeerIsNoticedWhileTheDiallerSends) {
  proxy_->stop();
  flood(*link_.near);
  expect_noticed();
  EXPECT_TRUE(sender_.wait_released(sender_.sent()));
}

TEST_P(Silence, OfAStoppedPeerIsNoticedWhileTheListenerSends) {
  proxy_->stop();
  flood(*link_.far);
  expect_noticed();
  EXPECT_TRUE(sender_.wait_released(sender_.sent()));
}

TEST_P(Silence, OfAStoppedPeerDoesNotDelayTheEnd) {
  proxy_->stop();
  flood(*link_.near);
  flood(*link_.far);
  const auto began = std::chrono::steady_clock::now();
  pair_.here.reset();
  EXPECT_EQ(link_.near_end->closed_code(), Code::unavailable);
  pair_.there.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - began, kSlack);
  EXPECT_EQ(sender_.released(), sender_.sent());
}

INSTANTIATE_TEST_SUITE_P(Transports, TcpSilence, testing::Values("tcp", "tcp+tls"),
                         [](const auto& each) { return name_of_kind(each.param); });

INSTANTIATE_TEST_SUITE_P(Transports, Silence,
                         testing::Values("grpc", "tcp", "grpc+tls", "tcp+tls", "tcp*2"),
                         [](const auto& each) { return name_of_kind(each.param); });

}  // namespace
}  // namespace tutti
