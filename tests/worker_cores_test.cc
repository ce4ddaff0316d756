// Where workers run: on the cores their trainers have, and on no others.
#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <set>
#include <thread>

#include "tests/board_fixture.h"
#include "tests/proc_figures.h"

namespace tutti {
namespace {

using testing::check;
using testing::check_works;
using testing::ProcessMesh;
using testing::say;
using testing::Seat;
using testing::Signals;
using testing::Trainer;

using CoreSet = std::set<int>;

CoreSet cores_of_thread(pid_t thread) {
  cpu_set_t set;
  CPU_ZERO(&set);
  check(sched_getaffinity(thread, sizeof(set), &set) == 0, "a thread's cores");
  CoreSet cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) cores.insert(core);
  return cores;
}

// Of the calling thread, and those it starts.
void bind_to(const CoreSet& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  check(sched_setaffinity(0, sizeof(set), &set) == 0, "binding");
}

// Of all threads, which must agree.
CoreSet cores_of_worker(const ProcessMesh& mesh) {
  const uint32_t pid = testing::worker_report(mesh, 0, "job").pid();
  std::set<CoreSet> found;
  for (const auto& thread :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task"))
    found.insert(cores_of_thread(std::stoi(thread.path().filename())));
  EXPECT_EQ(found.size(), 1u);
  return *found.begin();
}

struct WorkerCores : ::testing::Test {
  const CoreSet all = cores_of_thread(0);
  const CoreSet first = {*all.begin()};
  const CoreSet last = {*all.rbegin()};
  const CoreSet both = {*all.begin(), *all.rbegin()};
  Signals signals;
  ProcessMesh mesh{1};
};

TEST_F(WorkerCores, AreThoseOfTheTrainersOfTheEpoch) {
  struct Epoch {
    CoreSet bound[2];  // The trainers.
    CoreSet worker;
  };
  const std::vector<Epoch> epochs = {
      {{last, last}, last}, {{first, last}, both}, {{all, all}, all}, {{last, all}, all}};
  std::vector<Trainer> trainers = mesh.start("job", {2}, [&](const Seat& seat) {
    for (int epoch = 0; const auto& [bound, worker] : epochs) {
      bind_to(bound[seat.rank]);
      Group group = seat.join();
      check_works(group);
      say("joined");
      signals.wait_for(0, ++epoch);
      group.leave();
      ++signals[1];
      signals.wait_for(1, 2 * epoch);  // Neither joins anew while the other is there.
    }
  });
  for (const Epoch& epoch : epochs) {
    for (Trainer& trainer : trainers) ASSERT_EQ(trainer.line(), "joined");
    EXPECT_EQ(cores_of_worker(mesh), epoch.worker);
    ++signals[0];
  }
  EXPECT_EQ(ProcessMesh::wait(trainers), "");
}

// As OpenMP runtimes do it.
TEST_F(WorkerCores, AreThoseOfAllThreadsOfATrainer) {
  Trainer trainer({"job", mesh.host(0).socket, 0, 1}, [&](const Seat& seat) {
    std::jthread helper([&](const std::stop_token& stop) {
      bind_to(first);
      ++signals[1];
      while (!stop.stop_requested()) sched_yield();
    });
    signals.wait_for(1, 1);
    bind_to(last);
    Group group = seat.join();
    say("joined");
    signals.wait_for(0, 1);
  });
  ASSERT_EQ(trainer.line(), "joined");
  EXPECT_EQ(cores_of_worker(mesh), both);
  ++signals[0];
  EXPECT_EQ(trainer.wait(), "");
}

}  // namespace
}  // namespace tutti
