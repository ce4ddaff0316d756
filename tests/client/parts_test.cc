// Parts of the client that need no daemon: the encoding of Hello and Welcome, the arena, Backoff.
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include "client/rank/arena.h"
#include "client/rank/backoff.h"
#include "client/rank/hello.h"
#include "proto/session.pb.h"

namespace tutti::client {
namespace {

TEST(ClientHello, EncodesAsProtobufDoes) {
  const Hello hello{1, "demo", "sécret", 3, 300, 70'000, 0xffffffff};
  v1::Hello expected;
  ASSERT_TRUE(expected.ParseFromString(encode(hello)));
  EXPECT_EQ(expected.version(), 1u);
  EXPECT_EQ(expected.job(), "demo");
  EXPECT_EQ(expected.token(), "sécret");
  EXPECT_EQ(expected.rank(), 3u);
  EXPECT_EQ(expected.world_size(), 300u);
  EXPECT_EQ(expected.timeout_ms(), 70'000u);
  EXPECT_EQ(expected.pid(), 0xffffffffu);
  EXPECT_EQ(encode(hello), expected.SerializeAsString());
  EXPECT_EQ(encode(Hello{}), "");
}

TEST(ClientWelcome, DecodesWhatProtobufEncodes) {
  v1::Welcome sent;
  sent.set_code(9);
  sent.set_message(std::string(1000, 'm'));
  sent.set_culprit_rank(-1);
  sent.set_culprit_host("b");
  sent.set_version(1);
  sent.set_epoch(1 << 30);
  for (const char* host : {"a", "", "a"}) sent.add_hosts(host);
  const auto welcome = decode_welcome(sent.SerializeAsString());
  ASSERT_TRUE(welcome.has_value());
  EXPECT_EQ(welcome->code, Code::failed_precondition);
  EXPECT_EQ(welcome->message, std::string(1000, 'm'));
  EXPECT_EQ(welcome->culprit.rank, -1);
  EXPECT_EQ(welcome->culprit.host, "b");
  EXPECT_EQ(welcome->version, 1u);
  EXPECT_EQ(welcome->epoch, 1u << 30);
  EXPECT_EQ(welcome->hosts, (std::vector<std::string>{"a", "", "a"}));
}

TEST(ClientWelcome, SkipsUnknownFields) {
  std::string bytes;
  bytes += std::string("\x79\x01\x02\x03\x04\x05\x06\x07\x08", 9);  // Field 15, 8 bytes.
  bytes += std::string("\x7d\x01\x02\x03\x04", 5);                  // Field 15, 4 bytes.
  bytes += std::string("\x7a\x01x", 3);                             // Field 15, a text.
  v1::Welcome sent;
  sent.set_epoch(5);
  bytes += sent.SerializeAsString();
  const auto welcome = decode_welcome(bytes);
  ASSERT_TRUE(welcome.has_value());
  EXPECT_EQ(welcome->epoch, 5u);
  EXPECT_EQ(welcome->culprit.rank, 0) << "protobuf does not send 0";
}

// Like protobuf: a value of another type than the schema's is not the field's.
TEST(ClientWelcome, SkipsKnownNumbersOfOtherTypes) {
  const std::string bytes("\x0a\x01x\x3d\x01\x02\x03\x04\x38\x01\x10\x01", 12);
  v1::Welcome real;
  ASSERT_TRUE(real.ParseFromString(bytes));
  ASSERT_EQ(real.hosts_size(), 0);
  v1::Welcome refusal;
  refusal.set_code(9);
  const auto welcome = decode_welcome(refusal.SerializeAsString() + bytes);
  ASSERT_TRUE(welcome.has_value());
  EXPECT_EQ(welcome->code, Code::failed_precondition) << "a text is no code";
  EXPECT_TRUE(welcome->hosts.empty()) << "a number is no host";
  EXPECT_EQ(welcome->message, "");
}

TEST(ClientWelcome, CutShortIsRefusedOrHarmless) {
  v1::Welcome sent;
  sent.set_message("some words");
  sent.add_hosts("host");
  const std::string bytes = sent.SerializeAsString();
  EXPECT_FALSE(decode_welcome(bytes.substr(0, bytes.size() - 1)).has_value());
  std::mt19937_64 random(3);
  for (int i = 0; i < 20'000; ++i) {
    std::string garbage(random() % 40, '\0');
    for (char& byte : garbage) byte = static_cast<char>(random());
    v1::Welcome real;
    if (decode_welcome(garbage).has_value() || !real.ParseFromString(garbage)) continue;
    // Only bytes that protobuf keeps as unknown fields may be refused here.
    EXPECT_FALSE(real.GetReflection()->GetUnknownFields(real).empty());
  }
}

class ArenaTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kStart = 4096;
  static constexpr uint64_t kBytes = 64 * 1024;

  std::vector<std::pair<uint64_t, uint64_t>> discarded;
  Arena arena{kStart, kBytes, 8192,
              [this](uint64_t offset, uint64_t bytes) { discarded.emplace_back(offset, bytes); }};
};

TEST_F(ArenaTest, FreedBlocksAreReusedFirst) {
  const auto a = arena.allocate(1000);
  const auto b = arena.allocate(1000);
  ASSERT_TRUE(a && b);
  EXPECT_EQ(*a, kStart);
  EXPECT_EQ(*b, kStart + 1024);
  EXPECT_EQ(arena.used_bytes(), 2048u);
  arena.release(*a);
  EXPECT_EQ(arena.allocate(500), a);
  EXPECT_TRUE(discarded.empty());
}

TEST_F(ArenaTest, NeighboursMerge) {
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(*arena.allocate(1024));
  for (const int i : {1, 3, 0, 2}) arena.release(blocks[static_cast<size_t>(i)]);
  EXPECT_EQ(arena.warm_bytes(), 4096u);
  EXPECT_EQ(arena.allocate(4096), kStart);
}

TEST_F(ArenaTest, WarmBlocksBeyondTheLimitAreDiscarded) {
  const auto big = arena.allocate(16384);
  arena.release(*big);
  EXPECT_EQ(discarded, (std::vector<std::pair<uint64_t, uint64_t>>{{kStart, 16384}}));
  EXPECT_EQ(arena.warm_bytes(), 0u);
  EXPECT_EQ(arena.allocate(kBytes), kStart) << "cold neighbours merge, too";
}

TEST_F(ArenaTest, WarmAndColdTogetherServeTheLargest) {
  const auto warm = arena.allocate(4096);
  arena.release(*warm);
  EXPECT_EQ(arena.allocate(kBytes), kStart);
  EXPECT_EQ(discarded.size(), 1u);
  EXPECT_FALSE(arena.allocate(1).has_value());
  EXPECT_FALSE(arena.allocate(~uint64_t{0}).has_value());
}

TEST_F(ArenaTest, BlockLivesUntilItsLastHolder) {
  const uint64_t block = *arena.allocate(100);
  EXPECT_EQ(arena.hold(block + 64, 36), block);
  EXPECT_TRUE(arena.release_first(block));
  EXPECT_FALSE(arena.release_first(block)) << "twice";
  EXPECT_NE(arena.allocate(100), block);
  arena.release(block);
  EXPECT_EQ(arena.allocate(100), block);
}

TEST_F(ArenaTest, HoldRefusesMemoryThatIsNotInOneBlock) {
  const uint64_t block = *arena.allocate(128);
  static_cast<void>(arena.allocate(128));
  EXPECT_FALSE(arena.hold(block + 64, 65).has_value());
  EXPECT_FALSE(arena.hold(kStart + 4096, 1).has_value());
  EXPECT_FALSE(arena.hold(0, 1).has_value());
  EXPECT_FALSE(arena.hold(block, ~uint64_t{0}).has_value());
  const uint64_t small = *arena.allocate(40);
  EXPECT_FALSE(arena.hold(small, 41).has_value()) << "more than was requested, though rounded up";
  EXPECT_EQ(arena.room_at(small), 40u);
  EXPECT_EQ(arena.room_at(small + 30), 10u);
  EXPECT_EQ(arena.room_at(small + 41), 0u);
  EXPECT_EQ(arena.room_at(0), 0u);
  EXPECT_EQ(arena.room_at(kStart + kBytes), 0u);
  EXPECT_FALSE(arena.release_first(block + 64));
}

// Random use: blocks in use never overlap, and all memory is free in the end.
TEST_F(ArenaTest, NeverHandsOutTheSameBytesTwice) {
  std::mt19937_64 random(11);
  std::vector<std::pair<uint64_t, uint64_t>> live;
  for (int i = 0; i < 20'000; ++i) {
    const uint64_t bytes = random() % 3000;
    const auto block = random() % 2 == 0 ? arena.allocate(bytes) : std::nullopt;
    if (block) {
      EXPECT_EQ(*block % 64, 0u);
      for (const auto& [offset, size] : live)
        ASSERT_TRUE(*block + bytes <= offset || offset + size <= *block);
      live.emplace_back(*block, std::max<uint64_t>(bytes, 1));
    } else if (!live.empty()) {
      const size_t victim = random() % live.size();
      arena.release(live[victim].first);
      live.erase(live.begin() + static_cast<ptrdiff_t>(victim));
    }
  }
  for (const auto& [offset, size] : live) arena.release(offset);
  EXPECT_EQ(arena.used_bytes(), 0u);
  EXPECT_EQ(arena.allocate(kBytes), kStart);
}

// ---- Waiting ----

// Pins this thread, and those that it starts, to one core.
void stay_on_this_core() {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<size_t>(sched_getcpu()), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
}

// Threads that use the core and never yield it.
class BusyCore {
 public:
  explicit BusyCore(int threads) {
    for (int i = 0; i < threads; ++i)
      threads_.emplace_back([this] {
        while (!ends_.load(std::memory_order_relaxed)) continue;
      });
  }
  BusyCore(const BusyCore&) = delete;
  BusyCore& operator=(const BusyCore&) = delete;
  ~BusyCore() {
    ends_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> ends_ = false;
  std::vector<std::thread> threads_;
};

// The scheduler may not run the worker when a rank yields.
TEST(ClientBackoff, EndsAtOnceForAWorkerWithoutACore) {
  Cores cores;
  cores.enough = true;
  EXPECT_FALSE(Backoff(cores).pause(Backoff::Awaited::worker));
  EXPECT_TRUE(Backoff(cores).pause(Backoff::Awaited::ranks));
  cores.spare = true;
  EXPECT_TRUE(Backoff(cores).pause(Backoff::Awaited::worker));
}

// There a yield lasts as long as the time slices of other threads, so few yields must end the wait:
// otherwise it would miss a deadline by a second.
TEST(ClientBackoff, IsSoonOverOnABusyCore) {
  std::thread waiting([] {
    stay_on_this_core();
    const BusyCore busy(3);
    Cores cores;
    bool was_shared = false;  // The scheduler may return from a single yield at once.
    for (int round = 0; round < 5 || (!was_shared && round < 100); ++round) {
      Backoff backoff(cores);
      int turns = 0;
      while (backoff.pause()) ++turns;
      EXPECT_LT(turns, 100) << "round " << round;
      was_shared |= cores.shared;
    }
    EXPECT_TRUE(was_shared);
  });
  waiting.join();
}

}  // namespace
}  // namespace tutti::client
