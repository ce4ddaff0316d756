// What fails while NCCL connects hosts: ranks, workers, deadlines, NCCL itself. Every operation
// ends by name, streams are released, and the next epoch works.
#include <csignal>

#include "tests/process/gpu_link_fixture.h"

namespace tutti {
namespace {

using namespace testing;

class GpuLinkFaults : public GpuLinkMesh {
 protected:
  void fail_in_an_operation(const RankContext& context, const std::string& part);
  bool has_logged(int host, const std::string& text) const {
    return text_of(mesh_->host(host).log).find(text) != std::string::npos;
  }
};

INSTANTIATE_TEST_SUITE_P(Layouts, GpuLinkFaults,
                         ::testing::Values(std::vector{1, 1}, std::vector{2, 1},
                                           std::vector{1, 1, 1}));

// Reaches NCCL and starts an operation for which the last rank's stream is late. It ends
// UNAVAILABLE, saying this, and the streams go on. Then the ranks meet again.
void GpuLinkFaults::fail_in_an_operation(const RankContext& context, const std::string& part) {
  const GpuRank rank(context);
  const cuda::Stream stream = rank.cuda.stream();
  uint64_t* gate = rank.cuda.pinned();
  {
    CGroup group(context);
    rank.reduce_until(group, [this] { return nccl_was_used(); });
    rank.write_ones();
    const tutti_options options = on_stream(stream);
    if (context.rank == context.world_size - 1) rank.cuda.hold(stream, gate);
    tutti_work* work = nullptr;
    CGroup::expect(rank.reduce(group, &options, &work));
    write_line("started");
    check_refused(tutti_work_wait(work, -1), TUTTI_UNAVAILABLE, part);
    tutti_work_free(work);
    std::atomic_ref(*gate).store(1);
    rank.cuda.synchronize(stream);
  }
  write_line("failed");
  gate_.wait();
  const std::unique_ptr<CGroup> again = join_again(context);
  const size_t before = nccl_log().size();  // It matters on rank 0.
  rank.reduce_until(*again, [&] { return nccl_log().size() > before; });
}

void await_lines(const std::vector<Trainer>& trainers, const std::string& line) {
  for (const Trainer& trainer : trainers) EXPECT_EQ(trainer.read_line(), line);
}

TEST_P(GpuLinkFaults, AWorkerThatIsKilledIsNamedAndTheNextEpochWorks) {
  std::vector<Trainer> trainers = start([this](const RankContext& context) {
    const bool is_there = context.rank == context.world_size - 1;
    fail_in_an_operation(context,
                         is_there ? "worker" : "host " + std::string(1, 'a' + hosts() - 1));
  });
  await_lines(trainers, "started");
  const pid_t process = worker_of(*mesh_, hosts() - 1);
  ASSERT_GT(process, 0);
  kill(process, SIGKILL);
  await_lines(trainers, "failed");
  gate_.open_for(trainers.size());
  EXPECT_EQ(TestMesh::wait(trainers), "") << mesh_->log_tails();
}

TEST_P(GpuLinkFaults, AnErrorOfNcclIsNamedAndTheNextEpochWorks) {
  std::vector<Trainer> trainers = start([this](const RankContext& context) {
    fail_in_an_operation(context, "remote process exited or there was a network error (NCCL)");
  });
  await_lines(trainers, "started");
  set_fault("remote_error 0");
  await_lines(trainers, "failed");
  clear_faults();
  gate_.open_for(trainers.size());
  EXPECT_EQ(TestMesh::wait(trainers), "") << mesh_->log_tails();
}

// The rank whose stream is late dies.
TEST_P(GpuLinkFaults, ARankThatDiesInTheMiddleIsNamed) {
  std::vector<Trainer> trainers = start([this](const RankContext& context) {
    const GpuRank rank(context);
    CGroup group(context);
    rank.reduce_until(group, [this] { return nccl_was_used(); });
    rank.write_ones();
    const cuda::Stream stream = rank.cuda.stream();
    const tutti_options options = on_stream(stream);
    if (context.rank == context.world_size - 1) rank.cuda.hold(stream, rank.cuda.pinned());
    tutti_work* work = nullptr;
    CGroup::expect(rank.reduce(group, &options, &work));
    write_line("started");
    check_refused(tutti_work_wait(work, -1), TUTTI_UNAVAILABLE,
                  "rank " + std::to_string(context.world_size - 1));
    tutti_work_free(work);
    rank.cuda.synchronize(stream);
  });
  await_lines(trainers, "started");
  trainers.back().kill(SIGKILL);
  EXPECT_NE(trainers.back().wait(), "");
  trainers.pop_back();
  EXPECT_EQ(TestMesh::wait(trainers), "") << mesh_->log_tails();
}

TEST_P(GpuLinkFaults, AStreamThatIsLateIsNamed) {
  EXPECT_EQ(run([this](const RankContext& context) {
              const GpuRank rank(context);
              CGroup group(context);
              rank.reduce_until(group, [this] { return nccl_was_used(); });
              rank.write_ones();
              const cuda::Stream stream = rank.cuda.stream();
              tutti_options options = on_stream(stream);
              options.timeout_ms = 1'000;
              uint64_t* gate = rank.cuda.pinned();
              if (context.rank == context.world_size - 1) rank.cuda.hold(stream, gate);
              tutti_work* work = nullptr;
              CGroup::expect(rank.reduce(group, &options, &work));
              check_refused(tutti_work_wait(work, -1), TUTTI_DEADLINE_EXCEEDED,
                            "rank " + std::to_string(context.world_size - 1));
              tutti_work_free(work);
              std::atomic_ref(*gate).store(1);
              rank.cuda.synchronize(stream);
            }),
            "");
}

// The next epoch goes by links: NCCL would fail there again.
TEST_P(GpuLinkFaults, WorkThatNcclRefusesIsNamedAndTheNextEpochUsesLinks) {
  std::vector<Trainer> trainers = start([this](const RankContext& context) {
    const GpuRank rank(context);
    {
      CGroup group(context);
      rank.reduce_until(group, [this] { return nccl_was_used(); });
      CGroup::expect(tutti_barrier(group.get(), nullptr, nullptr));
      write_line("works");
      gate_.wait();
      check_refused(rank.reduce(group), TUTTI_UNAVAILABLE, "NCCL on host a: work was not queued");
    }
    const std::unique_ptr<CGroup> again = join_again(context);
    for (int i = 0; i < 60; ++i) rank.check_ramp(*again);
    write_line("works again");
    gate_.wait();
  });
  await_lines(trainers, "works");
  set_fault("launch_fails 0");
  gate_.open_for(trainers.size());
  await_lines(trainers, "works again");
  EXPECT_EQ(worker(0).gpu_link(), "host");
  EXPECT_NE(worker(0).gpu_link_why().find("host a: NCCL has failed there before"),
            std::string::npos);
  gate_.open_for(trainers.size());
  EXPECT_EQ(TestMesh::wait(trainers), "") << mesh_->log_tails();
}

// It waits for NCCL, while nothing of it is used any more.
TEST_P(GpuLinkFaults, AWorkerThatIsStoppedInAnOperationEndsOfItself) {
  std::vector<Trainer> trainers =
      start([this](const RankContext& context) { fail_in_an_operation(context, "host a"); });
  await_lines(trainers, "started");
  const pid_t process = worker_of(*mesh_, 0);
  ASSERT_GT(process, 0);
  set_fault("abort_is_slow 0");
  kill(process, SIGTERM);
  await_lines(trainers, "failed");
  while (!has_logged(0, "(pid " + std::to_string(process) + ") ended with exit code"))
    ASSERT_FALSE(has_logged(0, "was killed by signal")) << mesh_->log_tails();
  clear_faults();
  gate_.open_for(trainers.size());
  EXPECT_EQ(TestMesh::wait(trainers), "") << mesh_->log_tails();
}

// The worker whose NCCL does not come back ends, and the next join starts another one.
TEST_P(GpuLinkFaults, AnAbortThatDoesNotReturnEndsTheWorkerByName) {
  set("TUTTI_NCCL_TIMEOUT_MS", "2000");
  std::vector<Trainer> trainers = start([this](const RankContext& context) {
    fail_in_an_operation(context, "NCCL, as host a sees it");
  });
  await_lines(trainers, "started");
  const pid_t first = worker_of(*mesh_, 0);
  ASSERT_GT(first, 0);
  set_fault("abort_hangs 0");
  set_fault("remote_error 0");
  await_lines(trainers, "failed");
  while (worker_of(*mesh_, 0) == first) sched_yield();
  clear_faults();
  gate_.open_for(trainers.size());
  EXPECT_EQ(TestMesh::wait(trainers), "") << mesh_->log_tails();
  EXPECT_TRUE(has_logged(0, "NCCL did not end a communicator within 2000 ms"));
}

}  // namespace
}  // namespace tutti
