// Many hosts: an agent, a worker and a trainer each, all real processes of this machine.
#include <gtest/gtest.h>

#include "tests/support/proc_figures.h"
#include "tests/support/process_mesh.h"

namespace tutti {
namespace {

using testing::all_reduce_of;
using testing::check;
using testing::check_works;
using testing::ProcessMesh;
using testing::Seat;

TEST(ScaleMeshTest, SixtyFourAgentsFormAJobThatWorks) {
  constexpr int kHosts = 64;
  ProcessMesh mesh(kHosts);
  const std::string reports = mesh.run("wide", std::vector<int>(kHosts, 1), [](const Seat& seat) {
    Group group = seat.join();
    check(group.world_size() == kHosts, "a world of 64");
    check_works(group);
    Options options;
    options.strategy = "tree:4";
    all_reduce_of(group, 1000, options);
    group.leave();
  });
  EXPECT_EQ(reports, "");
}

// Two hosts, so that the leader has something to choose: what it learnt is in its report alone.
TEST(ScaleMeshTest, TheDecidingWorkerReportsWhatItLearnt) {
  ProcessMesh mesh(2);
  std::vector<testing::Trainer> trainers = mesh.start("learn", {1, 1}, [](const Seat& seat) {
    Group group = seat.join();
    for (int i = 0; i < 50; ++i) all_reduce_of(group, 50'000);
    if (seat.rank == 0) testing::say("learnt");
    group.barrier();
    all_reduce_of(group, 1);
    pause();
  });
  EXPECT_EQ(trainers[0].line(), "learnt");
  const v1::WorkerReport leader = testing::worker_report(mesh, 0, "learn");
  const v1::WorkerReport member = testing::worker_report(mesh, 1, "learn");
  EXPECT_FALSE(member.has_tuning());
  uint32_t samples = 0;
  int chosen = 0;
  for (const v1::StrategyTime& time : leader.tuning().times()) {
    if (time.bytes() != 262'144) continue;
    EXPECT_GT(time.predicted_us(), 0);
    samples += time.samples();
    chosen += time.chosen() ? 1 : 0;
  }
  EXPECT_GT(samples, 40u);
  EXPECT_EQ(chosen, 1);
  ASSERT_GE(leader.tuning().links_size(), 2);
  for (const v1::LinkTime& link : leader.tuning().links()) EXPECT_GT(link.message_us(), 0);
}

}  // namespace
}  // namespace tutti
