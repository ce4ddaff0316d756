// A recorder's memory between processes: ranks that write it while others read it by its
// descriptor, and what is no such memory.
#include "daemon/session/host_recorder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace tutti {
namespace {

struct Writable {
  explicit Writable(const HostRecorder& recorder, uint32_t local_ranks)
      : bytes(recorder_bytes(local_ranks)),
        base(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, recorder.descriptor(), 0)),
        view(static_cast<std::byte*>(base), local_ranks) {}
  ~Writable() { munmap(base, bytes); }
  const uint64_t bytes;
  void* const base;
  const trace::RecorderView view;
};

// The absence of a rank fails an operation, and those that go because of that fail the next ones.
TEST(HostRecorder, KeepsTheFirstFailureOfThoseInARowAndTheNewestRow) {
  const auto recorder = HostRecorder::make(std::vector<uint32_t>{0, 1}, 2, 1);
  ASSERT_TRUE(recorder.ok());
  EXPECT_TRUE((*recorder)->failure().status.ok());
  (*recorder)->on_failed(deadline_exceeded("not called by rank 3"), 10);
  (*recorder)->on_failed(unavailable("rank 0 died"), 10);
  EXPECT_EQ((*recorder)->failure().status.message(), "not called by rank 3");
  EXPECT_GT((*recorder)->failure().time_ms, 0);
  (*recorder)->on_failed(unavailable("rank 1 died"), 12);
  EXPECT_EQ((*recorder)->failure().status.message(), "rank 1 died");
}

TEST(HostRecorder, TellsItsReadersOfGroupsAndOperationsAmongHosts) {
  const std::vector<uint32_t> ranks = {2, 5};
  const auto recorder = HostRecorder::make(ranks, 6, 9);
  ASSERT_TRUE(recorder.ok());
  (*recorder)->add_group(0, 0, 6, std::vector<uint32_t>{0, 1});
  (*recorder)->add_group(1, 40, 3, std::vector<uint32_t>{1});
  (*recorder)->on_started({40, 7}, {.collective = Collective::broadcast, .count = 10, .root = 1},
                          {{StrategyKind::ring}, {StrategyKind::tree, 2}});
  (*recorder)->on_started({99, 1}, {}, {});  // Nobody has told of this group.
  (*recorder)->on_started({0, 8}, {.collective = Collective::all_reduce, .count = 3}, {});
  (*recorder)->on_ended({40, 7}, Code::unavailable);
  (*recorder)->on_ended({40, 8}, Code::ok);
  const Result<trace::Trace> read = trace::read_trace((*recorder)->descriptor(), 100);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->epoch, 9u);
  ASSERT_EQ(read->ranks.size(), 2u);
  EXPECT_EQ(read->ranks[1].rank, 5u);
  ASSERT_EQ(read->groups.size(), 2u);
  EXPECT_EQ(read->groups[1].ranks, std::vector<uint32_t>{5});
  ASSERT_EQ(read->among_hosts.size(), 2u);
  const trace::Operation& first = read->among_hosts[0];
  EXPECT_EQ(first.group, 40u);
  EXPECT_EQ(first.number, 7u);
  EXPECT_EQ(first.collective, Collective::broadcast);
  EXPECT_EQ(first.bytes, 40u);
  EXPECT_EQ(first.local_strategy, TUTTI_RING);
  EXPECT_EQ(first.global_strategy, TUTTI_TREE | 2 << 4);
  ASSERT_TRUE(first.outcome.has_value());
  EXPECT_EQ(first.outcome->code, Code::unavailable);
  EXPECT_FALSE(read->among_hosts[1].outcome.has_value());
}

TEST(HostRecorder, ReadersTakeNoRecordThatIsMixedOfTwo) {
  const std::vector<uint32_t> ranks = {0, 1};
  const auto recorder = HostRecorder::make(ranks, 2, 1);
  ASSERT_TRUE(recorder.ok());
  (*recorder)->add_group(0, 0, 2, std::vector<uint32_t>{0, 1});
  std::atomic<bool> stop = false;
  std::vector<std::thread> writers;
  for (uint32_t local_rank = 0; local_rank < 2; ++local_rank)
    for (int thread = 0; thread < 2; ++thread)
      writers.emplace_back([&, local_rank] {
        const Writable own(**recorder, 2);
        RecordRing& ring = own.view.rank(local_rank).ring;
        for (uint64_t n = 0; !stop; ++n) {
          const uint64_t index = trace::record_begin(ring, {n, n, n, n, 0, 0});
          trace::record_end(ring, index, n, Code::ok);
        }
      });
  size_t seen = 0;
  size_t mixed = 0;
  for (int round = 0; round < 200 || seen < 1000; ++round) {
    const Result<trace::Trace> read = trace::read_trace((*recorder)->descriptor(), kRecordsKept);
    if (!read.ok()) break;
    for (const trace::Rank& rank : read->ranks)
      for (const trace::Operation& operation : rank.operations) {
        ++seen;
        mixed += operation.count != operation.number || operation.bytes != operation.number;
      }
  }
  stop = true;
  for (std::thread& writer : writers) writer.join();
  EXPECT_GE(seen, 1000u);
  EXPECT_EQ(mixed, 0u);
}

TEST(HostRecorder, WhatIsNoMemoryOfARecorderIsRefused) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const Fd read_end(ends[0]);
  const Fd write_end(ends[1]);
  const Fd program(open("/proc/self/exe", O_RDONLY));
  const Fd large(memfd_create("large", 0));
  ASSERT_EQ(ftruncate(large.get(), static_cast<off_t>(recorder_bytes(kLocalRanksMax) + 1)), 0);
  for (const Fd* other : {&read_end, &program, &large})
    EXPECT_EQ(trace::check_recorder(other->get()).code(), Code::failed_precondition);
  const Fd empty(memfd_create("empty", 0));
  EXPECT_TRUE(trace::check_recorder(empty.get()).ok());
  EXPECT_EQ(trace::read_trace(empty.get(), 1).status().code(), Code::failed_precondition);
}

}  // namespace
}  // namespace tutti
