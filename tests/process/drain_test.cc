// An agent that is asked to end and has drain_ms: it waits for the jobs of its node, at most so
// long.
#include <thread>

#include "tests/support/await.h"
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

ShellOutcome tutti(const TestMesh& mesh, const std::string& command) {
  return run_shell("exec '" + (program_directory() / "tutti").string() + "' " + command +
                   " --address '" + mesh.host(0).address + "'");
}

TEST(StopProcess, EndsOneJobOnAllHostsAndItsTrainersKnowWhoDidIt) {
  const TestMesh mesh(2);
  Gate go_on;
  const auto work = [](const RankContext& context) {
    Group group = context.join();
    write_line("ready");
    const Error error = failure_of([&] {
      for (;;) check_works(group);
    });
    check(error.code == TUTTI_UNAVAILABLE, error.what());
    check_contains(error, "job \"job\" was stopped by ");
    check_contains(error, "who asked tuttid at ");
  };
  std::vector<Trainer> trainers = mesh.start("job", {1, 1}, work);
  std::vector<Trainer> others = mesh.start("other", {1}, [&go_on](const RankContext& context) {
    Group group = context.join();
    write_line("ready");
    go_on.wait();
    check_works(group);
  });
  for (Trainer& trainer : trainers) ASSERT_EQ(trainer.read_line(), "ready");
  for (Trainer& trainer : others) ASSERT_EQ(trainer.read_line(), "ready");
  const ShellOutcome missed = tutti(mesh, "stop jbo");
  EXPECT_EQ(missed.code, 1);
  EXPECT_NE(missed.out.find("did you mean 'job'?"), std::string::npos) << missed.out;
  const ShellOutcome stopped = tutti(mesh, "stop job");
  EXPECT_EQ(stopped.code, 0) << stopped.out;
  EXPECT_EQ(stopped.out, "ended job job on a, b\n");
  EXPECT_EQ(TestMesh::wait(trainers), "") << mesh.log_tails();
  EXPECT_EQ(tutti(mesh, "stop job --jobs").code, 2);
  go_on.open_for(1);
  EXPECT_EQ(TestMesh::wait(others), "") << mesh.log_tails();
}

TEST(DrainWait, GoesOnUntilTheNodeHasNoJob) {
  const TestMesh mesh(1);
  EXPECT_EQ(tutti(mesh, "drain --timeout 10m").code, 2);
  EXPECT_EQ(tutti(mesh, "drain --wait --timeout soon").code, 2);
  EXPECT_EQ(tutti(mesh, "drain --wait --timeout=").code, 2);
  Gate end;
  std::vector<Trainer> trainers = mesh.start("job", {1}, [&end](const RankContext& context) {
    Group group = context.join();
    write_line("ready");
    end.wait();
  });
  ASSERT_EQ(trainers.front().read_line(), "ready");
  const ShellOutcome late = tutti(mesh, "drain --wait --timeout 1ms");
  EXPECT_EQ(late.code, 1);
  EXPECT_NE(late.out.find("waits for 1 job: job (ranks 0 of 1)\n"), std::string::npos) << late.out;
  EXPECT_NE(late.out.find("this node still has 1 job: job"), std::string::npos) << late.out;
  ShellOutcome undone;
  std::thread waits([&] { undone = tutti(mesh, "drain --wait --timeout 10m"); });
  EXPECT_TRUE(
      await([&] { return tutti(mesh, "status").out.find("draining") != std::string::npos; }));
  EXPECT_EQ(tutti(mesh, "drain --undo").code, 0);
  waits.join();
  EXPECT_EQ(undone.code, 1);
  EXPECT_NE(undone.out.find("takes jobs again: its draining was ended meanwhile"),
            std::string::npos)
      << undone.out;
  EXPECT_EQ(tutti(mesh, "status >/dev/full").code, 1);
  const ShellOutcome missed = tutti(mesh, "top jbo --once");
  EXPECT_EQ(missed.code, 1);
  EXPECT_NE(missed.out.find("no job jbo runs; did you mean 'job'?"), std::string::npos)
      << missed.out;
  end.open_for(1);
  const ShellOutcome ended = tutti(mesh, "drain --wait");
  EXPECT_EQ(ended.code, 0) << ended.out;
  EXPECT_EQ(TestMesh::wait(trainers), "");
}

}  // namespace
}  // namespace tutti
