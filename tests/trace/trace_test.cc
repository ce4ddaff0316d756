// What is read of a recorder: what was recorded, and never more than makes sense, whatever its
// memory holds.
#include "daemon/trace/trace.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace tutti {
namespace {

using trace::Operation;

// A recorder of two ranks, 4 and 7 of 9, in this process's memory.
struct Recorder {
  Recorder() {
    view.header() = {kRecorderMagic, kProtocolVersion, 3, 2, 9, 1'000, 5'000'000};
    view.rank(0).rank = 4;
    view.rank(1).rank = 7;
    add_group(0, 0, 9, 0b11);
    add_group(1, 77, 2, 0b10);
  }
  void add_group(uint32_t area, uint32_t number, uint32_t size, uint64_t local_ranks) {
    view.group(area).number = number;
    view.group(area).local_ranks[0] = local_ranks;
    view.group(area).size = size;
  }
  // Rank 4's call `number`, of area 0 unless there is another; returns its index.
  uint64_t begin(uint64_t number, uint16_t area = 0) {
    const RecordedCall call{area, TUTTI_REDUCE, TUTTI_F64, TUTTI_MAX, kRequestBlocking, 5};
    const RecordedChoice choice{6, pack_short_strategy(TUTTI_RING),
                                pack_short_strategy(pack_strategy(TUTTI_TREE, 3)), 0};
    return trace::record_begin(ring(), {number, 1000, 8000, 1'700, std::bit_cast<uint64_t>(call),
                                        std::bit_cast<uint64_t>(choice)});
  }
  RecordRing& ring() { return view.rank(0).ring; }
  Result<trace::Trace> read(uint64_t last = kRecordsKept) const {
    const auto bytes = std::as_bytes(std::span(lines));
    return trace::read_trace(
        [&](uint64_t offset, std::span<std::byte> into) {
          if (offset > bytes.size() || into.size() > bytes.size() - offset) return false;
          std::memcpy(into.data(), bytes.data() + offset, into.size());
          return true;
        },
        last);
  }
  std::vector<Operation> operations(uint64_t last = kRecordsKept) const {
    return read(last)->ranks.at(0).operations;
  }

  struct alignas(4096) Line {
    std::byte bytes[4096];
  };
  std::vector<Line> lines = std::vector<Line>(recorder_bytes(2) / sizeof(Line));
  const trace::RecorderView view{lines.front().bytes, 2};
};

TEST(Trace, AnOperationIsReadAsItWasRecorded) {
  Recorder recorder;
  const uint64_t index = recorder.begin(12, 1);
  trace::record_end(recorder.ring(), index, 250, Code::deadline_exceeded);
  recorder.begin(13);
  const Result<trace::Trace> read = recorder.read();
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->epoch, 3u);
  EXPECT_EQ(read->world_size, 9u);
  ASSERT_EQ(read->groups.size(), 2u);
  EXPECT_EQ(read->groups[0].ranks, (std::vector<uint32_t>{4, 7}));
  EXPECT_EQ(read->groups[1].number, 77u);
  EXPECT_EQ(read->groups[1].size, 2u);
  EXPECT_EQ(read->groups[1].ranks, std::vector<uint32_t>{7});
  ASSERT_EQ(read->ranks.size(), 2u);
  EXPECT_EQ(read->ranks[0].rank, 4u);
  EXPECT_EQ(read->ranks[0].recorded, 2u);
  EXPECT_EQ(read->ranks[1].rank, 7u);
  EXPECT_TRUE(read->ranks[1].operations.empty());
  ASSERT_EQ(read->ranks[0].operations.size(), 2u);
  const Operation& first = read->ranks[0].operations[0];
  EXPECT_EQ(first.group, 77u);
  EXPECT_EQ(first.number, 12u);
  EXPECT_EQ(first.collective, Collective::reduce);
  EXPECT_EQ(first.dtype, Dtype::f64);
  EXPECT_EQ(first.op, Op::max);
  EXPECT_EQ(first.flags, kRequestBlocking);
  EXPECT_EQ(first.layout, 5u);
  EXPECT_EQ(first.root, 6u);
  EXPECT_EQ(first.local_strategy, TUTTI_RING);
  EXPECT_EQ(first.global_strategy, TUTTI_TREE | 3 << 4);
  EXPECT_EQ(first.count, 1000u);
  EXPECT_EQ(first.bytes, 8000u);
  EXPECT_EQ(first.begun_ns, 5'000'700u) << "by the real-time clock";
  ASSERT_TRUE(first.outcome.has_value());
  EXPECT_EQ(first.outcome->duration_ns, 250u);
  EXPECT_EQ(first.outcome->code, Code::deadline_exceeded);
  EXPECT_FALSE(read->ranks[0].operations[1].outcome.has_value());
}

TEST(Trace, ARingKeepsTheLastOperations) {
  Recorder recorder;
  for (uint64_t i = 0; i < 2 * kRecordsKept + 10; ++i)
    trace::record_end(recorder.ring(), recorder.begin(i), i, Code::ok);
  const std::vector<Operation> all = recorder.operations();
  ASSERT_EQ(all.size(), kRecordsKept);
  for (size_t i = 0; i < all.size(); ++i) {
    ASSERT_EQ(all[i].number, kRecordsKept + 10 + i);
    ASSERT_EQ(all[i].index, all[i].number);
    ASSERT_EQ(all[i].outcome->duration_ns, all[i].number);
  }
  const std::vector<Operation> some = recorder.operations(3);
  ASSERT_EQ(some.size(), 3u);
  EXPECT_EQ(some.back().number, 2 * kRecordsKept + 9);
  EXPECT_TRUE(recorder.operations(0).empty());
}

TEST(Trace, ARecordThatIsHalfWrittenIsLeftOut) {
  for (uint32_t field = 0; field < kRecordFields; ++field) {
    Recorder recorder;
    for (uint64_t i = 0; i < 3; ++i) recorder.begin(i);
    // As if the next generation's fields were on their way, and its checked index not yet.
    recorder.ring().records[1].fields[field] += 1;
    const std::vector<Operation> left = recorder.operations();
    ASSERT_EQ(left.size(), 2u) << field;
    EXPECT_EQ(left[0].number, 0u);
    EXPECT_EQ(left[1].number, 2u);
  }
}

TEST(Trace, AnOutcomeBelongsToItsOwnGeneration) {
  Recorder recorder;
  const uint64_t old = recorder.begin(1);
  for (uint64_t i = 1; i < kRecordsKept; ++i) recorder.begin(1 + i);
  recorder.begin(9'999);  // In the place of the first.
  trace::record_end(recorder.ring(), old, 1, Code::ok);
  EXPECT_FALSE(recorder.operations().back().outcome.has_value());
  recorder.ring().records[0].outcome = pack_outcome(1, old, TUTTI_OK);
  EXPECT_FALSE(recorder.operations().back().outcome.has_value());
  trace::record_end(recorder.ring(), old + kRecordsKept, 2, Code::ok);
  trace::record_end(recorder.ring(), old, 1, Code::ok);
  ASSERT_TRUE(recorder.operations().back().outcome.has_value()) << "it was not overwritten";
  EXPECT_EQ(recorder.operations().back().outcome->duration_ns, 2u);
}

TEST(Trace, CallsOutsideOfTheTablesAreLeftOut) {
  const auto is_read = [](const RecordedCall& call) {
    Recorder recorder;
    trace::record_begin(recorder.ring(), {0, 0, 0, 0, std::bit_cast<uint64_t>(call), 0});
    return !recorder.operations().empty();
  };
  EXPECT_TRUE(is_read({1, kCollectives - 1, kDtypes - 1, kOps - 1, 0, 0}));
  EXPECT_FALSE(is_read({2, 0, 0, 0, 0, 0})) << "there is no such group";
  EXPECT_FALSE(is_read({0, kCollectives, 0, 0, 0, 0}));
  EXPECT_FALSE(is_read({0, 0, kDtypes, 0, 0, 0}));
  EXPECT_FALSE(is_read({0, 0, 0, kOps, 0, 0}));
}

TEST(Trace, WhatIsNoRecorderIsRefused) {
  Recorder recorder;
  const RecorderHeader good = recorder.view.header();
  const auto refused = [&](auto change) {
    recorder.view.header() = good;
    change(recorder.view.header());
    return recorder.read().status().code() == Code::failed_precondition;
  };
  EXPECT_TRUE(refused([](RecorderHeader& header) { header.magic = 1; }));
  EXPECT_TRUE(refused([](RecorderHeader& header) { header.version += 1; }));
  EXPECT_TRUE(refused([](RecorderHeader& header) { header.local_ranks = 0; }));
  EXPECT_TRUE(refused([](RecorderHeader& header) { header.local_ranks = kLocalRanksMax + 1; }));
  EXPECT_TRUE(refused([](RecorderHeader& header) { header.world_size = 0; }));
  EXPECT_TRUE(refused([](RecorderHeader& header) { header.world_size = 1 << 16; }));
  EXPECT_FALSE(refused([](RecorderHeader&) {}));
}

TEST(Trace, RanksThatTheMemoryDoesNotHaveAreLeftOut) {
  Recorder recorder;
  recorder.begin(0);
  recorder.view.header().local_ranks = kLocalRanksMax;
  const Result<trace::Trace> read = recorder.read();
  ASSERT_TRUE(read.ok());
  // The ring of the operations among hosts is taken for one more local rank.
  ASSERT_LE(read->ranks.size(), 3u);
  EXPECT_EQ(read->ranks[0].operations.size(), 1u);
  EXPECT_TRUE(read->among_hosts.empty());
}

TEST(Trace, RanksThatCannotBeAreLeftOut) {
  Recorder recorder;
  recorder.view.rank(1).rank = 9;  // Of 9.
  EXPECT_EQ(recorder.read()->ranks.size(), 1u);
  recorder.view.rank(1).rank = 4;  // As the other.
  EXPECT_EQ(recorder.read()->ranks.size(), 1u);
}

TEST(Trace, GarbageNeverMakesMoreThanWellFormedOperations) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 30; ++round) {
    Recorder recorder;
    const RecorderHeader header = recorder.view.header();
    auto* words = reinterpret_cast<uint64_t*>(recorder.lines.front().bytes);
    for (uint64_t i = 0; i < recorder_bytes(2) / sizeof(uint64_t); ++i)
      words[i] = round % 2 == 0 ? random() : random() % 5;
    recorder.view.header() = header;
    if (round % 3 == 0) {
      recorder.view.rank(0).rank = 4;
      recorder.add_group(0, 0, 9, 0b11);
      // Checksums that fit, whatever the rest is.
      for (uint64_t index = 0; index < kRecordsKept; ++index) {
        Record& record = recorder.ring().records[index];
        trace::RecordFields fields{};
        for (size_t i = 0; i < fields.size(); ++i) fields[i] = record.fields[i];
        record.checked_index = pack_checked_index(index, trace::checksum_of(index, fields));
      }
      recorder.ring().next = kRecordsKept;
    }
    const Result<trace::Trace> read = recorder.read();
    ASSERT_TRUE(read.ok());
    for (const trace::Rank& rank : read->ranks) {
      EXPECT_LT(rank.rank, 9u);
      EXPECT_LE(rank.operations.size(), kRecordsKept);
      for (const Operation& operation : rank.operations) {
        EXPECT_LT(static_cast<int>(operation.collective), kCollectives);
        EXPECT_LT(static_cast<int>(operation.dtype), kDtypes);
        EXPECT_LT(static_cast<int>(operation.op), kOps);
        if (operation.outcome) {
          EXPECT_LT(static_cast<uint32_t>(operation.outcome->code), kCodes);
        }
      }
    }
  }
}

