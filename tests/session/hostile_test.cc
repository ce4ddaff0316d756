// A trainer that means harm: whatever it writes, the daemon lives and the neighbour is served.
#include <fcntl.h>

#include <fstream>
#include <random>

#include "tests/session/trainer.h"

namespace tutti {
namespace {

using testing::HasSubstr;

void expect_broken(Loop& loop, Served& served, const std::string& how) {
  ASSERT_TRUE(await(loop, [&] { return served.events.ends > 0; })) << how;
  EXPECT_FALSE(served.events.leaving);
  EXPECT_EQ(served.events.why.code(), Code::invalid_argument);
  EXPECT_THAT(served.events.why.message(), HasSubstr(how));
  drain(loop);
  EXPECT_EQ(served.events.ends, 1);
}

void expect_served(Loop& loop, Served& served, uint64_t number) {
  served.events.requests.clear();
  served.trainer.submit(number, all_reduce_request());
  ASSERT_TRUE(await(loop, [&] { return served.events.requests.size() == 1; })) << number;
  EXPECT_TRUE(served.events.requests[0].invalid.ok());
  EXPECT_EQ(served.events.requests[0].number, number);
  served.board->complete({0, number}, {});
  EXPECT_TRUE(served.trainer.is_done(number));
}

// Whatever the word says but that the operation is called: nothing is handed on.
TEST(SessionBreach, WordsThatAreNoCallsHandNothingOn) {
  Loop loop;
  Served served(loop);
  for (const auto phase : {0, 2, 3, 4, 5, 77, 255})
    for (const uint32_t arrived : {0u, 1u, 2u, 0xffffu}) {
      served.trainer.write(0, all_reduce_request());
      served.trainer.set_word(0, static_cast<board::Phase>(phase), arrived);
      served.trainer.call(0);
      drain(loop);
    }
  EXPECT_TRUE(served.events.requests.empty());
  EXPECT_EQ(served.events.ends, 0);
  served.trainer.area().slot_of(0).word = 0;
  expect_served(loop, served, 0);
}

// The call is refused in its place of the order, and names the rank; the epoch goes on.
TEST(SessionBreach, UnknownVerbsFailTheirOperation) {
  Loop loop;
  Served served(loop);
  uint64_t number = 0;
  for (const uint8_t collective : {kCollectives, 63, 65, 200, 255}) {
    Request request = all_reduce_request();
    request.collective = collective;
    served.trainer.submit(number, request);
    ASSERT_TRUE(await(loop, [&] { return served.events.requests.size() == 1; }));
    const Status invalid = served.events.requests[0].invalid;
    EXPECT_EQ(invalid.code(), Code::invalid_argument);
    EXPECT_EQ(invalid.culprit(), (Culprit{1, "a"}));
    EXPECT_THAT(invalid.message(), HasSubstr("unknown collective " + std::to_string(collective)));
    served.board->complete({0, number}, invalid);
    EXPECT_TRUE(served.trainer.has_failed(number));
    EXPECT_EQ(served.events.ends, 0);
    expect_served(loop, served, number + 1);
    served.events.requests.clear();
    number += 2;
  }
}

// An arrival at another operation: no rank has arrived.
TEST(SessionBreach, ArrivalsAtOtherOperationsHandNothingOn) {
  Loop loop;
  Served served(loop);
  for (const uint64_t arrived : {uint64_t{0}, uint64_t{1}, uint64_t{4}, 5 + uint64_t{kBoardSlots},
                                 ~uint64_t{0}, uint64_t{1} << 63}) {
    served.trainer.write(4, all_reduce_request()).arrived = arrived;
    served.trainer.set_word(4, board::Phase::called, 1);
    served.trainer.call(4);
    drain(loop);
    EXPECT_TRUE(served.events.requests.empty()) << arrived;
  }
  expect_served(loop, served, 4);
}

// A request that is called, changed and called again is forwarded once.
TEST(SessionBreach, ARequestComesOnceHoweverOftenItIsWritten) {
  Loop loop;
  Served served(loop);
  for (int i = 0; i < 100; ++i) {
    Request request = all_reduce_request();
    request.timeout_ms = static_cast<uint32_t>(i);
    served.trainer.submit(4, request);
    drain(loop);
  }
  ASSERT_EQ(served.events.requests.size(), 1u);
  EXPECT_EQ(served.events.requests[0].timeout_ms, 0u);
}

// A slot that runs ahead of its verdicts: what the worker has in hand stays bounded.
TEST(SessionBreach, TurnsWithoutVerdictsHandNothingMoreOn) {
  Loop loop;
  Served served(loop);
  for (uint64_t generation = 0; generation < 1000; ++generation) {
    served.trainer.submit(3 + generation * kBoardSlots, all_reduce_request());
    loop.run_once(Clock::now());
  }
  drain(loop);
  ASSERT_EQ(served.events.requests.size(), 1u);
  EXPECT_EQ(served.events.requests[0].number, 3u);
  served.board->complete({0, 3}, {});
  expect_served(loop, served, 3 + 1000 * kBoardSlots);
}

// Generation 0 serves no operation, and generations wrap.
TEST(SessionBreach, TurnsThatAreNoneHarmNobody) {
  Loop loop;
  Served served(loop);
  Served neighbour(loop, 0, 4);
  for (const uint32_t generation : {0u, ~uint32_t{0}, 1u << 31}) {
    const uint64_t number = board::number_of(generation, 7);
    served.trainer.write(number, all_reduce_request());
    auto& word = served.trainer.area().slot(7).word;
    word = pack(board::SlotWord{generation, board::Phase::called, true, 1});
    served.trainer.call(7);
    drain(loop);
    for (const Call& op : std::exchange(served.events.requests, {}))
      served.board->complete({op.group, op.number}, op.invalid);
    EXPECT_EQ(board::unpack(word.load()).generation, generation);
  }
  EXPECT_EQ(served.events.ends, 0);
  expect_served(loop, neighbour, 7);
}

TEST(SessionBreach, MarksForAreasAndSlotsThatAreNoneAreIgnored) {
  Loop loop;
  Served served(loop);
  for (auto& word : served.trainer.board().called) word = ~uint64_t{0};
  for (auto& word : served.trainer.area().header().called) word = ~uint64_t{0};
  for (auto& word : served.trainer.area(1).header().called) word = ~uint64_t{0};
  served.trainer.ring();
  drain(loop);
  EXPECT_EQ(served.trainer.board().called[0].load(), 0u);
  EXPECT_TRUE(served.events.requests.empty());
  expect_served(loop, served, 0);
}

TEST(SessionBreach, MailThatIsGarbageIsAnsweredOrIgnored) {
  Loop loop;
  Served served(loop);
  BoardSubgroupRequest& subgroup = served.trainer.view().subgroup_request(0);
  std::mt19937_64 random(3);
  for (int i = 0; i < 2000; ++i) {
    subgroup.ranks = static_cast<uint32_t>(random() >> (random() % 64));
    subgroup.list_offset = random() >> (random() % 64);
    subgroup.group = subgroup.area = static_cast<uint32_t>(random());
    const auto state = static_cast<uint32_t>(random() % 2 == 0 ? 1 : random());
    subgroup.state = state;
    served.trainer.view().subgroup_request(1 + random() % (kLocalRanksMax - 1)).state =
        1;  // No such local rank.
    served.trainer.ring();
    loop.run_once(Clock::now());
    for (const auto& ranks : std::exchange(served.events.subgroups, {}))
      served.board->answer_subgroup(1, unavailable("no"), ranks);
    ASSERT_EQ(subgroup.state.load(),
              state == 1 ? static_cast<uint32_t>(SubgroupRequestState::answered) : state);
  }
  EXPECT_EQ(served.events.ends, 0);
  expect_served(loop, served, 0);
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
  EXPECT_EQ(send(served.trainer.socket(), "x", 1, 0), 1);
  expect_broken(loop, served, "bytes on its socket");
  served.trainer.submit(0, all_reduce_request());
  const std::array<uint32_t, 1> ranks = {1};
  served.trainer.ask_subgroup(ranks);
  drain(loop);
  EXPECT_TRUE(served.events.requests.empty());
  EXPECT_TRUE(served.events.subgroups.empty());
}

// Rings once more than needed, with nothing new: no event, no busy loop.
TEST(SessionBreach, IdleRingingIsHarmless) {
  Loop loop;
  Served served(loop);
  for (int i = 0; i < 1000; ++i) {
    served.trainer.ring();
    loop.run_once(Clock::now());
  }
  EXPECT_EQ(served.events.ends, 0);
  EXPECT_TRUE(served.events.requests.empty());
}

// The doorbell's descriptor is shared, and so are its flags: the worker never reads it.
TEST(SessionBreach, ADoorbellThatBlocksStopsNobody) {
  Loop loop;
  Served served(loop);
  const int flags = fcntl(served.trainer.doorbell(), F_GETFL);
  ASSERT_EQ(fcntl(served.trainer.doorbell(), F_SETFL, flags & ~O_NONBLOCK), 0);
  for (uint64_t number = 0; number < 3; ++number) expect_served(loop, served, number);
}

class Storm {
 public:
  explicit Storm(uint64_t seed) : random_(seed) {}

