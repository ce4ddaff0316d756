// A worker's router: links of epochs to come wait there, but not for ever, and not once they ended.
#include "daemon/worker/link_router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Keeps the links that were led in, and what comes over them.
struct FakeEpoch final : Epoch {
  FakeEpoch(uint32_t epoch, std::string secret) {
    made_of.epoch = epoch;
    made_of.secret = std::move(secret);
  }
  void adopt(const std::string& host, std::shared_ptr<Link> link,
             std::shared_ptr<LoopHandler> handler) override {
    hosts.push_back(host);
    links.push_back(std::move(link));
    handler->bind([this](const Frame& frame) { frames.push_back(frame.header.op_seq); },
                  [this](const Status& cause) { ends.push_back(cause.code()); });
  }
  const Roster& roster() const override { return made_of; }

  void submit(int, Call) override {}
  void filled(uint32_t, uint64_t) override {}
  Result<uint32_t> subgroup(int, const std::vector<uint32_t>&) override { return 0; }
  void leave(int, const Status&) override {}
  void abort(const Status&) override {}
  void set_strategy(const Strategies&) override {}
  Status send(const OpKey&, int, Outgoing) override { return {}; }
  bool needed() const override { return false; }
  bool over() const override { return false; }
  bool broken() const override { return false; }
  const Status& cause() const override { return none; }
  const std::vector<int>& departures() const override { return nobody; }
  EpochStats stats() const override { return {}; }

  Roster made_of;
  Status none;
  std::vector<int> nobody;
  std::vector<std::string> hosts;
  std::vector<std::shared_ptr<Link>> links;
  std::vector<uint64_t> frames;
  std::vector<Code> ends;
};

struct FakeEpochs : LinkRouter::Events {
  Epoch* find_epoch(uint32_t epoch) override {
    const auto found = epochs.find(epoch);
    return found == epochs.end() ? nullptr : &found->second;
  }
  std::map<uint32_t, FakeEpoch> epochs;
};

struct FakeLink : Link {
  Status send(Outgoing) override { return {}; }
  void close(Status why) override { closed.push_back(std::move(why)); }
  void abort(Status why) override { close(std::move(why)); }
  std::vector<Status> closed;
};

struct WorkerDoor : testing::Test {
  static constexpr int kMany = 256;  // As many as may wait.

  // One that host b dials, and the handler that the router gave it.
  struct Knock {
    std::shared_ptr<FakeLink> link = std::make_shared<FakeLink>();
    std::shared_ptr<LinkHandler> handler;

    bool is_open() const { return link->closed.empty(); }
    Code refusal() const { return link->closed.empty() ? Code::ok : link->closed.at(0).code(); }
    void send(uint64_t op_seq) const {
      Frame frame;
      frame.header.op_seq = op_seq;
      handler->on_frame(std::move(frame));
    }
  };

  Knock knock(uint32_t epoch, const std::string& secret = "secret") {
    Knock knock;
    const auto knows = [secret](const std::string& asked) { return asked == secret; };
    auto handler = accept({"demo", epoch, "b", knows}, knock.link);
    EXPECT_TRUE(handler.ok()) << handler.status().to_string();
    if (handler.ok()) knock.handler = *handler;
    loop.run_once(Clock::now());
    return knock;
  }
  FakeEpoch& open_epoch(uint32_t number, const std::string& secret = "secret") {
    FakeEpoch& epoch = epochs.epochs.try_emplace(number, number, secret).first->second;
    router->on_epoch_formed(number);
    return epoch;
  }
  void build_router(Millis patience) {
    router = std::make_unique<LinkRouter>(loop, "demo", patience, epochs);
    accept = router->acceptor();
  }
  void SetUp() override { build_router(std::chrono::hours(1)); }

  Loop loop;
  FakeEpochs epochs;
  std::unique_ptr<LinkRouter> router;
  Acceptor accept;
};

TEST_F(WorkerDoor, LinkOfAnOpenEpochGoesInAtOnce) {
  FakeEpoch& epoch = open_epoch(5);
  const Knock one = knock(5);
  EXPECT_THAT(epoch.hosts, ElementsAre("b"));
  EXPECT_THAT(epoch.links, ElementsAre(one.link));
  one.send(3);
  EXPECT_THAT(epoch.frames, ElementsAre(3));
  EXPECT_TRUE(one.is_open());
}

TEST_F(WorkerDoor, LinkOfAnEpochToComeWaitsWithItsFramesUntilItOpens) {
  const Knock early = knock(9);
  early.send(1);
  early.send(2);
  FakeEpoch& other = open_epoch(8);
  EXPECT_THAT(other.hosts, IsEmpty());
  EXPECT_TRUE(early.is_open());
  FakeEpoch& epoch = open_epoch(9);
  EXPECT_THAT(epoch.links, ElementsAre(early.link));
  EXPECT_THAT(epoch.frames, ElementsAre(1, 2));
  EXPECT_TRUE(early.is_open());
}

