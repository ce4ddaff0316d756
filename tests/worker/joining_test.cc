// A worker between its agent, its trainers and the coordinator, one turn of its loop at a time.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <filesystem>

#include "daemon/worker/worker.h"
#include "tests/control/fake_coordinator.h"
#include "tests/control/net.h"

namespace tutti {
namespace {

using testing::ElementsAre;

// The test is the agent, the trainers and the coordinator.
class WorkerJoining : public testing::Test {
 protected:
  void SetUp() override { start(); }
  void start() {
    worker_.reset();
    std::filesystem::remove(home_);
    home_ = testing::TempDir() + "tutti-worker-" + std::to_string(getpid());
    Result<Fd> control = listen_unix(home_, SOCK_SEQPACKET, 0600);
    ASSERT_TRUE(control.ok()) << control.status().to_string();
    settings_.host = "a";
    settings_.coordinator = coordinator_.address();
    settings_.data_address = "127.0.0.1";
    worker_ = std::make_unique<Worker>(loop_, settings_, "demo", getuid());
    ASSERT_TRUE(worker_->start(*std::move(control)).ok());
  }
  void TearDown() override {
    worker_.reset();
    std::filesystem::remove(home_);
  }
  Fd connect_agent() {
    Result<Fd> agent = connect_unix(home_, SOCK_SEQPACKET);
    EXPECT_TRUE(agent.ok()) << agent.status().to_string();
    return *std::move(agent);
  }
  // The trainer's end of its socket.
  static Fd hand_over(const Fd& agent, uint32_t rank, uint32_t world_size = 2) {
    int ends[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    const Fd theirs(ends[1]);
    v1::AgentToWorker message;
    v1::AgentToWorker::HandOver& handed = *message.mutable_hand_over();
    handed.set_pid(static_cast<uint32_t>(getpid()));
    handed.mutable_hello()->set_rank(rank);
    handed.mutable_hello()->set_world_size(world_size);
    EXPECT_TRUE(send_packet(agent.get(), message.SerializeAsString(), {&ends[1], 1}).ok());
    return Fd(ends[0]);
  }
  static bool is_answered(const Fd& trainer) {
    pollfd socket = {trainer.get(), POLLIN, 0};
    return poll(&socket, 1, 0) > 0;
  }
  bool hears(size_t messages) {
    return await(loop_, [&] { return coordinator_.said().size() >= messages; });
  }

  FakeCoordinator coordinator_;
  Settings settings_;
  Loop loop_;
  std::string home_;
  std::unique_ptr<Worker> worker_;
};

// The worker reads the new join before it notices that the old socket has ended.
TEST_F(WorkerJoining, TheEndOfATrainerThatWasTurnedAwayIsNotThatOfItsNextJoin) {
  const Fd agent = connect_agent();
  Fd first = hand_over(agent, 0);
  ASSERT_TRUE(hears(1));
  coordinator_.say(refusal_of(coordinator_.said()[0].join()));
  ASSERT_TRUE(await(loop_, [&] { return is_answered(first); }));
  const Fd second = hand_over(agent, 0);
  first.reset();
  ASSERT_TRUE(hears(2));
  const Fd other = hand_over(agent, 1);
  ASSERT_TRUE(hears(3));
  EXPECT_THAT(words_of(coordinator_.said()),
              ElementsAre("join 0 after 0", "join 0 after 0", "join 1 after 0"));
  coordinator_.say(refusal_of(coordinator_.said()[1].join()));
  EXPECT_TRUE(await(loop_, [&] { return is_answered(second); }));
}

TEST_F(WorkerJoining, WhatAnAgentHandedOverBeforeItEndedIsTaken) {
  Fd agent = connect_agent();
  const Fd trainer = hand_over(agent, 0);
  agent.reset();
  const Fd next = connect_agent();
  EXPECT_TRUE(hears(1));
  EXPECT_THAT(words_of(coordinator_.said()), ElementsAre("join 0 after 0"));
}

// The rank is reported as missing, not as dead.
TEST_F(WorkerJoining, ARosterForWhoWasTurnedAwaySaysSo) {
  const Fd agent = connect_agent();
  const Fd trainer = hand_over(agent, 0, 1);
  ASSERT_TRUE(hears(1));
  coordinator_.say(refusal_of(coordinator_.said()[0].join()));
  ASSERT_TRUE(await(loop_, [&] { return is_answered(trainer); }));
  coordinator_.say(roster_of(1, coordinator_.said()[0].join()));
  ASSERT_TRUE(hears(2));
  EXPECT_THAT(coordinator_.said()[1].gone().cause().message(),
              testing::HasSubstr("died, or gave up, while joining"));
}

// The quota of a user's memory goes by what is reported.
TEST_F(WorkerJoining, ItsMemoryIsThatOfSegmentsAndRecorders) {
  const Fd agent = connect_agent();
  const Fd trainer = hand_over(agent, 0, 1);
  ASSERT_TRUE(hears(1));
  coordinator_.say(roster_of(1, coordinator_.said()[0].join()));
  Fd recorder;
  v1::WorkerReport report;
  v1::AgentToWorker question;
  question.set_report(true);
  const auto reports = [&] {
    EXPECT_TRUE(send_packet(agent.get(), question.SerializeAsString(), {}).ok());
    Result<std::optional<Packet>> packet = receive_packet(agent.get());
    if (!packet.ok() || !packet->has_value()) return false;
    if (!(*packet)->descriptors.empty()) recorder = std::move((*packet)->descriptors[0]);
    return report.ParseFromString((*packet)->bytes);
  };
  ASSERT_TRUE(await(loop_, [&] { return reports() && recorder.valid(); }));
  constexpr off_t kBytes = 128 << 10;
  ASSERT_EQ(fallocate(recorder.get(), 0, off_t(kRanksOffset), kBytes), 0);
  const uint64_t before = report.memory_bytes();
  EXPECT_TRUE(
      await(loop_, [&] { return reports() && report.memory_bytes() >= before + kBytes / 2; }));
  EXPECT_GE(before, trace::touched_bytes(recorder.get()) - kBytes);
}

// One that was refused before has nothing to do with it.
TEST_F(WorkerJoining, WhyTheNewestJoinFailedIsReported) {
  const Fd agent = connect_agent();
  const auto refuse = [&](const Fd& trainer, size_t join, const Status& why) {
    v1::CoordinatorMessage refusal = refusal_of(coordinator_.said()[join].join());
    write_status(why, *refusal.mutable_refused()->mutable_status());
    coordinator_.say(refusal);
    return await(loop_, [&] { return is_answered(trainer); });
  };
  const auto failed_join = [&](uint64_t joins) {
    v1::WorkerReport report;
    EXPECT_TRUE(await(loop_, [&] {
      Result<std::optional<Packet>> packet = receive_packet(agent.get());
      return packet.ok() && packet->has_value() && report.ParseFromString((*packet)->bytes) &&
             report.handed_over() == joins && report.ranks().empty();
    }));
    return report.failed_join().status().message();
  };
  const Fd first = hand_over(agent, 0);
  const Fd early = hand_over(agent, 1);
  ASSERT_TRUE(hears(2));
  ASSERT_TRUE(refuse(first, 0, invalid_argument("other sizes")));
  ASSERT_TRUE(refuse(early, 1, deadline_exceeded("late")));
  EXPECT_EQ(failed_join(2), "other sizes") << "which is why the other one was not joined";
  const int64_t refused_ms = unix_time<Millis>();
  ASSERT_TRUE(await(loop_, [&] { return unix_time<Millis>() > refused_ms + 1; }));  // Times are ms.
  const Fd second = hand_over(agent, 0);
  ASSERT_TRUE(hears(3));
  ASSERT_TRUE(refuse(second, 2, deadline_exceeded("later")));
  EXPECT_EQ(failed_join(3), "later");
}

TEST_F(WorkerJoining, ATrainerLearnsThatNoPortIsFree) {
  const auto taker = make_network_transport(loop_, "tcp", {});
  const Result<std::string> taken = taker->listen("127.0.0.1:0", {});
  ASSERT_TRUE(taken.ok());
  settings_.data_ports = taken->substr(taken->rfind(':') + 1);
  start();
  const Fd agent = connect_agent();
  const Fd trainer = hand_over(agent, 0);
  ASSERT_TRUE(await(loop_, [&] { return is_answered(trainer); }));
  std::array<char, 1024> bytes{};
  const ssize_t got = recv(trainer.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  ASSERT_GT(got, ssize_t(sizeof(uint32_t)));
  v1::Welcome refusal;  // Behind its length.
  ASSERT_TRUE(refusal.ParseFromArray(bytes.data() + sizeof(uint32_t),
                                     static_cast<int>(got) - int(sizeof(uint32_t))));
  EXPECT_EQ(refusal.code(), static_cast<int>(Code::resource_exhausted));
  EXPECT_THAT(refusal.message(), testing::HasSubstr("data_ports = " + settings_.data_ports));
  EXPECT_TRUE(coordinator_.said().empty());
  loop_.run();  // It ends, and the next join gets another worker.
}

}  // namespace
}  // namespace tutti