  // Writes like an honest client, a careless one, or a mad one.
  void strike(FakeTrainer& trainer) {
    switch (random_() % 4) {
      case 0:
        return trainer.submit(random_() % 64 == 0 ? random_() : random_() % 600, careless());
      case 1:
        return scribble(trainer.at(0), kArenaOffset);
      case 2:
        return scribble(reinterpret_cast<std::byte*>(&trainer.board()), sizeof(BoardHeader));
      default:
        scribble(reinterpret_cast<std::byte*>(&trainer.area().header()), area_bytes(1));
        trainer.set_called(random_() % kBoardSlots);
    }
  }

 private:
  Request careless() {
    Request request{};
    request.collective = static_cast<uint8_t>(random_() % (kCollectives + 1));
    request.dtype = static_cast<uint8_t>(random_() % 9);
    request.op = static_cast<uint8_t>(random_() % (kOps + 1));
    request.flags = static_cast<uint8_t>(random_() % 4 == 0 ? random_() : 0);
    request.root = static_cast<uint32_t>(random_() % 5);
    request.count = random_() >> (random_() % 64);
    request.in_offset = random_() >> (random_() % 64);
    request.out_offset = random_() >> (random_() % 64);
    request.records = static_cast<uint32_t>(random_());
    request.timeout_ms = static_cast<uint32_t>(random_() % 3);
    return request;
  }
  void scribble(std::byte* memory, uint64_t bytes) {
    const uint64_t garbage = random_();
    std::memcpy(memory + random_() % (bytes - sizeof(garbage)), &garbage, sizeof(garbage));
  }