TEST_F(WorkerDoor, LinkThatIsNeverLedInIsTurnedAwayWhenItsTimeIsUp) {
  build_router(Millis(50));
  const TimePoint begin = Clock::now();
  const Knock lost = knock(9);
  EXPECT_TRUE(lost.is_open());
  const TimePoint limit = begin + Millis(30'000);
  while (lost.is_open() && Clock::now() < limit) loop.run_once(limit);
  EXPECT_EQ(lost.refusal(), Code::unauthenticated);
  EXPECT_GE(Clock::now(), begin + Millis(50));
  EXPECT_THAT(open_epoch(9).hosts, IsEmpty());
  EXPECT_EQ(lost.link->closed.size(), 1u);
}

TEST_F(WorkerDoor, LinkOfAnEpochThatIsOverIsRefusedAtOnce) {
  open_epoch(5);
  epochs.epochs.clear();
  const Knock late = knock(5);
  ASSERT_EQ(late.refusal(), Code::failed_precondition);
  EXPECT_EQ(late.link->closed[0].message(), "epoch 5 of job demo is over");
}

// A coordinator that was restarted counts from what it is told: another worker's numbers may be
// behind this one's.
TEST_F(WorkerDoor, EpochThatThisWorkerNeverHadIsToComeWhateverItsNumber) {
  open_epoch(5);
  epochs.epochs.clear();
  const Knock early = knock(2);
  EXPECT_TRUE(early.is_open());
  EXPECT_THAT(open_epoch(2).links, ElementsAre(early.link));
}

TEST_F(WorkerDoor, NumberThatIsUsedAgainIsOfAnEpochToCome) {
  open_epoch(1, "old secret");
  epochs.epochs.clear();
  const Knock early = knock(1, "new secret");
  EXPECT_TRUE(early.is_open());
  EXPECT_EQ(knock(1, "old secret").refusal(), Code::failed_precondition);
  EXPECT_THAT(open_epoch(1, "new secret").links, ElementsAre(early.link));
}

TEST_F(WorkerDoor, LinkThatDoesNotKnowTheSecretIsRefused) {
  const Knock early = knock(5, "a guess");
  EXPECT_TRUE(early.is_open());
  FakeEpoch& epoch = open_epoch(5);
  EXPECT_EQ(early.refusal(), Code::unauthenticated);
  EXPECT_EQ(knock(5, "another").refusal(), Code::unauthenticated);
  FakeEpoch& open_to_all = open_epoch(6, "");
  EXPECT_EQ(knock(6, "").refusal(), Code::unauthenticated);
  EXPECT_THAT(epoch.hosts, IsEmpty());
  EXPECT_THAT(open_to_all.hosts, IsEmpty());
}

TEST_F(WorkerDoor, LinkOfAnotherJobIsNotFound) {
  const auto link = std::make_shared<FakeLink>();
  const auto handler = accept({"other", 1, "b", [](const std::string&) { return true; }}, link);
  ASSERT_FALSE(handler.ok());
  EXPECT_EQ(handler.status().code(), Code::not_found);
  EXPECT_EQ(handler.status().message(), "this worker serves job demo, not other");
}

TEST_F(WorkerDoor, HasNoRoomForMoreThanSoManyThatWait) {
  std::vector<Knock> waiting;
  for (int i = 0; i < kMany; ++i) waiting.push_back(knock(9));
  EXPECT_EQ(knock(9).refusal(), Code::resource_exhausted);
  for (const Knock& one : waiting) EXPECT_TRUE(one.is_open());
  EXPECT_EQ(open_epoch(9).links.size(), size_t{kMany});
  EXPECT_TRUE(knock(10).is_open());  // They wait no more.
}

TEST_F(WorkerDoor, WhoHangsUpMakesRoomForOne) {
  std::vector<Knock> waiting;
  for (int i = 0; i < kMany; ++i) waiting.push_back(knock(9));
  waiting[7].handler->on_closed(unavailable("it hung up"));
  loop.run_once(Clock::now());
  EXPECT_TRUE(knock(9).is_open());
  EXPECT_EQ(knock(9).refusal(), Code::resource_exhausted);
  const FakeEpoch& epoch = open_epoch(9);
  EXPECT_EQ(epoch.links.size(), size_t{kMany});
  EXPECT_THAT(epoch.links, testing::Not(testing::Contains(waiting[7].link)));
  EXPECT_THAT(epoch.ends, IsEmpty());
}

TEST_F(WorkerDoor, ClosedDoorHearsNoMore) {
  const Knock waiting = knock(9);
  const Knock other = knock(9);
  const auto unheard = std::make_shared<FakeLink>();
  const auto knows = [](const std::string&) { return true; };
  ASSERT_TRUE(accept({"demo", 9, "b", knows}, unheard).ok());
  router.reset();
  waiting.send(1);
  other.handler->on_closed(unavailable("it hung up"));
  loop.run_once(Clock::now());
  EXPECT_THAT(unheard->closed, IsEmpty());
}

}  // namespace
}  // namespace tutti
