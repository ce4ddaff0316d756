// An agent that is asked to end and has drain_ms: it waits for the jobs of its node, at most so
// long.
#include "tests/support/test_mesh.h"

namespace tutti {
namespace {

using namespace testing;

struct DrainTest : ::testing::Test {
  explicit DrainTest(const char* drain_ms = "3600000") {
    const Variable drain("TUTTI_DRAIN_MS", drain_ms);
    mesh_ = std::make_unique<TestMesh>(1);
  }
  void tell_to_end() const { kill(mesh_->host(0).agent, SIGTERM); }
  // Blocks until the agent has ended. Its launcher collects it.
  int exit_code() const {
    siginfo_t info{};
    waitid(P_PID, static_cast<id_t>(mesh_->host(0).agent), &info, WEXITED | WNOWAIT);
    return info.si_code == CLD_EXITED ? info.si_status : -1;
  }

  std::unique_ptr<TestMesh> mesh_;
};

struct DrainShortTest : DrainTest {
  DrainShortTest() : DrainTest("300") {}
};

void work_until_told(const RankContext& context) {
  Group group = context.join();
  check_works(group);
  write_line("ready");
  for (float more = 1; more != 0;) {
    more = static_cast<float>(std::filesystem::exists(context.socket + ".more"));
    group.all_reduce(std::span(&more, 1), tutti::min);
  }
  check_works(group);
}

TEST_F(DrainTest, LetsItsJobEndAndThenEndsItself) {
  const std::string more = mesh_->host(0).socket + ".more";
  std::ofstream(more) << "";
  std::vector<Trainer> trainers = mesh_->start("job", {2}, work_until_told);
  for (Trainer& trainer : trainers) ASSERT_EQ(trainer.read_line(), "ready");
  tell_to_end();
  Trainer late(RankContext{"late", mesh_->host(0).socket, 0, 1}, [](const RankContext& context) {
    for (;;) {  // Until it has read the signal.
      try {
        context.join().leave();
      } catch (const Error& error) {
        check(error.code == TUTTI_UNAVAILABLE, error.what());
        return check_contains(error, "stopping");
      }
    }
  });
  EXPECT_EQ(late.wait(), "");
  std::filesystem::remove(more);
  EXPECT_EQ(TestMesh::wait(trainers), "") << mesh_->log_tails();
  EXPECT_EQ(exit_code(), 0);
}

TEST_F(DrainShortTest, EndsItsJobByNameWhenTheTimeIsOver) {
  std::vector<Trainer> trainers = mesh_->start("job", {2}, [](const RankContext& context) {
    Group group = context.join();
    write_line("ready");
    const Error error = failure_of([&] {
      for (;;) check_works(group);
    });
    check(error.code == TUTTI_UNAVAILABLE, error.what());
    check_contains(error, "the worker of host a was stopped");
  });
  for (Trainer& trainer : trainers) ASSERT_EQ(trainer.read_line(), "ready");
  tell_to_end();
  EXPECT_EQ(TestMesh::wait(trainers), "") << mesh_->log_tails();
  EXPECT_EQ(exit_code(), 0);
}

}  // namespace
}  // namespace tutti