  std::mt19937_64 random_;
};

// What reaches the daemon's inside must be safe to use in full.
size_t touch(Served& served) {
  const auto requests = std::exchange(served.events.requests, {});
  for (const Call& op : requests) {
    const size_t bytes = op.signature.count * size_of(op.signature.dtype);
    if (op.in != nullptr && bytes != 0)
      static_cast<void>(*const_cast<volatile std::byte*>(op.in + bytes - 1));
    if (op.out != nullptr && bytes != 0) op.out[bytes - 1] = std::byte{1};
    served.board->complete({op.group, op.number}, op.invalid);
  }
  for (const auto& ranks : std::exchange(served.events.subgroups, {}))
    served.board->answer_subgroup(1, 1, ranks);
  return requests.size();
}

TEST(SessionStorm, GarbageNeverCrashesAndTheNeighbourIsServed) {
  Loop loop;
  Storm storm(20261120);
  Served neighbour(loop, 0, 4);
  auto hostile = std::make_unique<Served>(loop);
  size_t requests = 0;
  for (uint64_t i = 0; i < 100'000; ++i) {
    storm.strike(hostile->trainer);
    hostile->trainer.ring();
    loop.run_once(Clock::now());
    const size_t got = touch(*hostile);
    ASSERT_LE(got, kBoardSlots);
    requests += got;
    ASSERT_EQ(hostile->events.ends, 0);
    if (i % 100 == 0) expect_served(loop, neighbour, i / 100);
    if (i % 500 == 499) hostile = std::make_unique<Served>(loop);
  }
  EXPECT_GT(requests, 100u);
  EXPECT_EQ(neighbour.events.ends, 0);
  EXPECT_TRUE(neighbour.events.stuck.empty());
}

size_t mappings() {
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);)
    count += line.find("tutti-") != std::string::npos ? 1 : 0;
  return count;
}

TEST(SessionLeak, DescriptorsAndMappingsAreGivenBack) {
  Loop loop;
  const int descriptors = open_descriptors();
  ASSERT_EQ(mappings(), 0u);
  for (int i = 0; i < 200; ++i) {
    Served served(loop);
    if (i == 0) {
      EXPECT_EQ(mappings(), 5u);  // A segment and the board, twice; and the daemon's recorder.
    }
    served.trainer.submit(0, all_reduce_request());
    if (i % 2 == 0) served.trainer.hang_up();
    drain(loop);
  }
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_EQ(mappings(), 0u);
}

// The epoch may need the board for longer than its ranks do.
TEST(SessionLeak, TheSegmentsAreGivenBackWithTheLastRankOfTheBoard) {
  Loop loop;
  Served served(loop);
  const int descriptors = open_descriptors();
  const size_t mapped = mappings();
  served.at_worker.reset();
  EXPECT_EQ(mappings(), mapped - 1);
  EXPECT_LT(open_descriptors(), descriptors - 2);  // Its socket and doorbell, too.
  EXPECT_EQ(served.board->memory_bytes(1), 0u);
}

}  // namespace
}  // namespace tutti
