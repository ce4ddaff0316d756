// LinkRouter: routes incoming links to their epochs. Links of later epochs wait, for a limited
// time; every link that is refused is closed once, with a cause.
#include "daemon/worker/link_router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/await.h"

namespace tutti {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Records the links that it adopts, and what arrives over them.
struct FakeEpoch {
  void add_link(const std::string& host, std::shared_ptr<Link> link, LoopHandler& handler) {
    hosts.push_back(host);
    links.push_back(std::move(link));
    handler.bind([this](const Frame& frame) { frames.push_back(frame.header.op_seq); },
                 [this](const Status& cause) { ends.push_back(cause.code()); },
                 [this](const FrameHeader&) { return recv_buffer; });
  }

  std::string secret;
  std::vector<std::string> hosts;
  std::vector<std::shared_ptr<Link>> links;
  std::vector<uint64_t> frames;
  std::vector<Code> ends;
  const std::shared_ptr<RecvBuffer> recv_buffer = std::make_shared<RecvBuffer>(nullptr);
};

struct FakeEpochs : LinkRouter::Events {
  const std::string* secret_of(uint32_t epoch) const override {
    const auto found = epochs.find(epoch);
    return found == epochs.end() ? nullptr : &found->second.secret;
  }
  void add_link(uint32_t epoch, const std::string& host, std::shared_ptr<Link> link,
                std::shared_ptr<LoopHandler> handler) override {
    epochs.at(epoch).add_link(host, std::move(link), *handler);
  }
  std::map<uint32_t, FakeEpoch> epochs;
};

struct FakeLink : Link {
  Status send(Outgoing) override { return {}; }
  void close(Status why) override { closed.push_back(std::move(why)); }
  void abort(Status why) override { close(std::move(why)); }
  std::vector<Status> closed;
};

struct LinkRouting : testing::Test {
  static constexpr int kWaitingMax = 8;

  // A link that host b dials from an address, and the handler that the router gave it.
  struct Dialled {
    std::shared_ptr<FakeLink> link = std::make_shared<FakeLink>();
    std::shared_ptr<LinkHandler> handler;

    bool is_open() const { return link->closed.empty(); }
    // Returns an observer of the frame's payload, which expires when the handler drops it.
    std::weak_ptr<const void> receive(uint64_t op_seq) const {
      const auto owner = std::make_shared<int>();
      Frame frame;
      frame.header.op_seq = op_seq;
      frame.payload.owner = owner;
      handler->on_frame(std::move(frame));
      return owner;
    }
    void hang_up() const { handler->on_closed(unavailable("it hung up")); }
  };

  Dialled dial(uint32_t epoch, const std::string& secret = "secret",
               const std::string& address = "10.0.0.2") {
    Dialled dialled;
    const auto verify = [secret](const std::string& asked) { return asked == secret; };
    auto handler = accept({"demo", epoch, "b", address, verify}, dialled.link);
    EXPECT_TRUE(handler.ok()) << handler.status().to_string();
    if (handler.ok()) dialled.handler = *handler;
    loop.run_once(Clock::now());
    return dialled;
  }
  // Closed once, with this cause, and deaf from then on.
  static void expect_refused(const Dialled& dialled, const Status& cause) {
    EXPECT_THAT(dialled.link->closed, ElementsAre(cause));
    EXPECT_TRUE(dialled.receive(99).expired()) << "a frame after the refusal is kept";
  }
  FakeEpoch& form_epoch(uint32_t number, const std::string& secret = "secret") {
    FakeEpoch& epoch = epochs.epochs[number];
    epoch.secret = secret;
    router->on_epoch_formed(number);
    return epoch;
  }
  void run_until_closed(const Dialled& dialled) {
    tutti::await(loop, [&] { return !dialled.is_open(); });
  }
  void build_router(Millis wait_timeout) {
    router = std::make_unique<LinkRouter>(loop, "demo", wait_timeout, kWaitingMax, epochs);
    accept = router->acceptor();
  }
  void SetUp() override { build_router(std::chrono::hours(1)); }

  const Status unknown_epoch = unauthenticated("this worker knows of no such epoch of job demo");
  const Status wrong_secret = unauthenticated("the link does not know the job's secret");
  const Status too_many = resource_exhausted("too many links wait for epochs to come");

