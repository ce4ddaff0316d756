// Faults of GPUs, through real agents and workers, over the fake driver and the fake NVML: they end
// the jobs that use the GPU, by name, and nothing else.
#include <fstream>

#include "daemon/control/admin_client.h"
#include "proto/mesh.pb.h"
#include "tests/process/gpu_fixture.h"
#include "tests/support/temporary_directory.h"

namespace tutti {
namespace {

using namespace testing;

// A rank's tensor of ones, and its sum over all ranks.
class SummedOnes {
 public:
  explicit SummedOnes(const RankContext& context) : SummedOnes(context, context.rank % 2) {}
  SummedOnes(const RankContext& context, int gpu)
      : cuda(gpu), memory_(cuda, kCount * sizeof(float)), ranks_(context.world_size) {}

  tutti_code reduce(CGroup& group, const tutti_options* options = nullptr,
                    tutti_work** work = nullptr) const {
    return tutti_all_reduce(group.get(), memory_.data(), memory_.data(), kCount, TUTTI_F32,
                            TUTTI_SUM, options, work);
  }
  void check_sum(CGroup& group) const {
    cuda.write(memory_.data(), std::vector<float>(kCount, 1));
    CGroup::expect(reduce(group));
    check(cuda.read<float>(memory_.data(), kCount) ==
              std::vector<float>(kCount, static_cast<float>(ranks_)),
          "a right sum");
  }

  const CudaProgram cuda;

 private:
  const GpuMemory memory_;
  const int ranks_;
};

class GpuFaults : public ::testing::TestWithParam<std::vector<int>> {
 protected:
  void poison(pid_t process) const {
    std::ofstream(directory_ / "poison", std::ios::app) << process << std::endl;
  }
  void report_xid(int gpu, int xid) const {
    std::ofstream(directory_ / "events", std::ios::app) << gpu << ' ' << xid << std::endl;
  }
  std::vector<Trainer> start(const std::string& job, const Trainer::Body& body) const {
    return mesh_.start(job, GetParam(), body);
  }
  void go_on(const RankContext& context) const;
  static void await_lines(const std::vector<Trainer>& trainers, const std::string& line) {
    for (const Trainer& trainer : trainers) EXPECT_EQ(trainer.read_line(), line);
  }

