// Workers run on their trainers' cores, and on no others.
#include "daemon/worker/cores.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <cerrno>
#include <filesystem>
#include <set>
#include <thread>

#include "tests/process/board_fixture.h"
#include "tests/support/proc_counters.h"

namespace tutti {
namespace {

using namespace testing;

using CoreSet = std::set<int>;

// Returns none if the thread has ended.
CoreSet cores_of_thread(pid_t thread) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CoreSet cores;
  if (sched_getaffinity(thread, sizeof(set), &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) cores.insert(core);
  return cores;
}

std::vector<pid_t> threads_of(const std::string& process) {
  std::vector<pid_t> threads;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/" + process + "/task"))
    threads.push_back(std::stoi(thread.path().filename()));
  return threads;
}

void bind(pid_t thread, const CoreSet& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  // A thread of the library may have ended since it was listed.
  check(sched_setaffinity(thread, sizeof(set), &set) == 0 || errno == ESRCH, "binding");
}

// Binds all threads, as a launcher does, including those of a sanitizer.
void bind_process(const CoreSet& cores) {
  for (const pid_t thread : threads_of("self")) bind(thread, cores);
}

// All threads of the worker must agree.
CoreSet cores_of_worker(const TestMesh& mesh) {
  const uint32_t pid = testing::worker_report(mesh, 0, "job").pid();
  std::set<CoreSet> found;
  for (const pid_t thread : threads_of(std::to_string(pid))) found.insert(cores_of_thread(thread));
  found.erase(CoreSet{});
  EXPECT_EQ(found.size(), 1u);
  return found.empty() ? CoreSet{} : *found.begin();
}

struct WorkerCores : ::testing::Test {
  const CoreSet all = cores_of_thread(0);
  const CoreSet first = {*all.begin()};
  const CoreSet last = {*all.rbegin()};
  const CoreSet both = {*all.begin(), *all.rbegin()};
  SharedCounters signals;
  TestMesh mesh{1};

  void SetUp() override {
    if (all.size() == 1) GTEST_SKIP() << "this machine has one core";
  }
};

TEST_F(WorkerCores, AreThoseOfTheTrainersOfTheEpoch) {
  struct Epoch {
    CoreSet bound[2];  // The trainers.
    CoreSet worker;
  };
  const std::vector<Epoch> epochs = {
      {{last, last}, last}, {{first, last}, both}, {{all, all}, all}, {{last, all}, all}};
  std::vector<Trainer> trainers = mesh.start("job", {2}, [&](const RankContext& context) {
    for (int epoch = 0; const auto& [bound, worker] : epochs) {
      bind_process(bound[context.rank]);
      Group group = context.join();
      check_works(group);
      write_line("joined");
      signals.wait_for(0, ++epoch);
      group.leave();
      ++signals[1];
      signals.wait_for(1, 2 * epoch);  // Neither joins again before the other has left.
    }
  });
  for (const Epoch& epoch : epochs) {
    for (Trainer& trainer : trainers) ASSERT_EQ(trainer.read_line(), "joined");
    EXPECT_EQ(cores_of_worker(mesh), epoch.worker);
    ++signals[0];
  }
  EXPECT_EQ(TestMesh::wait(trainers), "");
}

TEST_F(WorkerCores, AreSpareWhereTheyOutnumberTheTrainers) {
  std::thread([&] {
    bind(0, both);
    const Cores two;
    EXPECT_TRUE(two.exceed(1));
    EXPECT_FALSE(two.exceed(2));
    bind(0, first);
    EXPECT_FALSE(Cores().exceed(1));
  }).join();
}

// OpenMP runtimes may bind each thread to one core.
TEST_F(WorkerCores, AreThoseOfAllThreadsOfATrainer) {
  Trainer trainer({"job", mesh.host(0).socket, 0, 1}, [&](const RankContext& context) {
    bind_process(last);
    std::jthread helper([&](const std::stop_token& stop) {
      bind(0, first);
      ++signals[1];
      while (!stop.stop_requested()) sched_yield();
    });
    signals.wait_for(1, 1);
    Group group = context.join();
    write_line("joined");
    signals.wait_for(0, 1);
  });
  ASSERT_EQ(trainer.read_line(), "joined");
  EXPECT_EQ(cores_of_worker(mesh), both);
  ++signals[0];
  EXPECT_EQ(trainer.wait(), "");
}

}  // namespace
}  // namespace tutti