  Loop loop;
  FakeEpochs epochs;
  std::unique_ptr<LinkRouter> router;
  Acceptor accept;
};

TEST_F(LinkRouting, LinkOfARunningEpochIsAdoptedAtOnce) {
  FakeEpoch& epoch = form_epoch(5);
  const Dialled link = dial(5);
  EXPECT_THAT(epoch.hosts, ElementsAre("b"));
  EXPECT_THAT(epoch.links, ElementsAre(link.link));
  link.receive(3);
  EXPECT_THAT(epoch.frames, ElementsAre(3));
  EXPECT_EQ(link.handler->recv_buffer_for({}), epoch.recv_buffer);
  EXPECT_TRUE(link.is_open());
  link.hang_up();
  EXPECT_THAT(epoch.ends, ElementsAre(Code::unavailable));
}

TEST_F(LinkRouting, LinkOfALaterEpochWaitsWithItsFramesUntilItForms) {
  const Dialled early = dial(9);
  const auto payload = early.receive(1);
  early.receive(2);
  EXPECT_EQ(early.handler->recv_buffer_for({}), nullptr);
  FakeEpoch& other = form_epoch(8);
  EXPECT_THAT(other.hosts, IsEmpty());
  EXPECT_TRUE(early.is_open());
  EXPECT_FALSE(payload.expired());
  FakeEpoch& epoch = form_epoch(9);
  EXPECT_THAT(epoch.links, ElementsAre(early.link));
  EXPECT_THAT(epoch.frames, ElementsAre(1, 2));
  EXPECT_TRUE(early.is_open());
}

TEST_F(LinkRouting, LinkWhoseEpochNeverFormsIsRefusedAfterTheTimeout) {
  build_router(Millis(50));
  const TimePoint begin = Clock::now();
  const Dialled lost = dial(9);
  const auto payload = lost.receive(1);
  EXPECT_TRUE(lost.is_open());
  run_until_closed(lost);
  EXPECT_GE(Clock::now(), begin + Millis(50));
  expect_refused(lost, unknown_epoch);
  EXPECT_TRUE(payload.expired()) << "a refused link's frames are kept";
  EXPECT_THAT(form_epoch(9).hosts, IsEmpty());
  EXPECT_THAT(lost.link->closed, testing::SizeIs(1));
}

TEST_F(LinkRouting, EveryWaitingLinkHasATimeoutOfItsOwn) {
  build_router(Millis(200));
  const TimePoint begin = Clock::now();
  const Dialled first = dial(9);
  while (Clock::now() < begin + Millis(100)) loop.run_once(begin + Millis(100));
  const TimePoint later = Clock::now();
  const Dialled second = dial(10);
  form_epoch(8);  // Both are routed again, and keep their deadlines.
  run_until_closed(first);
  expect_refused(first, unknown_epoch);
  EXPECT_GE(Clock::now(), begin + Millis(200));
  run_until_closed(second);
  expect_refused(second, unknown_epoch);
  EXPECT_GE(Clock::now(), later + Millis(200));
}

TEST_F(LinkRouting, LinkOfAnEpochThatIsOverIsRefusedAtOnce) {
  form_epoch(5);
  epochs.epochs.clear();
  expect_refused(dial(5), failed_precondition("epoch 5 of job demo is over"));
}

// A coordinator that was restarted continues from the numbers that workers report, so that its next
// number may be lower than one that this worker has seen.
TEST_F(LinkRouting, LinkOfAnEpochThatThisWorkerNeverHadWaitsWhateverItsNumber) {
  form_epoch(5);
  epochs.epochs.clear();
  const Dialled early = dial(2);
  EXPECT_TRUE(early.is_open());
  EXPECT_THAT(form_epoch(2).links, ElementsAre(early.link));
}

TEST_F(LinkRouting, LinkOfAReusedNumberWaitsIfItProvesAnotherSecret) {
  form_epoch(1, "old secret");
  epochs.epochs.clear();
  const Dialled early = dial(1, "new secret");
  EXPECT_TRUE(early.is_open());
  expect_refused(dial(1, "old secret"), failed_precondition("epoch 1 of job demo is over"));
  EXPECT_THAT(form_epoch(1, "new secret").links, ElementsAre(early.link));
}

TEST_F(LinkRouting, LinkWithoutTheSecretIsRefused) {
  const Dialled early = dial(5, "a guess");
  const auto payload = early.receive(1);
  EXPECT_TRUE(early.is_open());
  FakeEpoch& epoch = form_epoch(5);
  expect_refused(early, wrong_secret);
  EXPECT_TRUE(payload.expired()) << "a refused link's frames are kept";
  expect_refused(dial(5, "another"), wrong_secret);
  FakeEpoch& without_secret = form_epoch(6, "");
  expect_refused(dial(6, ""), wrong_secret);
  EXPECT_THAT(epoch.hosts, IsEmpty());
  EXPECT_THAT(epoch.frames, IsEmpty());
  EXPECT_THAT(without_secret.hosts, IsEmpty());
}

TEST_F(LinkRouting, LinkOfAnotherJobIsRefusedByTheAcceptor) {
  const auto link = std::make_shared<FakeLink>();
  const auto handler =
      accept({"other", 1, "b", "10.0.0.2", [](const std::string&) { return true; }}, link);
  EXPECT_EQ(handler.status(), not_found("this worker serves job demo, not other"));
  EXPECT_THAT(link->closed, IsEmpty()) << "the transport closes what an acceptor refuses";
  loop.run_once(Clock::now());
  EXPECT_EQ(link.use_count(), 1) << "the router keeps it";
}

TEST_F(LinkRouting, BeyondTheLimitTheOldestMakesRoom) {
  std::vector<Dialled> waiting;
  for (int i = 0; i <= kWaitingMax; ++i) waiting.push_back(dial(9));
  expect_refused(waiting[0], too_many);
  for (int i = 1; i <= kWaitingMax; ++i) EXPECT_TRUE(waiting[i].is_open());
  EXPECT_EQ(form_epoch(9).links.size(), size_t{kWaitingMax});
  EXPECT_TRUE(dial(10).is_open());  // None waits any more.
}

// A stranger may say any host, epoch and proof.
TEST_F(LinkRouting, OneAddressDoesNotDriveOutAnother) {
  const Dialled honest = dial(9, "secret", "10.0.0.3");
  std::vector<Dialled> flood;
  for (int i = 0; i < 5 * kWaitingMax; ++i) flood.push_back(dial(4'000'000'000, "a guess"));
  const Dialled later = dial(9, "secret", "10.0.0.4");
  EXPECT_TRUE(honest.is_open());
  EXPECT_TRUE(later.is_open());
  expect_refused(flood[0], too_many);
  EXPECT_TRUE(flood.back().is_open());
  EXPECT_THAT(form_epoch(9).links, ElementsAre(honest.link, later.link));
}

TEST_F(LinkRouting, WaitingLinkThatClosesMakesRoomForAnother) {
  std::vector<Dialled> waiting;
  for (int i = 0; i < kWaitingMax; ++i) waiting.push_back(dial(9));
  const auto payload = waiting[7].receive(1);
  waiting[7].hang_up();
  loop.run_once(Clock::now());
  EXPECT_TRUE(waiting[7].is_open()) << "the router closed a link that had closed";
  EXPECT_TRUE(payload.expired()) << "a closed link's frames are kept";
  EXPECT_TRUE(dial(9).is_open());
  EXPECT_TRUE(waiting[0].is_open());
  dial(9);
  expect_refused(waiting[0], too_many);
  const FakeEpoch& epoch = form_epoch(9);
  EXPECT_EQ(epoch.links.size(), size_t{kWaitingMax});
  EXPECT_THAT(epoch.links, testing::Not(testing::Contains(waiting[7].link)));
  EXPECT_THAT(epoch.ends, IsEmpty());
}

TEST_F(LinkRouting, NothingReachesARouterThatIsGone) {
  const Dialled waiting = dial(9);
  const Dialled other = dial(9);
  const auto payload = waiting.receive(1);
  const auto unrouted = std::make_shared<FakeLink>();
  const auto verify = [](const std::string&) { return true; };
  ASSERT_TRUE(accept({"demo", 9, "b", "10.0.0.2", verify}, unrouted).ok());
  router.reset();
  EXPECT_TRUE(payload.expired()) << "a waiting link's frames outlive the router";
  EXPECT_TRUE(waiting.receive(2).expired());
  other.hang_up();
  loop.run_once(Clock::now());
  EXPECT_THAT(unrouted->closed, IsEmpty());
  EXPECT_EQ(unrouted.use_count(), 1) << "a router that is gone keeps a link";
}

}  // namespace
}  // namespace tutti
