// Many hosts, each with a real agent, worker and trainer.
#include <gtest/gtest.h>

#include "tests/support/proc_counters.h"
#include "tests/support/test_mesh.h"

namespace tutti {
namespace {

using namespace testing;

TEST(ScaleMeshTest, SixtyFourAgentsFormAJobThatWorks) {
  constexpr int kHosts = 64;
  TestMesh mesh(kHosts);
  const std::string reports =
      mesh.run("wide", std::vector<int>(kHosts, 1), [](const RankContext& context) {
        Group group = context.join();
        check(group.world_size() == kHosts, "a world of 64");
        check_works(group);
        Options options;
        options.strategy = "tree:4";
        all_reduce_of(group, 1000, options);
        group.leave();
      });
  EXPECT_EQ(reports, "");
}

// Two hosts, so that the leader has a choice of strategies; only its report has the timings.
TEST(ScaleMeshTest, TheDecidingWorkerReportsWhatItLearnt) {
  TestMesh mesh(2);
  std::vector<testing::Trainer> trainers =
      mesh.start("learn", {1, 1}, [](const RankContext& context) {
        Group group = context.join();
        for (int i = 0; i < 50; ++i) all_reduce_of(group, 50'000);
        if (context.rank == 0) testing::write_line("learnt");
        group.barrier();
        all_reduce_of(group, 1);
        pause();
      });
  EXPECT_EQ(trainers[0].read_line(), "learnt");
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
