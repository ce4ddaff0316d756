// One trainer served well: the welcome, requests, completions and the end.
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <fstream>
#include <thread>

#include "tests/session_trainer.h"

namespace tutti {
namespace {

class SessionTest : public testing::Test {
 protected:
  void take(size_t requests) {
    ASSERT_TRUE(turn_until(loop, [&] { return served.events.requests.size() == requests; }));
  }

  Loop loop;
  Served served{loop};
  FakeTrainer& trainer = served.trainer;
  RecordedEvents& events = served.events;
};

TEST_F(SessionTest, WelcomeSaysEpochAndHosts) {
  EXPECT_EQ(served.welcome.code(), TUTTI_OK);
  EXPECT_EQ(served.welcome.version(), kProtocolVersion);
  EXPECT_EQ(served.welcome.epoch(), 7u);
  EXPECT_EQ(served.welcome.culprit_rank(), -1);
  ASSERT_EQ(served.welcome.hosts_size(), 4);
  EXPECT_EQ(served.welcome.hosts(0), "a");
  EXPECT_EQ(served.welcome.hosts(3), "b");
}

TEST_F(SessionTest, SegmentIsSealedAndDescribed) {
  EXPECT_EQ(trainer.bytes(), kTestSegmentBytes);
  EXPECT_EQ(trainer.header().magic, kSegmentMagic);
  EXPECT_EQ(trainer.header().version, kProtocolVersion);
  EXPECT_EQ(trainer.header().bytes, kTestSegmentBytes);
  EXPECT_EQ(trainer.header().arena_offset, kArenaOffset);
  EXPECT_EQ(trainer.header().arena_bytes, kTestSegmentBytes - kArenaOffset);
  EXPECT_NE(ftruncate(trainer.memory(), 4096), 0);
  EXPECT_NE(ftruncate(trainer.memory(), 1 << 21), 0);
  EXPECT_EQ(fcntl(trainer.memory(), F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
}

TEST_F(SessionTest, RequestArrivesAsItWasAsked) {
  Request request = all_reduce_request(9);
  request.dtype = TUTTI_F64;
  request.op = TUTTI_MEAN;
  request.timeout_ms = 1234;
  request.local_strategy = pack_strategy(TUTTI_TREE, 3);
  request.global_strategy = pack_strategy(TUTTI_RING, 0);
  const double value = 42.5;
  std::memcpy(trainer.at(kArenaOffset), &value, sizeof(value));
  trainer.submit(request);
  take(1);
  const OpRequest& op = events.requests[0];
  EXPECT_TRUE(op.invalid.ok()) << op.invalid.to_string();
  EXPECT_EQ(op.slot, 9u);
  EXPECT_EQ(op.collective, Collective::all_reduce);
  EXPECT_EQ(op.dtype, Dtype::f64);
  EXPECT_EQ(op.op, Op::mean);
  EXPECT_EQ(op.count, 8u);
  EXPECT_EQ(op.timeout_ms, 1234u);
  EXPECT_EQ(op.strategies.local, (Strategy{StrategyKind::tree, 3}));
  EXPECT_EQ(op.strategies.global, (Strategy{StrategyKind::ring, 0}));
  EXPECT_EQ(op.out - op.in, 64);
  EXPECT_EQ(std::memcmp(op.in, &value, sizeof(value)), 0);
}

TEST_F(SessionTest, CompletionReachesTheTrainer) {
  trainer.submit(all_reduce_request(255));
  take(1);
  EXPECT_EQ(trainer.header().tail.load(), 1u);
  served.session->complete(255, unavailable("rank 3 left", {3, "b"}), 77);
  Completion& done = trainer.completion(255);
  EXPECT_EQ(done.state.load(), slot_word(SlotState::done));
  EXPECT_EQ(done.code, TUTTI_UNAVAILABLE);
  EXPECT_EQ(done.culprit_rank, 3);
  EXPECT_EQ(done.value, 77u);
  EXPECT_STREQ(done.culprit_host, "b");
  EXPECT_STREQ(done.message, "rank 3 left");
}

TEST_F(SessionTest, LongTextsAreCutAndTerminated) {
  trainer.submit(all_reduce_request(0));
  take(1);
  served.session->complete(0, unavailable(std::string(5000, 'm'), {0, std::string(500, 'h')}));
  EXPECT_EQ(std::strlen(trainer.completion(0).message), kMessageBytes - 1);
  EXPECT_EQ(std::strlen(trainer.completion(0).culprit_host), kHostBytes - 1);
}

TEST_F(SessionTest, RingGoesRoundManyTimes) {
  constexpr uint32_t kRounds = 5;
  for (uint32_t i = 0; i < kRounds * kRingSlots; ++i) {
    Request request = all_reduce_request(i % kRingSlots);
    request.timeout_ms = i;
    trainer.submit(request);
    if ((i + 1) % kRingSlots != 0) continue;
    take(i + 1);
    for (uint32_t slot = 0; slot < kRingSlots; ++slot) served.session->complete(slot, {});
  }
  EXPECT_EQ(events.ends, 0);
  for (uint32_t i = 0; i < events.requests.size(); ++i)
    ASSERT_EQ(events.requests[i].timeout_ms, i) << "out of order";
}

TEST_F(SessionTest, SubgroupDeliversItsRanks) {
  const std::array<uint32_t, 2> ranks = {0, 2};
  std::memcpy(trainer.at(kArenaOffset), ranks.data(), sizeof(ranks));
  Request request{};
  request.slot = 5;
  request.verb = kVerbSubgroup;
  request.count = ranks.size();
  request.in_offset = kArenaOffset;
  trainer.submit(request);
  ASSERT_TRUE(turn_until(loop, [&] { return !events.subgroups.empty(); }));
  EXPECT_EQ(events.subgroups[0].first, 5u);
  EXPECT_EQ(events.subgroups[0].second, (std::vector<uint32_t>{0, 2}));
}

TEST_F(SessionTest, MemoryOutlivesTheSessionWhileInUse) {
  trainer.submit(all_reduce_request());
  take(1);
  served.session.reset();
  std::memset(events.requests[0].out, 0x5a, 32);
  EXPECT_EQ(std::to_integer<int>(*trainer.at(kArenaOffset + 64)), 0x5a);
}

TEST_F(SessionTest, LeavingIsNoDeath) {
  trainer.header().leaving.store(1);
  trainer.hang_up();
  ASSERT_TRUE(turn_until(loop, [&] { return events.ends > 0; }));
  EXPECT_TRUE(events.leaving);
  EXPECT_TRUE(events.why.ok());
  drain(loop);
  EXPECT_EQ(events.ends, 1);
}

TEST_F(SessionTest, DeathNamesTheRank) {
  trainer.hang_up();
  ASSERT_TRUE(turn_until(loop, [&] { return events.ends > 0; }));
  EXPECT_FALSE(events.leaving);
  EXPECT_EQ(events.why.code(), Code::unavailable);
  EXPECT_THAT(events.why.message(), testing::HasSubstr("rank 1 (host a, pid "));
}

TEST_F(SessionTest, RequestPublishedBeforeDeathStillCounts) {
  trainer.publish(all_reduce_request());
  trainer.hang_up();
  ASSERT_TRUE(turn_until(loop, [&] { return events.ends > 0; }));
  ASSERT_EQ(events.requests.size(), 1u);
  served.session->complete(0, {});
}

bool asleep(pid_t thread) {
  std::ifstream stat("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string line;
  std::getline(stat, line);
  return line.find(") S ") != std::string::npos;
}

TEST_F(SessionTest, CompletionWakesASleeper) {
  trainer.submit(all_reduce_request(3));
  take(1);
  auto& state = trainer.completion(3).state;
  state.store(slot_word(SlotState::asleep));
  std::atomic<pid_t> thread = 0;
  long woken = -1;
  std::thread sleeper([&] {
    thread = gettid();
    const timespec limit{.tv_sec = 20, .tv_nsec = 0};
    woken = syscall(SYS_futex, &state, FUTEX_WAIT, SlotState::asleep, &limit);
  });
  EXPECT_TRUE(turn_until(loop, [&] { return thread != 0 && asleep(thread); }));
  served.session->complete(3, {});
  sleeper.join();
  EXPECT_EQ(woken, 0) << "slept through the completion";
}

TEST(SessionJoining, EndBeforeTheWelcomeIsReported) {
  Loop loop;
  Served served(loop, socket_pair());
  served.session->set_group(0, 2, 4);
  served.trainer.hang_up();
  ASSERT_TRUE(turn_until(loop, [&] { return served.events.ends > 0; }));
  EXPECT_FALSE(served.events.leaving);
  EXPECT_THAT(served.events.why.message(), testing::HasSubstr("while joining"));
}

// Connects, forks a child that holds the socket until `hold` closes, and ends when `go` closes.
[[noreturn]] void trainer_with_child(const std::string& path, int go, int hold) {
  const Result<Fd> socket = connect_unix(path, SOCK_STREAM);
  char byte = 0;
  if (fork() == 0) _exit(read(hold, &byte, 1) == 0 ? 0 : 1);
  _exit(read(go, &byte, 1) == 0 ? 0 : 1);
}

// A forked child keeps the trainer's socket open; the process's own end must be seen anyway.
TEST(SessionJoining, DeathIsSeenThoughAChildHoldsTheSocket) {
  Loop loop;
  const std::string path = testing::TempDir() + "session_fork.sock";
  Result<Fd> listener = listen_unix(path, SOCK_STREAM, 0600);
  ASSERT_TRUE(listener.ok());
  auto [go_read, go] = socket_pair();
  auto [hold_read, hold] = socket_pair();
  const pid_t process = fork();
  if (process == 0) {
    go.reset();
    hold.reset();
    trainer_with_child(path, go_read.get(), hold_read.get());
  }
  ASSERT_TRUE(loop.watch(listener->get(), EPOLLIN, [](uint32_t) {}).ok());
  Fd accepted;
  ASSERT_TRUE(turn_until(loop, [&] {
    accepted.reset(accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC));
    return accepted.valid();
  }));
  loop.unwatch(listener->get());
  RecordedEvents events;
  auto session = open_session(loop, accepted, kTestSegmentBytes, events);
  ASSERT_TRUE(session.ok());
  drain(loop);
  EXPECT_EQ(events.ends, 0);
  go.reset();
  EXPECT_TRUE(turn_until(loop, [&] { return events.ends > 0; }));
  hold.reset();
  waitpid(process, nullptr, 0);
  unlink(path.c_str());
}

}  // namespace
}  // namespace tutti
