// A trainer that means harm: whatever it writes, the daemon lives and the neighbour is served.
#include <fcntl.h>

#include <fstream>
#include <random>

#include "tests/session_trainer.h"

namespace tutti {
namespace {

using testing::HasSubstr;

void expect_broken(Loop& loop, Served& served, const std::string& how) {
  ASSERT_TRUE(turn_until(loop, [&] { return served.events.ends > 0; })) << how;
  EXPECT_FALSE(served.events.leaving);
  EXPECT_EQ(served.events.why.code(), Code::invalid_argument);
  EXPECT_THAT(served.events.why.message(), HasSubstr(how));
  drain(loop);
  EXPECT_EQ(served.events.ends, 1);
}

TEST(SessionBreach, HeadBeyondTheRing) {
  Loop loop;
  for (const uint32_t head : {kRingSlots + 1, ~uint32_t{0}, uint32_t{1} << 31}) {
    Served served(loop);
    served.trainer.header().head.store(head);
    served.trainer.ring();
    expect_broken(loop, served, "more requests than the ring has slots");
    EXPECT_TRUE(served.events.requests.empty());
  }
}

TEST(SessionBreach, UnknownVerb) {
  Loop loop;
  for (const uint8_t verb : {6, 63, 65, 255}) {
    Served served(loop);
    Request request = all_reduce_request();
    request.verb = verb;
    served.trainer.submit(request);
    expect_broken(loop, served, "unknown verb " + std::to_string(verb));
  }
}

TEST(SessionBreach, SlotOutsideTheRing) {
  Loop loop;
  for (const uint32_t slot : {kRingSlots, ~uint32_t{0}}) {
    Served served(loop);
    served.trainer.submit(all_reduce_request(slot));
    expect_broken(loop, served, "slot that the ring does not have");
  }
}

TEST(SessionBreach, SlotUsedTwice) {
  Loop loop;
  Served served(loop);
  served.trainer.submit(all_reduce_request(4));
  served.trainer.submit(all_reduce_request(4));
  expect_broken(loop, served, "slot again");
  EXPECT_EQ(served.events.requests.size(), 1u);
}

TEST(SessionBreach, BytesOnTheSocket) {
  Loop loop;
  Served served(loop);
  EXPECT_EQ(send(served.trainer.socket(), "x", 1, 0), 1);
  expect_broken(loop, served, "bytes on its socket");
}

TEST(SessionBreach, BrokenSessionIsDeafToItsTrainer) {
  Loop loop;
  Served served(loop);
  served.trainer.submit(all_reduce_request(kRingSlots));
  expect_broken(loop, served, "slot");
  served.trainer.submit(all_reduce_request(0));
  drain(loop);
  EXPECT_TRUE(served.events.requests.empty());
}

// Rings once more than needed, with nothing new: no event, no busy loop.
TEST(SessionBreach, IdleRingingIsHarmless) {
  Loop loop;
  Served served(loop);
  for (int i = 0; i < 1000; ++i) {
    served.trainer.ring();
    loop.turn(Clock::now());
  }
  EXPECT_EQ(served.events.ends, 0);
  EXPECT_TRUE(served.events.requests.empty());
}

class Storm {
 public:
  explicit Storm(uint64_t seed) : random_(seed) {}

  // Writes like an honest client, a careless one, or a mad one.
  void strike(FakeTrainer& trainer) {
    switch (random_() % 4) {
      case 0:
        return trainer.publish(careless());
      case 1:
        return scribble(trainer, kRequestsOffset, kCompletionsOffset);
      case 2:
        return scribble(trainer, 0, kArenaOffset);
      default:
        trainer.header().head.fetch_add(static_cast<uint32_t>(random_() % 3));
    }
  }

 private:
  Request careless() {
    Request request{};
    request.slot = static_cast<uint32_t>(random_() % (kRingSlots + 1));
    request.verb = static_cast<uint8_t>(random_() % 7);
    request.dtype = static_cast<uint8_t>(random_() % 9);
    request.op = static_cast<uint8_t>(random_() % 6);
    request.group = static_cast<uint32_t>(random_() % 3);
    request.root = static_cast<uint32_t>(random_() % 5);
    request.count = random_() >> (random_() % 64);
    request.in_offset = random_() >> (random_() % 64);
    request.out_offset = random_() >> (random_() % 64);
    return request;
  }
  void scribble(FakeTrainer& trainer, uint64_t from, uint64_t to) {
    const uint64_t garbage = random_();
    const uint64_t at = from + random_() % (to - from - sizeof(garbage));
    std::memcpy(trainer.at(at), &garbage, sizeof(garbage));
  }

  std::mt19937_64 random_;
};

// What reaches the daemon's inside must be safe to use in full.
void touch(Served& served) {
  for (const OpRequest& op : served.events.requests) {
    const size_t bytes = op.count * size_of(op.dtype);
    if (op.in != nullptr && bytes != 0) static_cast<void>(op.in[bytes - 1]);
    if (op.out != nullptr && bytes != 0) op.out[bytes - 1] = std::byte{1};
    served.session->complete(op.slot, op.invalid);
  }
  for (const auto& [slot, ranks] : served.events.subgroups) served.session->complete(slot, {}, 1);
  served.events.requests.clear();
  served.events.subgroups.clear();
}

TEST(SessionStorm, GarbageNeverCrashesAndTheNeighbourIsServed) {
  Loop loop;
  Storm storm(20261120);
  Served neighbour(loop, 0, 4);
  auto hostile = std::make_unique<Served>(loop);
  int breaches = 0;
  for (int i = 0; i < 100'000; ++i) {
    storm.strike(hostile->trainer);
    hostile->trainer.ring();
    if (i % 100 == 0) neighbour.trainer.submit(all_reduce_request());
    loop.turn(Clock::now());
    touch(*hostile);
    if (i % 100 == 0) {
      ASSERT_TRUE(turn_until(loop, [&] { return neighbour.events.requests.size() == 1; }));
      ASSERT_TRUE(neighbour.events.requests[0].invalid.ok());
      touch(neighbour);
    }
    if (hostile->events.ends == 0) continue;
    ++breaches;
    hostile = std::make_unique<Served>(loop);
  }
  EXPECT_GT(breaches, 1000);
  EXPECT_EQ(neighbour.events.ends, 0);
}

size_t mappings() {
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);)
    count += line.find("tutti-segment") != std::string::npos ? 1 : 0;
  return count;
}

TEST(SessionLeak, DescriptorsAndMappingsAreGivenBack) {
  Loop loop;
  const size_t descriptors = open_descriptors();
  ASSERT_EQ(mappings(), 0u);
  for (int i = 0; i < 200; ++i) {
    Served served(loop);
    if (i == 0) {
      EXPECT_EQ(mappings(), 2u);  // The daemon's and the trainer's.
    }
    served.trainer.submit(all_reduce_request());
    if (i % 2 == 0) served.trainer.hang_up();
    drain(loop);
  }
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_EQ(mappings(), 0u);
}

}  // namespace
}  // namespace tutti