TEST(Trace, TotalsAreKeptByCollectiveSizeAndDuration) {
  Recorder recorder;
  RankRecorder& rank = recorder.view.rank(1);
  trace::add_to_totals(rank, Collective::all_reduce, 4096, 2'047, Code::ok);
  trace::add_to_totals(rank, Collective::all_reduce, 4096, 2'048, Code::ok);
  trace::add_to_totals(rank, Collective::all_reduce, 4097, 8'192, Code::ok);
  trace::add_to_totals(rank, Collective::barrier, 0, 60'000'000'000, Code::ok);
  trace::add_to_totals(rank, Collective::barrier, 0, 1, Code::unavailable);
  const trace::Rank read = recorder.read(0)->ranks.at(1);
  const auto& small = read.totals[TUTTI_ALL_REDUCE][0];
  EXPECT_EQ(small.durations[0], 1u);
  EXPECT_EQ(small.durations[1], 1u);
  EXPECT_EQ(small.duration_ns, 4'095u);
  EXPECT_EQ(small.bytes, 8'192u);
  EXPECT_EQ(read.totals[TUTTI_ALL_REDUCE][1].durations[2], 1u);
  EXPECT_EQ(read.totals[TUTTI_BARRIER][0].durations[kDurationBuckets - 1], 1u);
  EXPECT_EQ(read.ended[TUTTI_OK], 4u);
  EXPECT_EQ(read.ended[TUTTI_UNAVAILABLE], 1u);
}

TEST(Trace, EachDurationIsInTheBucketOfItsBounds) {
  for (uint32_t bucket = 0; bucket + 1 < kDurationBuckets; ++bucket) {
    EXPECT_EQ(duration_bucket_of(duration_bound_ns(bucket) - 1), bucket);
    EXPECT_EQ(duration_bucket_of(duration_bound_ns(bucket)), bucket + 1);
  }
  EXPECT_EQ(duration_bucket_of(0), 0u);
  EXPECT_EQ(duration_bucket_of(UINT64_MAX), kDurationBuckets - 1);
}

}  // namespace
}  // namespace tutti
