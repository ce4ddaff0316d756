// Many operations and many deaths: all values are right, and nothing leaks.
#include <gtest/gtest.h>
#include <poll.h>

#include <cstring>

#include "tests/support/proc_counters.h"

namespace tutti {
namespace {

using namespace testing;

constexpr int64_t kGrowthMibMax =
    24;  // Allocators' slack; a leak of one tensor an operation is 100 times this.

// Runs operation `i` of a fixed sequence of sizes and strategies, and checks the values.
void operation(Group& group, int i, std::vector<float>& x) {
  constexpr size_t kSizes[] = {1, 1000, 3, 40'000, 0, 17, 250'000, 4096};
  constexpr const char* kStrategies[] = {"ring",        "tree:2",      "centralized",     "auto",
                                         "tree:1,ring", "ring,tree:3", "centralized,ring"};
  x.resize(kSizes[i % 8]);
  for (size_t j = 0; j < x.size(); ++j)
    x[j] = static_cast<float>((j + static_cast<size_t>(i)) % 1000) *
           static_cast<float>(group.rank() + 1);
  const tutti_op op = i % 3 == 0 ? mean : sum;
  group.all_reduce(std::span(x), op, {.strategy = kStrategies[i % 7]});
  const float factor = op == mean ? 2.5f : 10.0f;
  for (size_t j = 0; j < x.size(); ++j)
    if (x[j] != static_cast<float>((j + static_cast<size_t>(i)) % 1000) * factor)
      check(false, "operation " + std::to_string(i) + " element " + std::to_string(j));
}

// Sums of fractions, whose bits depend on the order of the additions.
void same_bits(Group& group, int i) {
  std::vector<float> x(1000);
  for (size_t j = 0; j < x.size(); ++j)
    x[j] = 1.0f / static_cast<float>(static_cast<size_t>(group.rank() * 31 + i) + j + 1);
  group.all_reduce(std::span(x), mean, {.strategy = i % 2 == 0 ? "ring" : "tree:2"});
  std::vector<float> all(x.size() * 4);
  group.all_gather(std::span<const float>(x), std::span(all));
  for (int rank = 0; rank < 4; ++rank)
    check(std::memcmp(all.data() + rank * x.size(), x.data(), x.size() * 4) == 0, "bits of a rank");
}

void thousand_operations(const RankContext& context) {
  Group group = context.join();
  std::vector<float> x(250'000);
  for (int i = 0; i < 200; ++i) operation(group, i, x);
  const int descriptors = open_descriptors();
  const int64_t memory = private_mib_of(getpid());
  write_line("warm");
  group.barrier({.timeout = std::chrono::seconds(120)});
  for (int i = 0; i < 1000; ++i) operation(group, i, x);
  for (int i = 0; i < 50; ++i) same_bits(group, i);
  check(open_descriptors() == descriptors, "the trainer's descriptors grew");
  check(private_mib_of(getpid()) <= memory + kGrowthMibMax, "the trainer's memory grew");
  write_line("done");
  pause();
}

TEST(Endurance, AThousandOperationsBetweenNetworkNamespacesLeaveNothingBehindAsRoot) {
  if (geteuid() != 0) GTEST_SKIP() << "network namespaces need root";
  // The address sanitizer holds back freed memory, which looks like a leak: keep it small.
  setenv("ASAN_OPTIONS", "quarantine_size_mb=4", 0);
  TestMesh mesh(2, true);
  std::vector<Trainer> trainers = mesh.start("endurance", {2, 2}, thousand_operations);
  for (Trainer& trainer : trainers) ASSERT_EQ(trainer.read_line(), "warm") << trainer.wait();
  std::vector<pid_t> workers;
  std::vector<int> descriptors;
  std::vector<int64_t> memory;
  for (int host = 0; host < 2; ++host) {
    workers.push_back(static_cast<pid_t>(worker_report(mesh, host, "endurance").pid()));
    ASSERT_GT(workers[host], 0);
    descriptors.push_back(open_descriptors(workers[host]));
    memory.push_back(private_mib_of(workers[host]));
  }
  for (Trainer& trainer : trainers) ASSERT_EQ(trainer.read_line(), "done") << trainer.wait();
  for (int host = 0; host < 2; ++host) {
    EXPECT_EQ(open_descriptors(workers[host]), descriptors[host]);
    EXPECT_LE(private_mib_of(workers[host]), memory[host] + kGrowthMibMax);
    EXPECT_EQ(worker_report(mesh, host, "endurance").failures(), 0u);
  }
}

// A worker without trainers ends; a trainer that joins at that moment must not notice.
TEST(Endurance, JobsThatComeAndGoNeverMeetAWorkerThatEnds) {
  const Variable idle("TUTTI_WORKER_IDLE_MS", "20");
  TestMesh mesh(2);
  EXPECT_EQ(mesh.run("come-and-go", {1, 1},
                     [](const RankContext& context) {
                       for (int i = 0; i < 60; ++i) {
                         Group group = context.join();
                         group.barrier();
                         group.leave();
                         poll(nullptr, 0, 15 + i % 11);  // About when the worker ends.
                       }
                     }),
            "");
}

// Trainers that run until they are killed.
void victim(const RankContext& context) {
  Group group = context.join();
  write_line("ready");
  for (;;) check_works(group);
}

void bystander(const RankContext& context) {
  Group group = context.join();
  write_line("ready");
  int32_t over = 0;
  std::vector<float> x;
  for (int i = 0; over == 0; ++i) {
    operation(group, i, x);
    over = std::filesystem::exists(context.socket + ".over") ? 1 : 0;
    group.all_reduce(std::span(&over, 1), tutti::max);
  }
}

TEST(Endurance, AJobRunsUnharmedBesideOneWhoseTrainersAreKilledTwentyTimes) {
  TestMesh mesh(2);
  std::vector<Trainer> beside = mesh.start("beside", {2, 2}, bystander);
  for (Trainer& trainer : beside) ASSERT_EQ(trainer.read_line(), "ready") << trainer.wait();
  const auto agent_descriptors = [&] { return open_descriptors(mesh.host(1).agent); };
  int before = 0;
  for (int round = 0; round < 20; ++round) {
    if (round == 2) before = agent_descriptors();  // It keeps the recorders of two epochs.
    std::vector<Trainer> victims = mesh.start("killed", {1, 2}, victim);
    for (Trainer& trainer : victims) ASSERT_EQ(trainer.read_line(), "ready") << trainer.wait();
    victims[static_cast<size_t>(round) % 3].kill(SIGKILL);
    int killed = 0, named = 0;
    for (Trainer& trainer : victims) {
      const std::string report = trainer.wait();
      killed += report == "killed by signal 9";
      named += report.find("UNAVAILABLE: rank " + std::to_string(round % 3)) != std::string::npos;
    }
    EXPECT_EQ(killed, 1);
    EXPECT_EQ(named, 2) << mesh.mesh().log_tails();
  }
  EXPECT_EQ(agent_descriptors(), before);
  for (int host = 0; host < 2; ++host) {
    const v1::WorkerReport report = worker_report(mesh, host, "beside");
    EXPECT_EQ(report.failures(), 0u);
    EXPECT_GT(report.operations(), 0u);
    std::ofstream(mesh.host(host).socket + ".over") << "over";
  }
  EXPECT_EQ(TestMesh::wait(beside), "");
}

}  // namespace
}  // namespace tutti
