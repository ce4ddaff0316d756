// Connections of TCP links that are cut between and within headers and payloads, from either side.
// However it happens, both ends of the link close and name their peer, no payload arrives that is
// wrong or partial, nothing is left open, and the next link between the same hosts works.
#include <set>

#include "tests/support/await.h"
#include "tests/support/descriptors.h"
#include "tests/transport/proxy.h"

namespace tutti {
namespace {

constexpr size_t kFrameBytes = size_t{256} << 10;  // Goes by a data stream.
constexpr uint64_t kPayloads = 16;                 // Different ones.

const std::vector<std::byte>& payload(uint64_t op_seq) {
  static const auto* const all = [] {
    auto* made = new std::vector<std::vector<std::byte>>;
    for (uint64_t i = 0; i < kPayloads; ++i) made->push_back(pattern(kFrameBytes, i));
    return made;
  }();
  return all->at(op_seq % kPayloads);
}

// Checks that each frame is the next one, whole and right.
class Checker : public LinkHandler {
 public:
  void on_frame(Frame frame) override {
    EXPECT_FALSE(cause.has_value());
    EXPECT_EQ(frame.header.op_seq, frames++);
    EXPECT_TRUE(bytes_of(frame.payload) == payload(frame.header.op_seq)) << frame.header.op_seq;
  }
  void on_closed(Status why) override { cause = std::move(why); }
  uint64_t frames = 0;
  std::optional<Status> cause;
};

// One end of a link. Keeps some frames under way.
struct OneEnd {
  void send_some() {
    constexpr uint64_t kUnderWay = 20;
    while (sent < released + kUnderWay) {
      const Outgoing frame{{.op_seq = sent, .slice = 1}, payload(sent), [this] { ++released; }};
      if (!link->send(frame).ok()) return;
      ++sent;
    }
  }
  auto connections_open() const {
    return std::ranges::count_if(link->connections(),
                                 [](const auto& each) { return each.round_trip.count() != 0; });
  }
  std::shared_ptr<Link> link;
  std::shared_ptr<Checker> checker = std::make_shared<Checker>();
  uint64_t sent = 0;
  std::atomic<uint64_t> released = 0;
};

class Cuts : public testing::TestWithParam<std::tuple<int, bool>> {
 protected:
  explicit Cuts(size_t queue_bytes_max = LinkLimits().queue_bytes_max) {
    limits_.queue_bytes_max = queue_bytes_max;
    there_ = make_tcp_transport(loop_, limits_);
    here_ = make_tcp_transport(loop_, limits_);
    address_ = *there_->listen("127.0.0.1:0", [this](const IncomingLink& guest, auto link) {
      EXPECT_TRUE(guest.verify_secret("s"));
      far_->link = std::move(link);
      return Result<std::shared_ptr<LinkHandler>>(far_->checker);
    });
  }
  // A new link through a new proxy, with all its streams. The first connections after its own are
  // lost in that way.
  void join(size_t lost = 0, const Cut& how = {}) {
    near_ = std::make_unique<OneEnd>();
    far_ = std::make_unique<OneEnd>();
    proxy_.emplace(address_, static_cast<size_t>(1 + streams_) + lost);
    for (size_t connection = 1; connection <= lost; ++connection)
      for (const size_t way : {kToListener, kToDialler}) proxy_->cut_after(connection, way, 0, how);
    near_->link = here_->connect(proxy_->address, hello_, near_->checker);
    const auto opened = [](const OneEnd& end) { return end.link ? end.connections_open() : 0; };
    EXPECT_TRUE(await(loop_, [&] { return std::min(opened(*near_), opened(*far_)) > streams_; }))
        << "open connections: the dialler's " << opened(*near_) << ", the listener's "
        << opened(*far_) << ", of " << 1 + streams_;
  }
  void send_until_closed(OneEnd& from) {
    await(loop_, [&] {
      from.send_some();
      return near_->checker->cause && far_->checker->cause;
    });
  }
  void expect_end() {
    await(loop_, [&] { return near_->released == near_->sent && far_->released == far_->sent; });
    EXPECT_TRUE(near_->checker->cause) << "the dialler's end is open";
    EXPECT_TRUE(far_->checker->cause) << "the listener's end is open";
    if (HasFailure()) return;
    for (const auto& [cause, peer] :
         {std::pair(*near_->checker->cause, host_and_port(proxy_->address)),
          std::pair(*far_->checker->cause, std::string("host a at 127.0.0.1:"))}) {
      EXPECT_EQ(cause.code(), Code::unavailable) << cause.to_string();
      EXPECT_NE(cause.message().find("the link to " + peer), std::string::npos) << cause.message();
    }
  }
  void cut(bool by_dialler, size_t connection, int64_t bytes, const Cut& how) {
    join();
    if (HasFailure()) return;
    proxy_->cut_after(connection, by_dialler ? kToListener : kToDialler, bytes, how);
    send_until_closed(by_dialler ? *near_ : *far_);
    expect_end();
  }
  void expect_frames(OneEnd& from, const Checker& to) {
    from.send_some();
    await(loop_, [&] { return to.frames == from.sent && from.released == from.sent; });
  }
  std::set<size_t> connections() const { return {0, 1, static_cast<size_t>(streams_)}; }

