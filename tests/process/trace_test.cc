// The flight recorder over real processes: what trainers called can be read after their end, their
// worker's and while agents are replaced.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/control/admin_client.h"
#include "proto/mesh.pb.h"
#include "tests/support/await.h"
#include "tests/support/test_mesh.h"

namespace tutti {
namespace {

using namespace testing;

constexpr int kPatienceMs = 30'000;

v1::TraceReply trace_of(const TestMesh& mesh, int host, const std::string& job = "job") {
  Result<v1::TraceReply> reply = admin_trace(mesh.host(host).address, job, 0, kPatienceMs);
  if (!reply.ok()) throw std::runtime_error(reply.status().to_string());
  return *std::move(reply);
}

// Reads again until the condition holds.
template <class Done>
v1::TraceReply trace_when(const TestMesh& mesh, int host, const Done& done,
                          std::source_location at = std::source_location::current()) {
  v1::TraceReply reply;
  await([&] { return done(reply = trace_of(mesh, host)); }, at);
  return reply;
}

const v1::RankTrace* find_rank(const v1::TraceReply& reply, uint32_t rank) {
  for (const v1::HostTrace& host : reply.hosts())
    for (const v1::RankTrace& own : host.ranks())
      if (own.rank() == rank) return &own;
  return nullptr;
}

class Trace : public TwoHostsTest {};

TEST_F(Trace, ShowsWhatEachRankCalledAndWhatHostsDidWithIt) {
  const std::string reports = run({2, 1}, [](const RankContext& context) {
    Group group = context.join();
    std::vector<float> x(1000, 1.0f);
    group.all_reduce(std::span(x), sum, {.strategy = "ring"});
    const std::vector<uint32_t> pair = {0, 1};
    if (context.rank < 2) group.subgroup(pair).barrier();
    std::vector<double> y(500);
    group.broadcast(std::span(y), 2);
  });
  ASSERT_EQ(reports, "");
  const v1::TraceReply reply = trace_of(mesh_, 1);  // By way of the coordinator.
  ASSERT_EQ(reply.hosts_size(), 2);
  EXPECT_EQ(reply.missing_size(), 0);
  for (const v1::HostTrace& host : reply.hosts()) {
    EXPECT_EQ(host.job(), "job");
    EXPECT_EQ(host.epoch(), 1u);
    EXPECT_EQ(host.world_size(), 3u);
    EXPECT_FALSE(host.cut());
    EXPECT_EQ(host.ranks_size(), host.host() == "a" ? 2 : 1);
    // The barrier is one of a host's ranks among themselves.
    ASSERT_EQ(host.among_hosts_size(), 2) << host.host();
    EXPECT_EQ(host.among_hosts(0).global_strategy(), uint32_t{TUTTI_RING});
    EXPECT_EQ(host.among_hosts(0).bytes(), 4'000u);
    EXPECT_TRUE(host.among_hosts(1).ended());
  }
  for (uint32_t rank = 0; rank < 3; ++rank) {
    const v1::RankTrace* own = find_rank(reply, rank);
    ASSERT_NE(own, nullptr) << rank;
    const int calls = rank < 2 ? 3 : 2;
    ASSERT_EQ(own->operations_size(), calls) << rank;
    EXPECT_EQ(own->recorded(), static_cast<uint64_t>(calls));
    const v1::TracedOperation& reduced = own->operations(0);
    EXPECT_EQ(reduced.collective(), uint32_t{TUTTI_ALL_REDUCE});
    EXPECT_EQ(reduced.count(), 1000u);
    EXPECT_EQ(reduced.bytes(), 4000u);
    EXPECT_EQ(reduced.number(), 0u);
    EXPECT_EQ(reduced.global_strategy(), uint32_t{TUTTI_RING});
    EXPECT_TRUE(reduced.ended());
    EXPECT_EQ(reduced.code(), uint32_t{TUTTI_OK});
    EXPECT_GT(reduced.duration_ns(), 0u);
    const v1::TracedOperation& last = own->operations(calls - 1);
    EXPECT_EQ(last.collective(), uint32_t{TUTTI_BROADCAST});
    EXPECT_EQ(last.dtype(), uint32_t{TUTTI_F64});
    EXPECT_EQ(last.root(), 2u);
    EXPECT_EQ(last.group(), 0u);
    EXPECT_GE(last.begun_ns(), reduced.begun_ns() + reduced.duration_ns());
    if (rank == 2) continue;
    EXPECT_EQ(own->operations(1).collective(), uint32_t{TUTTI_BARRIER});
    EXPECT_NE(own->operations(1).group(), 0u);
  }
}

// A rank that waits for another, which never comes, is killed, and then the whole worker.
TEST_F(Trace, TheLastCallOfAKilledTrainerIsReadAfterItsEndAndItsWorkers) {
  std::vector<Trainer> trainers = mesh_.start("job", {2}, [](const RankContext& context) {
    Group group = context.join();
    check_works(group);
    write_line("ready");
    if (context.rank == 1) pause();
    all_reduce_of(group, 12'345, {.timeout = std::chrono::seconds(200)});
  });
  for (Trainer& trainer : trainers) ASSERT_EQ(trainer.read_line(), "ready");
  const auto has_called = [](const v1::TraceReply& reply) {
    const v1::RankTrace* rank = find_rank(reply, 0);
    return rank != nullptr && rank->operations_size() == 2;
  };
  ASSERT_TRUE(has_called(trace_when(mesh_, 0, has_called)));
  const auto status = admin_status(mesh_.host(0).address, true, kPatienceMs);
  ASSERT_TRUE(status.ok());
  trainers[0].kill(SIGKILL);
  EXPECT_EQ(trainers[0].wait(), "killed by signal 9");
  for (const bool worker_lives : {true, false}) {
    if (!worker_lives) kill(static_cast<pid_t>(status->agents(0).workers(0).pid()), SIGKILL);
    const v1::TraceReply reply = trace_when(mesh_, 0, [&](const v1::TraceReply& now) {
      return now.hosts_size() == 1 && now.hosts(0).ended() != worker_lives;
    });
    ASSERT_EQ(reply.hosts_size(), 1);
    EXPECT_EQ(reply.hosts(0).ended(), !worker_lives);
    const v1::RankTrace* rank = find_rank(reply, 0);
    ASSERT_NE(rank, nullptr);
    ASSERT_EQ(rank->operations_size(), 2);
    EXPECT_EQ(rank->operations(1).count(), 12'345u);
    EXPECT_FALSE(rank->operations(1).ended()) << "it was killed in the call";
    ASSERT_EQ(find_rank(reply, 1)->operations_size(), 1) << "it never called";
  }
}

TEST_F(Trace, IsKeptWhenTheJobHasEnded) {
  ASSERT_EQ(run({1, 1},
                [](const RankContext& context) {
                  Group group = context.join();
                  for (int i = 0; i < 5000; ++i) group.barrier();
                }),
            "");
  // The worker ends a while after its last trainer.
  const v1::TraceReply reply = trace_when(mesh_, 0, [](const v1::TraceReply& now) {
    return now.hosts_size() == 2 && now.hosts(0).ended() && now.hosts(1).ended();
  });
  ASSERT_EQ(reply.hosts_size(), 2);
  EXPECT_TRUE(reply.hosts(0).ended() && reply.hosts(1).ended());
  for (uint32_t rank = 0; rank < 2; ++rank) {
    const v1::RankTrace* own = find_rank(reply, rank);
    ASSERT_NE(own, nullptr);
    EXPECT_EQ(own->recorded(), 5000u);
    ASSERT_EQ(own->operations_size(), 4096);
    EXPECT_EQ(own->operations(4095).number(), 4999u);
    EXPECT_TRUE(own->operations(4095).ended());
  }
}

TEST_F(Trace, ACallThatFailedHasItsCode) {
  ASSERT_EQ(run({2},
                [](const RankContext& context) {
                  Group group = context.join();
                  const Error error =
                      failure_of([&] { all_reduce_of(group, context.rank == 0 ? 10 : 20); });
                  check(error.code == TUTTI_FAILED_PRECONDITION, error.what());
                }),
            "");
  // The worker sends its recorder while the ranks run: they may end before the agent has read it.
  const v1::TraceReply reply = trace_when(mesh_, 0, [](const v1::TraceReply& now) {
    return find_rank(now, 0) != nullptr && find_rank(now, 1) != nullptr;
  });
  for (uint32_t rank = 0; rank < 2; ++rank) {
    const v1::RankTrace* own = find_rank(reply, rank);
    ASSERT_NE(own, nullptr);
    ASSERT_EQ(own->operations_size(), 1);
    EXPECT_EQ(own->operations(0).code(), uint32_t{TUTTI_FAILED_PRECONDITION});
    EXPECT_EQ(own->operations(0).count(), rank == 0 ? 10u : 20u);
  }
}

}  // namespace
}  // namespace tutti
