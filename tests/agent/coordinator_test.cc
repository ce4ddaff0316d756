// What workers learn of the coordinator, also those that do not read for a while.
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/socket.h>

#include <filesystem>
#include <thread>

#include "daemon/agent/workers.h"
#include "tests/support/await.h"
#include "tests/support/temporary_directory.h"

namespace tutti {
namespace {

constexpr int kReadableMs = 30'000;

v1::AgentToWorker::Coordinator at(const std::string& address) {
  v1::AgentToWorker::Coordinator coordinator;
  coordinator.set_address(address);
  return coordinator;
}

v1::AgentToWorker::Coordinator none_for(int seconds) {
  v1::AgentToWorker::Coordinator coordinator;
  coordinator.set_obstacle("etcd has not answered for " + std::to_string(seconds) + " s");
  return coordinator;
}

std::string bytes_of_report() {
  v1::WorkerReport report;
  report.set_job("demo");
  return report.SerializeAsString();
}

// One that an earlier agent started. It reads when the test does.
struct RunningWorker {
  explicit RunningWorker(const std::string& path)
      : listener(*listen_unix(path, SOCK_SEQPACKET, 0600)) {}

  void answer_the_first_request() {
    pollfd one{listener.get(), POLLIN, 0};
    ASSERT_EQ(poll(&one, 1, kReadableMs), 1);
    agent.reset(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    for (v1::AgentToWorker message; !message.report();) {
      one.fd = agent.get();
      ASSERT_EQ(poll(&one, 1, kReadableMs), 1);
      const auto packet = receive_packet(agent.get());
      ASSERT_TRUE(packet.ok() && packet->has_value() && message.ParseFromString((*packet)->bytes));
    }
    EXPECT_TRUE(send_packet(agent.get(), bytes_of_report(), {}).ok());
  }
  // What it has received since.
  std::vector<v1::AgentToWorker::Coordinator> read() {
    std::vector<v1::AgentToWorker::Coordinator> told;
    for (;;) {
      const auto packet = receive_packet(agent.get());
      if (!packet.ok() || !packet->has_value()) return told;
      v1::AgentToWorker message;
      EXPECT_TRUE(message.ParseFromString((*packet)->bytes));
      if (message.has_coordinator()) told.push_back(message.coordinator());
    }
  }

  Fd listener;
  Fd agent;
};

struct AgentCoordinator : testing::Test {
  AgentCoordinator() {
    settings.run_dir = directory;
    std::filesystem::create_directory(settings.run_dir + "/workers");
    worker.emplace(settings.run_dir + "/workers/1.sock");
    workers.emplace(loop, settings, Credentials(), traces, ended);
    std::thread answering([this] { worker->answer_the_first_request(); });
    EXPECT_TRUE(workers->adopt_running().ok());
    answering.join();
  }

  const TemporaryDirectory directory;
  Loop loop;
  Settings settings;
  Traces traces{loop, settings};
  EndedJobs ended{settings};
  std::optional<RunningWorker> worker;
  std::optional<Workers> workers;
};

TEST_F(AgentCoordinator, IsSentToWorkersWhenItChanges) {
  workers->set_coordinator(at("10.0.0.1:7601"));
  workers->set_coordinator(at("10.0.0.1:7601"));
  workers->set_coordinator(none_for(0));
  workers->set_coordinator(at("10.0.0.2:7601"));
  const auto told = worker->read();
  ASSERT_EQ(told.size(), 3u);
  EXPECT_EQ(told[0].address(), "10.0.0.1:7601");
  EXPECT_EQ(told[1].obstacle(), "etcd has not answered for 0 s");
  EXPECT_EQ(told[2].address(), "10.0.0.2:7601");
}

TEST_F(AgentCoordinator, IsNotSentAgainForEachSecondWithoutOne) {
  for (int seconds = 0; seconds < 100; ++seconds) workers->set_coordinator(none_for(seconds));
  const size_t told = worker->read().size();
  EXPECT_GE(told, 1u);
  EXPECT_LE(told, 2u);
}

TEST_F(AgentCoordinator, IsSentAgainToAWorkerWhoseQueueWasFull) {
  for (int i = 0; i < 2'000; ++i)
    workers->set_coordinator(at("10.0.0." + std::to_string(i % 2) + ":7601"));
  workers->set_coordinator(at("10.0.0.9:7601"));
  const auto first = worker->read();
  ASSERT_LT(first.size(), 2'000u) << "its queue was not full";
  std::vector<v1::AgentToWorker::Coordinator> told;
  tutti::await(loop, [&] {
    told = worker->read();
    return !told.empty();
  });
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].address(), "10.0.0.9:7601");
}

TEST_F(AgentCoordinator, IsSentAgainWhenTheWorkerReports) {
  for (int i = 0; i < 2'000; ++i)
    workers->set_coordinator(at("10.0.0." + std::to_string(i % 2) + ":7601"));
  workers->set_coordinator(at("10.0.0.9:7601"));
  const TimePoint begin = Clock::now();
  worker->read();
  ASSERT_TRUE(send_packet(worker->agent.get(), bytes_of_report(), {}).ok());
  loop.run_once(begin);
  const auto told = worker->read();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].address(), "10.0.0.9:7601");
}

}  // namespace
}  // namespace tutti