  const int streams_ = std::get<0>(GetParam());
  LinkLimits limits_{.silence_ms = 3'600'000, .tls = std::get<1>(GetParam()), .streams = streams_};
  const LinkHello hello_{.job = "demo", .host = "a", .secret = "s"};
  Loop loop_;
  std::unique_ptr<OneEnd> near_, far_ = std::make_unique<OneEnd>();
  std::optional<Proxy> proxy_;
  std::unique_ptr<Transport> there_, here_;
  std::string address_;
};

// Where a connection is cut, in bytes of its own: within a header, between headers, within a
// payload, between payloads.
std::vector<int64_t> places(size_t connection) {
  constexpr auto kHeader = static_cast<int64_t>(sizeof(FrameHeader));
  constexpr auto kPayload = static_cast<int64_t>(kFrameBytes);
  if (connection == 0) return {0, 1, kHeader - 1, kHeader, 2 * kHeader + 5};
  return {0, 1, kPayload / 2, kPayload, kPayload + 1};
}

// If the link's own connection is cut at one end alone, the other end hears nothing:
// silence_test.cc.
std::vector<Cut> cuts(size_t connection) {
  std::vector<Cut> all;
  for (const bool resets : {false, true}) {
    all.push_back({true, true, resets});
    if (connection == 0) continue;
    all.push_back({true, false, resets});
    all.push_back({false, true, resets});
  }
  return all;
}

TEST_P(Cuts, EndTheLinkAtBothSides) {
  for (const bool by_dialler : {true, false})
    for (const size_t connection : connections())
      for (const int64_t bytes : places(connection))
        for (const Cut& how : cuts(connection)) {
          SCOPED_TRACE(testing::Message()
                       << (by_dialler ? "the dialler" : "the listener") << " sends; connection "
                       << connection << " is cut after " << bytes << " bytes, at "
                       << (how.at_dialler ? "the dialler " : "")
                       << (how.at_listener ? "the listener" : "") << (how.resets ? ", reset" : ""));
          cut(by_dialler, connection, bytes, how);
          if (HasFailure()) return;
        }
  join();
  if (HasFailure()) return;
  expect_frames(*near_, *far_->checker);
  expect_frames(*far_, *near_->checker);
}

// Two connections at the same moment, while nothing is sent.
TEST_P(Cuts, OfSeveralConnectionsLeaveNothingOpen) {
  join();
  const int before = open_descriptors();
  for (const size_t first : connections())
    for (const size_t second : connections()) {
      if (first == second) continue;
      proxy_->cut_after(first, kToListener, 0, {});
      proxy_->cut_after(second, kToDialler, 0, {.resets = true});
      await(loop_, [&] { return near_->checker->cause && far_->checker->cause; });
      expect_end();
      join();
      EXPECT_TRUE(await(loop_, [&] { return open_descriptors() == before; })) << first << second;
      if (HasFailure()) return;
    }
}

struct LostStreams : Cuts {};

TEST_P(LostStreams, AreDialledAgainWhileTheLinkLives) {
  join(22);
  if (HasFailure()) return;
  expect_frames(*near_, *far_->checker);
}

// It keeps other payloads until it has one that does not come, and reads no more headers.
struct FullEnds : Cuts {
  FullEnds() : Cuts(4 * kFrameBytes) {}
  // Sends until nothing moves and the far end keeps more than a queue's bytes.
  void fill() {
    int seen = -1;
    int still = 0;
    await(loop_, [&] {
      near_->send_some();
      const int now = proxy_->forwarded.at(kToListener);
      still = now == std::exchange(seen, now) ? still + 1 : 0;
      return still >= 20 && near_->sent > far_->checker->frames + 4;
    });
  }
};

TEST_P(FullEnds, NoticeThatTheLinkEnds) {
  join();
  if (HasFailure()) return;
  proxy_->cut_after(2, kToListener, kFrameBytes / 2, {.at_dialler = false, .at_listener = false});
  fill();
  near_->link->abort(unavailable("enough"));
  EXPECT_TRUE(await(loop_, [&] { return far_->checker->cause.has_value(); }));
}

const auto kNameOfCut = [](const auto& each) {
  return "tcp_" + std::to_string(std::get<0>(each.param)) + (std::get<1>(each.param) ? "_tls" : "");
};
INSTANTIATE_TEST_SUITE_P(Transports, Cuts,
                         testing::Combine(testing::Values(1, 2, 8), testing::Bool()), kNameOfCut);
INSTANTIATE_TEST_SUITE_P(Transports, LostStreams,
                         testing::Combine(testing::Values(1), testing::Bool()), kNameOfCut);
INSTANTIATE_TEST_SUITE_P(Transports, FullEnds,
                         testing::Combine(testing::Values(2), testing::Bool()), kNameOfCut);

}  // namespace
}  // namespace tutti