  const Gate gate_;
  const TemporaryDirectory directory_;
  const Variable driver_{"TUTTI_CUDA_DRIVER", TUTTI_FAKE_CUDA};
  const Variable poison_{"FAKE_CUDA_POISON", directory_ / "poison"};
  const Variable library_{"TUTTI_NVML_LIBRARY", TUTTI_FAKE_NVML};
  const Variable events_{"FAKE_NVML_EVENTS", directory_ / "events"};
  TestMesh mesh_{static_cast<int>(GetParam().size())};
};

INSTANTIATE_TEST_SUITE_P(Layouts, GpuFaults,
                         ::testing::Values(std::vector{2}, std::vector{4}, std::vector{1, 1},
                                           std::vector{2, 1}));

// Starts an operation for which the last rank's stream is late, so that the GPUs wait and no call
// of the driver fails; it ends UNAVAILABLE, saying this.
void fail_in_an_operation(const RankContext& context, const SummedOnes& ones,
                          const std::vector<std::string>& says) {
  CGroup group(context);
  ones.check_sum(group);
  const cuda::Stream stream = ones.cuda.stream();
  const tutti_options options = on_stream(stream);
  uint64_t* gate = ones.cuda.pinned();
  if (context.rank == context.world_size - 1) ones.cuda.hold(stream, gate);
  tutti_work* work = nullptr;
  CGroup::expect(ones.reduce(group, &options, &work));
  write_line("started");
  for (const std::string& part : says)
    check_refused(tutti_work_wait(work, -1), TUTTI_UNAVAILABLE, part);
  tutti_work_free(work);
  std::atomic_ref(*gate).store(1);
  ones.cuda.synchronize(stream);
}

// A job that goes on beside others until it is asked to end.
void GpuFaults::go_on(const RankContext& context) const {
  const SummedOnes ones(context, 0);
  CGroup group(context);
  ones.check_sum(group);
  write_line("works");
  gate_.wait();
  for (int i = 0; i < 10; ++i) ones.check_sum(group);
}

TEST_P(GpuFaults, APoisonedContextEndsItsJobByNameAndNoOther) {
  const auto go_on_beside = [this](const RankContext& context) { go_on(context); };
  std::vector<Trainer> others = start("other", go_on_beside);
  await_lines(others, "works");
  const pid_t other = worker_of(mesh_, 0, "other");
  std::vector<Trainer> trainers = start("job", [](const RankContext& context) {
    const SummedOnes ones(context);
    fail_in_an_operation(context, ones, {"(Fake GPU, GPU-", "CUDA_ERROR_ILLEGAL_ADDRESS"});
    ones.check_sum(*join_again(context));
  });
  await_lines(trainers, "started");
  const pid_t worker = worker_of(mesh_, 0);
  ASSERT_GT(worker, 0);
  poison(worker);
  EXPECT_EQ(TestMesh::wait(trainers), "") << mesh_.log_tails();
  EXPECT_EQ(worker_of(mesh_, 0, "other"), other);
  gate_.open_for(others.size());
  EXPECT_EQ(TestMesh::wait(others), "") << mesh_.log_tails();
}

// Nothing is under way when it happens: the next call of the driver meets it.
TEST_P(GpuFaults, AContextThatIsPoisonedWhileIdleEndsTheNextOperationByName) {
  std::vector<Trainer> trainers = start("job", [this](const RankContext& context) {
    const SummedOnes ones(context);
    {
      CGroup group(context);
      ones.check_sum(group);
      write_line("idle");
      gate_.wait();
      check_refused(ones.reduce(group), TUTTI_UNAVAILABLE, "(Fake GPU, GPU-");
    }
    ones.check_sum(*join_again(context));
  });
  await_lines(trainers, "idle");
  poison(worker_of(mesh_, 0));
  gate_.open_for(trainers.size());
  EXPECT_EQ(TestMesh::wait(trainers), "") << mesh_.log_tails();
}

// An operation without a handle: the worker is gone when the rank asks next.
TEST_P(GpuFaults, AStreamWithoutWorkGoesOnAndTheNextCallIsRefusedByName) {
  std::vector<Trainer> trainers = start("job", [this](const RankContext& context) {
    const SummedOnes ones(context);
    CGroup group(context);
    ones.check_sum(group);
    const cuda::Stream stream = ones.cuda.stream();
    const tutti_options options = on_stream(stream);
    uint64_t* gate = ones.cuda.pinned();
    const bool is_late = context.rank == context.world_size - 1;
    if (is_late) ones.cuda.hold(stream, gate);
    CGroup::expect(ones.reduce(group, &options));
    write_line("started");
    if (!is_late) ones.cuda.synchronize(stream);
    gate_.wait();
    check_refused(tutti_barrier(group.get(), nullptr, nullptr), TUTTI_UNAVAILABLE,
                  "(Fake GPU, GPU-");
    std::atomic_ref(*gate).store(1);
    ones.cuda.synchronize(stream);
  });
  await_lines(trainers, "started");
  const pid_t worker = worker_of(mesh_, 0);
  ASSERT_GT(worker, 0);
  poison(worker);
  while (worker_of(mesh_, 0) == worker) sched_yield();
  gate_.open_for(trainers.size());
  EXPECT_EQ(TestMesh::wait(trainers), "") << mesh_.log_tails();
}

// ---- XIDs ----

// Waits until all agents know that their GPU 1 has failed: they learn it one by one.
void await_failed_gpus(const std::string& address) {
  const auto knows = [](const v1::AgentReport& agent) { return agent.gpus(1).failed(); };
  for (;;) {
    const auto status = admin_status(address, true, 5'000);
    if (status.ok() && std::ranges::all_of(status->agents(), knows)) return;
  }
}

// It is refused until the agent is restarted; another GPU is not.
TEST_P(GpuFaults, AGpuWithAFatalXidEndsTheJobsThatUseItByNameAndIsRefused) {
  std::vector<Trainer> others =
      start("other", [this](const RankContext& context) { go_on(context); });
  await_lines(others, "works");
  const pid_t other = worker_of(mesh_, 0, "other");
  const std::string address = mesh_.host(0).address;
  std::vector<Trainer> trainers = start("job", [&address](const RankContext& context) {
    const std::string gpu = "GPU 1 (NVIDIA H100, GPU-10000000-1111-2222-3333-444444444444, ";
    const std::string xid = "failed: XID 79 (GPU has fallen off the bus); reset it or restart";
    const SummedOnes ones(context, 1);
    fail_in_an_operation(context, ones, {gpu, xid});
    await_failed_gpus(address);
    const std::unique_ptr<CGroup> again = join_again(context);
    check_refused(ones.reduce(*again), TUTTI_UNAVAILABLE, gpu);
    check_refused(ones.reduce(*again), TUTTI_UNAVAILABLE, xid);
    SummedOnes(context, 0).check_sum(*again);
  });
  await_lines(trainers, "started");
  report_xid(1, 79);
  EXPECT_EQ(TestMesh::wait(trainers), "") << mesh_.log_tails();
  EXPECT_EQ(worker_of(mesh_, 0, "other"), other);
  gate_.open_for(others.size());
  EXPECT_EQ(TestMesh::wait(others), "") << mesh_.log_tails();
  const auto status = admin_status(mesh_.host(0).address, true, 5'000);
  ASSERT_TRUE(status.ok());
  EXPECT_EQ(status->agents(0).gpus(1).state(), "failed: XID 79 (GPU has fallen off the bus)");
  EXPECT_EQ(status->agents(0).gpus(0).state(), "OK");
}

// An XID of an application, such as the one of the worker's own fault, takes no GPU out.
TEST_P(GpuFaults, AnXidOfAnApplicationTakesNoGpuOut) {
  std::vector<Trainer> trainers =
      start("job", [this](const RankContext& context) { go_on(context); });
  await_lines(trainers, "works");
  report_xid(0, 31);
  const auto xid = [this] {
    const auto status = admin_status(mesh_.host(0).address, true, 5'000);
    return status.ok() ? status->agents(0).gpus(0).xid() : 0;
  };
  while (xid() != 31) sched_yield();
  gate_.open_for(trainers.size());
  EXPECT_EQ(TestMesh::wait(trainers), "") << mesh_.log_tails();
}

}  // namespace
}  // namespace tutti
