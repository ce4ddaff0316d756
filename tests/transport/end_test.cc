// The contract of closing a link, over every transport: every frame is released however the link
// closes and whatever is busy meanwhile, and no transport waits for another's handlers.
#include <functional>
#include <thread>
#include <utility>

#include "tests/transport/fixture.h"

namespace tutti {
namespace {

constexpr uint64_t kFrames = 16;
constexpr std::chrono::seconds kSoon{20};

enum class Way {
  own_close,
  own_transport,
  peer_close,
  peer_transport,
  refused_link,
  refused_frame
};
enum class Busy { nobody, self, peer };
void PrintTo(Way way, std::ostream* out) {
  constexpr const char* kWays[] = {"OwnClose",      "OwnTransport", "PeerClose",
                                   "PeerTransport", "RefusedLink",  "RefusedFrame"};
  *out << kWays[static_cast<int>(way)];
}
void PrintTo(Busy busy, std::ostream* out) {
  constexpr const char* kBusy[] = {"NobodyBusy", "SelfBusy", "PeerBusy"};
  *out << kBusy[static_cast<int>(busy)];
}

// A handler that, once made busy, blocks in on_frame() until it is freed.
class End : public Recorder {
 public:
  explicit End(bool busy) : busy_(busy) {}
  void on_frame(Frame) override {
    monitor_.change([&] { entered_ = true; });
    monitor_.wait([&] { return !busy_; });
  }
  bool wait_entered() {
    return monitor_.wait([&] { return entered_; });
  }
  void let_go() {
    monitor_.change([&] { busy_ = false; });
  }

 private:
  Monitor monitor_;
  bool busy_;
  bool entered_ = false;
};

// Destroys a transport on a thread of its own, which is detached if it does not finish.
class Destruction {
 public:
  explicit Destruction(std::unique_ptr<Transport> transport)
      : thread_([gone = std::move(gone_), transport = std::move(transport)]() mutable {
          transport.reset();
          gone.set_value();
        }) {}
  ~Destruction() { ended() ? thread_.join() : thread_.detach(); }
  bool ended() { return ended_.wait_for(kSoon) == std::future_status::ready; }

 private:
  std::promise<void> gone_;
  std::future<void> ended_ = gone_.get_future();
  std::thread thread_;
};

class LinkEnd : public testing::TestWithParam<std::tuple<const char*, Way, Busy>> {
 protected:
  LinkEnd()
      : way_(std::get<1>(GetParam())),
        busy_(std::get<2>(GetParam())),
        here_end_(std::make_shared<End>(busy_ == Busy::self)),
        far_end_(std::make_shared<End>(busy_ == Busy::peer)) {}

  std::unique_ptr<Transport> make(size_t frame_bytes_max) {
    const LinkLimits limits{.frame_bytes_max = frame_bytes_max};
    return make_transport(std::get<0>(GetParam()), limits, network_);
  }
  void join() {
    std::promise<std::shared_ptr<Link>> accepted;
    const auto address = there_->listen(
        "127.0.0.1:0",
        [&](const IncomingLink& guest, auto link) -> Result<std::shared_ptr<LinkHandler>> {
          if (way_ == Way::refused_link) return aborted("no link today");
          EXPECT_TRUE(guest.verify_secret(""));
          accepted.set_value(std::move(link));
          return std::shared_ptr<LinkHandler>(far_end_);
        });
    if (way_ == Way::refused_link) make_self_busy();
    near_ = here_->connect(*address, {}, near_end_);
    if (way_ != Way::refused_link) far_ = accepted.get_future().get();
    if (way_ != Way::refused_link) make_self_busy();
  }
  // A frame of a third transport makes it busy.
  void make_self_busy() {
    if (busy_ != Busy::self) return;
    third_ = make(kMiB);
    const auto address = here_->listen("127.0.0.1:0", take_all(here_end_));
    const auto link = third_->connect(*address, {}, std::make_shared<Recorder>());
    ASSERT_TRUE(link->send({}).ok());
    ASSERT_TRUE(here_end_->wait_entered());
  }
  void send_all() {
    for (uint64_t i = 0; i < kFrames; ++i) {
      const Status sent = sender_.send(*near_, kMiB, i);  // A refusal may be here already.
      ASSERT_TRUE(sent.ok() || way_ == Way::refused_link) << sent.to_string();
    }
    ASSERT_TRUE(busy_ != Busy::peer || far_end_->wait_entered());
    if (way_ != Way::refused_frame) return;
    ASSERT_TRUE(sender_.send(*near_, 2 * kMiB, kFrames).ok());
  }
  void begin_end() {
    if (way_ == Way::own_close) near_->close(aborted("enough"));
    if (way_ == Way::own_transport) here_going_.emplace(std::move(here_));
    if (way_ == Way::peer_close) far_->close(aborted("enough"));
    if (way_ == Way::peer_transport) there_going_.emplace(std::move(there_));
  }
  void let_go() {
    here_end_->let_go();
    far_end_->let_go();
  }
  // Nothing on this side may wait for the peer's handler.
  bool ends_by_itself() const { return way_ == Way::own_close || way_ == Way::own_transport; }

