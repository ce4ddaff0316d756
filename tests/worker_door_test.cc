// A worker's door: links of epochs to come wait there, but not for ever, and not once they ended.
#include <gtest/gtest.h>

#include "daemon/worker/door.h"

namespace tutti {
namespace {

struct NoWorld : Door::Events {
  World* find_world(uint32_t) override { return nullptr; }
};

struct FakeLink : Link {
  Status send(Outgoing) override { return {}; }
  void close(Status why) override { closed = why.code(); }
  Code closed = Code::ok;
};

struct WorkerDoor : testing::Test {
  // A link of an epoch to come.
  std::shared_ptr<LinkHandler> knock(std::shared_ptr<FakeLink> link) {
    auto handler = accept({"demo", 9, "b", [](const std::string&) { return false; }}, link);
    loop.turn(Clock::now());
    return handler.ok() ? *handler : nullptr;
  }

  static constexpr int kMany = 256;  // As many as may wait.
  Loop loop;
  NoWorld nobody;
  Door door{loop, "demo", std::chrono::hours(1), nobody};
  const Acceptor accept = door.acceptor();
  const std::shared_ptr<FakeLink> link = std::make_shared<FakeLink>();
};

TEST_F(WorkerDoor, HasNoRoomForMoreThanSoManyThatWait) {
  for (int i = 0; i < kMany; ++i) ASSERT_NE(knock(std::make_shared<FakeLink>()), nullptr);
  knock(link);
  EXPECT_EQ(link->closed, Code::resource_exhausted);
}

TEST_F(WorkerDoor, WhoHangsUpMakesRoom) {
  for (int i = 0; i < kMany; ++i)
    knock(std::make_shared<FakeLink>())->on_closed(unavailable("it hung up"));
  loop.turn(Clock::now());
  knock(link);
  EXPECT_EQ(link->closed, Code::ok);
}

}  // namespace
}  // namespace tutti
