// One trainer served well: the welcome, requests, verdicts and the end.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <fstream>
#include <thread>

#include "tests/session/trainer.h"

namespace tutti {
namespace {

class SessionTest : public testing::Test {
 protected:
  void take(size_t requests) {
    ASSERT_TRUE(await(loop, [&] { return served.events.requests.size() == requests; }));
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
  EXPECT_EQ(served.welcome.hosts(0), "b");
  EXPECT_EQ(served.welcome.hosts(1), "a");
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

TEST_F(SessionTest, MemoryIsWhatWasTouchedOfTheSegment) {
  const uint64_t before = served.board->memory_bytes(1);
  EXPECT_LT(before, kTestSegmentBytes / 2);
  constexpr uint64_t kBytes = kTestSegmentBytes / 4;
  std::memset(trainer.at(kTestSegmentBytes - kBytes), 1, kBytes);
  EXPECT_EQ(served.board->memory_bytes(1), before + kBytes);
}

TEST_F(SessionTest, RequestArrivesAsItWasAsked) {
  Request request = all_reduce_request();
  request.dtype = TUTTI_F64;
  request.op = TUTTI_MEAN;
  request.timeout_ms = 1234;
  request.local_strategy = pack_strategy(TUTTI_TREE, 3);
  request.global_strategy = pack_strategy(TUTTI_RING, 0);
  const double value = 42.5;
  std::memcpy(trainer.at(kArenaOffset), &value, sizeof(value));
  trainer.submit(9, request);
  take(1);
  const Call& op = events.requests[0];
  EXPECT_TRUE(op.invalid.ok()) << op.invalid.to_string();
  EXPECT_EQ(op.group, 0u);
  EXPECT_EQ(op.number, 9u);
  EXPECT_EQ(op.signature.collective, Collective::all_reduce);
  EXPECT_EQ(op.signature.dtype, Dtype::f64);
  EXPECT_EQ(op.signature.op, Op::mean);
  EXPECT_EQ(op.signature.count, 8u);
  EXPECT_EQ(op.timeout_ms, 1234u);
  EXPECT_EQ(op.signature.strategies.local, (Strategy{StrategyKind::tree, 3}));
  EXPECT_EQ(op.signature.strategies.global, (Strategy{StrategyKind::ring, 0}));
  EXPECT_EQ(op.out - op.in, 64);
  EXPECT_EQ(std::memcmp(op.in, &value, sizeof(value)), 0);
}

TEST_F(SessionTest, VerdictReachesTheTrainer) {
  trainer.submit(255, all_reduce_request());
  take(1);
  EXPECT_FALSE(trainer.has_failed(255));
  served.board->complete({0, 255}, unavailable("rank 3 left", {3, "b"}));
  ASSERT_TRUE(trainer.has_failed(255));
  const BoardFailure& why = trainer.failure(255);
  EXPECT_EQ(why.code, TUTTI_UNAVAILABLE);
  EXPECT_EQ(why.culprit_rank, 3);
  EXPECT_STREQ(why.culprit_host, "b");
  EXPECT_STREQ(why.message, "rank 3 left");
  trainer.submit(256, all_reduce_request());
  take(2);
  served.board->complete({0, 256}, {});
  EXPECT_TRUE(trainer.is_done(256));
}

// Some may have read it.
TEST_F(SessionTest, VerdictsStay) {
  trainer.submit(3, all_reduce_request());
  take(1);
  served.board->complete({0, 3}, unavailable("the first", {3, "b"}));
  served.board->complete({0, 3}, aborted("the second", {2, "b"}));
  served.board->complete({0, 3}, {});
  EXPECT_TRUE(trainer.has_failed(3));
  EXPECT_STREQ(trainer.failure(3).message, "the first");
  trainer.submit(4, all_reduce_request());
  take(2);
  served.board->complete({0, 4}, {});
  served.board->complete({0, 4}, unavailable("too late"));
  EXPECT_TRUE(trainer.is_done(4));
}

// Another generation, a slot that no rank has begun, an unknown group: nothing changes.
TEST_F(SessionTest, WhatIsNotUnderWayIsNotEnded) {
  trainer.submit(5, all_reduce_request());
  take(1);
  const board::SlotWord before = trainer.word(5);
  served.board->complete({0, 5 + kBoardSlots}, unavailable("another generation"));
  served.board->complete({0, 6}, unavailable("nobody began it"));
  served.board->complete({9, 5}, unavailable("no such group"));
  EXPECT_EQ(trainer.word(5), before);
  EXPECT_EQ(trainer.word(6), board::SlotWord{});
  EXPECT_EQ(trainer.failure(5).code, TUTTI_OK);
  EXPECT_EQ(trainer.failure(6).code, TUTTI_OK);
}

TEST_F(SessionTest, LongTextsAreCutAndTerminated) {
  trainer.submit(0, all_reduce_request());
  take(1);
  served.board->complete({0, 0}, unavailable(std::string(5000, 'm'), {0, std::string(500, 'h')}));
  EXPECT_EQ(std::strlen(trainer.failure(0).message), kMessageBytes - 1);
  EXPECT_EQ(std::strlen(trainer.failure(0).culprit_host), kHostBytes - 1);
}

// Slots serve many generations, and each request is forwarded with its number.
TEST_F(SessionTest, SlotsGoRoundManyTimes) {
  constexpr uint32_t kRounds = 5;
  for (uint32_t i = 0; i < kRounds * kBoardSlots; ++i) {
    Request request = all_reduce_request();
    request.timeout_ms = i + 1;
    trainer.write(i, request);
    trainer.set_word(i, board::Phase::called, 1);
    trainer.set_called(i);
    if ((i + 1) % kBoardSlots != 0) continue;
    trainer.ring();
    take(i + 1);
    for (uint32_t n = i + 1 - kBoardSlots; n <= i; ++n) {
      served.board->complete({0, n}, {});
      ASSERT_TRUE(trainer.is_done(n));
    }
  }
  EXPECT_EQ(events.ends, 0);
  for (uint32_t i = 0; i < events.requests.size(); ++i) {
    ASSERT_EQ(events.requests[i].number, i) << "out of order";
    ASSERT_EQ(events.requests[i].timeout_ms, i + 1);
  }
}

// Asked once, delivered once, however often the bell rings; answered, and asked again.
TEST_F(SessionTest, SubgroupDeliversItsRanks) {
  BoardSubgroupRequest& subgroup = trainer.view().subgroup_request(0);
  for (const uint32_t second : {2, 3}) {
    events.subgroups.clear();
    const std::array<uint32_t, 2> ranks = {1, second};
    trainer.ask_subgroup(ranks);
    ASSERT_TRUE(await(loop, [&] { return !events.subgroups.empty(); }));
    trainer.ring();
    drain(loop);
    ASSERT_EQ(events.subgroups.size(), 1u);
    EXPECT_EQ(events.subgroups[0], (std::vector<uint32_t>{1, second}));
    EXPECT_EQ(subgroup.state.load(), static_cast<uint32_t>(SubgroupRequestState::asked));
    served.board->answer_subgroup(1, 5 + second, events.subgroups[0]);
    EXPECT_EQ(subgroup.state.load(), static_cast<uint32_t>(SubgroupRequestState::answered));
    EXPECT_EQ(subgroup.failure.code, TUTTI_OK);
    EXPECT_EQ(subgroup.group, 5 + second);
    EXPECT_EQ(subgroup.area, second - 1) << "area 0 is the job's";
  }
}

TEST_F(SessionTest, SubgroupThatFailsSaysWhy) {
  const std::array<uint32_t, 1> ranks = {1};
  trainer.ask_subgroup(ranks);
  ASSERT_TRUE(await(loop, [&] { return !events.subgroups.empty(); }));
  served.board->answer_subgroup(1, unavailable("rank 3 left", {3, "b"}), events.subgroups[0]);
  const BoardSubgroupRequest& subgroup = trainer.view().subgroup_request(0);
  EXPECT_EQ(subgroup.state.load(), static_cast<uint32_t>(SubgroupRequestState::answered));
  EXPECT_EQ(subgroup.failure.code, TUTTI_UNAVAILABLE);
  EXPECT_EQ(subgroup.failure.culprit_rank, 3);
  EXPECT_STREQ(subgroup.failure.message, "rank 3 left");
}

TEST_F(SessionTest, MemoryOutlivesTheSessionWhileInUse) {
  trainer.submit(0, all_reduce_request());
  take(1);
  served.at_worker.reset();
  std::memset(events.requests[0].out, 0x5a, 32);
  EXPECT_EQ(std::to_integer<int>(*trainer.at(kArenaOffset + 64)), 0x5a);
}

TEST_F(SessionTest, LeavingIsNoDeath) {
  trainer.header().leaving.store(1);
  trainer.hang_up();
  ASSERT_TRUE(await(loop, [&] { return events.ends > 0; }));
  EXPECT_TRUE(events.leaving);
  EXPECT_TRUE(events.why.ok());
  drain(loop);
  EXPECT_EQ(events.ends, 1);
}

TEST_F(SessionTest, DeathNamesTheRank) {
  trainer.hang_up();
  ASSERT_TRUE(await(loop, [&] { return events.ends > 0; }));
  EXPECT_FALSE(events.leaving);
  EXPECT_EQ(events.why.code(), Code::unavailable);
  EXPECT_THAT(events.why.message(), testing::HasSubstr("rank 1 (host a, pid "));
}

TEST_F(SessionTest, RequestCalledBeforeDeathStillCounts) {
  trainer.write(0, all_reduce_request());
  trainer.set_word(0, board::Phase::called, 1);
  trainer.set_called(0);
  trainer.hang_up();
  ASSERT_TRUE(await(loop, [&] { return events.ends > 0; }));
  ASSERT_EQ(events.requests.size(), 1u);
  served.board->complete({0, 0}, {});
  EXPECT_TRUE(trainer.is_done(0));
}

// It died between its arrival and the call that would follow.
TEST_F(SessionTest, RequestThatArrivedBeforeDeathStillCounts) {
  trainer.write(0, all_reduce_request());
  trainer.set_word(0, board::Phase::open, 1);
  trainer.hang_up();
  ASSERT_TRUE(await(loop, [&] { return events.ends > 0; }));
  ASSERT_EQ(events.requests.size(), 1u);
  EXPECT_EQ(events.requests[0].number, 0u);
}

bool asleep(pid_t thread) {
  std::ifstream stat("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string line;
  std::getline(stat, line);
  return line.find(") S ") != std::string::npos;
}

TEST_F(SessionTest, VerdictWakesASleeper) {
  trainer.submit(3, all_reduce_request());
  take(1);
  std::atomic<uint64_t>& word = trainer.area().slot_of(3).word;
  const uint64_t sleeping = pack(with_sleeper(trainer.word(3)));
  word = sleeping;
  std::atomic<pid_t> thread = 0;
  std::chrono::steady_clock::duration slept{};
  std::thread sleeper([&] {
    thread = gettid();
    const TimePoint from = Clock::now();
    board::sleep_on_low_half(word, static_cast<uint32_t>(sleeping), 60'000'000);
    slept = Clock::now() - from;
  });
  EXPECT_TRUE(await(loop, [&] { return thread != 0 && asleep(thread); }));
  served.board->complete({0, 3}, {});
  sleeper.join();
  EXPECT_LT(slept, std::chrono::seconds(55)) << "slept through the verdict";
  EXPECT_FALSE(trainer.word(3).asleep);
}

TEST(SessionJoining, EndBeforeTheWelcomeIsReported) {
  Loop loop;
  Served served(loop, socket_pair());
  served.trainer.hang_up();
  ASSERT_TRUE(await(loop, [&] { return served.events.ends > 0; }));
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
  ASSERT_TRUE(await(loop, [&] {
    accepted.reset(accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC));
    return accepted.valid();
  }));
  loop.unwatch(listener->get());
  RecordedEvents events;
  auto trainer = Trainer::open(loop, std::move(accepted), events);
  ASSERT_TRUE(trainer.ok());
  drain(loop);
  EXPECT_EQ(events.ends, 0);
  go.reset();
  EXPECT_TRUE(await(loop, [&] { return events.ends > 0; }));
  hold.reset();
  waitpid(process, nullptr, 0);
  unlink(path.c_str());
}

// The trainer waits for an answer, whatever the worker lacks.
TEST(TrainerTest, FailedOpenRefusesTheTrainer) {
  Loop loop;
  auto [served, trainer] = socket_pair();
  RecordedEvents events;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};  // No descriptor can be made.
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto opened = Trainer::open(loop, std::move(served), events);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_FALSE(opened.ok());
  std::array<char, 4096> bytes{};
  const ssize_t size = recv(trainer.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  ASSERT_GT(size, 0);
  const v1::Welcome answer = parse_welcome({bytes.data(), static_cast<size_t>(size)});
  EXPECT_EQ(answer.code(), static_cast<uint32_t>(opened.status().code()));
  EXPECT_EQ(answer.message(), opened.status().message());
  EXPECT_EQ(recv(trainer.get(), bytes.data(), bytes.size(), MSG_DONTWAIT), 0) << "closed";
  EXPECT_EQ(events.ends, 0);
}

}  // namespace
}  // namespace tutti