  const Way way_;
  const Busy busy_;
  const std::shared_ptr<LocalNetwork> network_ = make_local_network();
  const std::shared_ptr<End> here_end_, far_end_;
  const std::shared_ptr<Recorder> near_end_ = std::make_shared<Recorder>();
  Sender sender_;
  std::unique_ptr<Transport> here_ = make(2 * kMiB), there_ = make(kMiB), third_;
  std::optional<Destruction> here_going_, there_going_;
  std::shared_ptr<Link> near_, far_;
};

TEST_P(LinkEnd, ReleasesAllThatWasBorrowed) {
  join();
  send_all();
  begin_end();
  // The peer's transport is gone before this side can have noticed.
  EXPECT_TRUE(busy_ != Busy::self || !there_going_ || there_going_->ended());
  if (busy_ == Busy::self || !ends_by_itself()) let_go();
  EXPECT_TRUE(near_end_->closed(kSoon).has_value());
  EXPECT_TRUE(sender_.wait_released(sender_.sent(), kSoon));
  if (here_) here_going_.emplace(std::move(here_));
  EXPECT_TRUE(here_going_->ended());
  let_go();
  if (there_) there_going_.emplace(std::move(there_));
  EXPECT_TRUE(there_going_->ended());
}

class LinkAfterItsTransport : public testing::TestWithParam<const char*> {};

TEST_P(LinkAfterItsTransport, MayStillBeUsed) {
  Pair pair(GetParam());
  Joined link = pair.join();
  pair.there.reset();
  pair.here.reset();
  EXPECT_TRUE(pair.heard->verify_secret(pair.hello.secret));
  for (const auto& end : {link.near, link.far}) {
    EXPECT_EQ(end->send({}).code(), Code::unavailable);
    end->close(aborted("again"));
  }
}

std::string name_of(const testing::TestParamInfo<LinkEnd::ParamType>& each) {
  const auto [kind, way, busy] = each.param;
  return name_of_kind(kind) + testing::PrintToString(way) + testing::PrintToString(busy);
}

constexpr auto kTransports = {"local",   "grpc",  "tcp",   "grpc+tls",
                              "tcp+tls", "tcp*1", "tcp*8", "tcp*2+tls"};

INSTANTIATE_TEST_SUITE_P(Transports, LinkEnd,
                         testing::Combine(testing::ValuesIn(kTransports),
                                          testing::Values(Way::own_close, Way::own_transport,
                                                          Way::peer_close, Way::peer_transport,
                                                          Way::refused_frame),
                                          testing::Values(Busy::nobody, Busy::self, Busy::peer)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Refusals, LinkEnd,
                         testing::Combine(testing::ValuesIn(kTransports),
                                          testing::Values(Way::refused_link),
                                          testing::Values(Busy::nobody, Busy::self)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Transports, LinkAfterItsTransport, testing::ValuesIn(kTransports),
                         [](const auto& each) { return name_of_kind(each.param); });

}  // namespace
}  // namespace tutti
