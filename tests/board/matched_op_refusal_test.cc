// Operations that ranks must not fold whatever the board says: the ranks disagree, or a tensor does
// not lie in its segment.
#include <random>

#include "tests/board/matched_hosts.h"

namespace tutti::board {
namespace {

TEST(MatchedOp, RanksThatDisagreeAreRefused) {
  const std::vector<std::function<void(Request&)>> changes = {
      [](Request& r) { r.collective = TUTTI_REDUCE; },
      [](Request& r) { r.dtype = TUTTI_F64; },
      [](Request& r) { r.op = TUTTI_MAX; },
      [](Request& r) { r.root = 1; },
      [](Request& r) { r.count = 7; },
      [](Request& r) { r.layout = 1; },
      [](Request& r) { r.local_strategy = TUTTI_CENTRALIZED; },
      [](Request& r) { r.global_strategy = TUTTI_CENTRALIZED; }};
  for (size_t i = 0; i < changes.size(); ++i)
    for (uint32_t rank = 0; rank < 3; ++rank) {
      Hosts hosts(Collective::all_reduce, Dtype::f32, Op::sum, 3, 8);
      hosts.each([](uint32_t, Request& r) { r.root = 0; });
      EXPECT_TRUE(hosts.read());
      changes[i](hosts.request(rank));
      EXPECT_FALSE(hosts.read()) << "change " << i << " of rank " << rank;
    }
  Hosts hosts(Collective::all_reduce, Dtype::f32, Op::sum, 3, 8);
  hosts.request(1).timeout_ms = 77;
  hosts.request(2).flags = kRequestBlocking;
  EXPECT_TRUE(hosts.read()) << "what each rank has of its own";
}

TEST(MatchedOp, WhatTheWorkerMustRefuseIsItsBusiness) {
  const std::vector<std::function<void(Request&)>> changes = {
      [](Request& r) { r.collective = kCollectives; },
      [](Request& r) { r.flags = kRequestRefused; },
      [](Request& r) { r.dtype = kDtypes; },
      [](Request& r) { r.op = kOps; },
      [](Request& r) { r.dtype = TUTTI_I32, r.op = TUTTI_MEAN; },
      [](Request& r) { r.dtype = TUTTI_BOOL, r.op = TUTTI_PREMUL_SUM; },
      [](Request& r) { r.dtype = TUTTI_F32, r.op = TUTTI_BAND; },
      [](Request& r) { r.dtype = TUTTI_F64, r.op = TUTTI_BOR; },
      [](Request& r) { r.dtype = TUTTI_BF16, r.op = TUTTI_BXOR; },
      [](Request& r) { r.collective = TUTTI_REDUCE, r.root = 2; },
      [](Request& r) { r.local_strategy = TUTTI_RING + 1; },
      [](Request& r) { r.local_strategy = TUTTI_TREE; },
      [](Request& r) { r.global_strategy = pack_strategy(TUTTI_TREE, 0); },
      [](Request& r) { r.local_strategy = pack_strategy(TUTTI_CENTRALIZED, 2); },
      [](Request& r) { r.count = UINT64_MAX; },
      [](Request& r) { r.count = UINT64_MAX / 8 + 1; }};
  for (size_t i = 0; i < changes.size(); ++i) {
    Hosts hosts(Collective::all_reduce, Dtype::f32, Op::sum, 2, 8);
    hosts.each([&](uint32_t, Request& request) { changes[i](request); });
    EXPECT_FALSE(can_fold(hosts.request(0), 2)) << "change " << i;
    EXPECT_FALSE(hosts.read()) << "change " << i;
  }
}

// One bad request is enough.
TEST(MatchedOp, NoRankListsOrRefusesByItself) {
  for (const Collective collective : {Collective::reduce, Collective::broadcast,
                                      Collective::all_gather, Collective::reduce_scatter})
    for (uint32_t rank = 0; rank < 3; ++rank) {
      Hosts hosts(collective, Dtype::f32, Op::sum, 3, 8);
      ASSERT_TRUE(hosts.read());
      hosts.request(rank).flags = kRequestListed;
      EXPECT_FALSE(hosts.read()) << name_of(collective) << ", listed by rank " << rank;
      hosts.request(rank).flags = kRequestRefused;
      EXPECT_FALSE(hosts.read()) << name_of(collective) << ", refused by rank " << rank;
    }
}

TEST(MatchedOp, SidesOutsideOfTheSegmentAreRefused) {
  const uint64_t end = kSegmentBytes;
  struct Case {
    uint64_t in, out;
    bool fits;
  };
  const std::vector<Case> cases = {{kArenaOffset, end - 32, true},
                                   {end - 32, kArenaOffset, true},
                                   {kArenaOffset, end - 28, false},
                                   {end - 28, kArenaOffset, false},
                                   {kArenaOffset - 4, kOutOffset, false},
                                   {kArenaOffset, 0, false},
                                   {UINT64_MAX - 31, kOutOffset, false},
                                   {kArenaOffset, UINT64_MAX - 3, false},
                                   {end, kOutOffset, false},
                                   {kArenaOffset + 2, kOutOffset, false},
                                   {kArenaOffset, kOutOffset + 1, false}};
  for (const Case& c : cases)
    for (uint32_t rank = 0; rank < 2; ++rank) {
      Hosts hosts(Collective::all_reduce, Dtype::f32, Op::sum, 2, 8);
      hosts.request(rank).in_offset = c.in;
      hosts.request(rank).out_offset = c.out;
      EXPECT_EQ(hosts.read(), c.fits) << c.in << " " << c.out;
    }
}

TEST(MatchedOp, SidesThatOverlapInPartAreRefused) {
  struct Case {
    Collective collective;
    int64_t out_behind_in;  // In elements; rank 1 of 2, count 8.
    bool fine;
  };
  const std::vector<Case> cases = {
      {Collective::all_reduce, 0, true},       {Collective::all_reduce, 4, false},
      {Collective::all_reduce, -7, false},     {Collective::all_reduce, 8, true},
      {Collective::all_gather, -8, true},      {Collective::all_gather, 0, false},
      {Collective::all_gather, -12, false},    {Collective::all_gather, -16, true},
      {Collective::reduce_scatter, 8, true},   {Collective::reduce_scatter, 0, false},
      {Collective::reduce_scatter, 12, false}, {Collective::reduce_scatter, 16, true}};
  for (const Case& c : cases) {
    Hosts hosts(c.collective, Dtype::f32, Op::sum, 2, 8);
    hosts.request(1).out_offset = hosts.request(1).in_offset = kOutOffset;
    hosts.request(1).out_offset += static_cast<uint64_t>(c.out_behind_in * 4);
    EXPECT_EQ(hosts.read(), c.fine) << name_of(c.collective) << " " << c.out_behind_in;
  }
}

TEST(MatchedOp, OnlyWhatCorrespondsIsStaged) {
  for (const Collective collective : {Collective::all_gather, Collective::reduce_scatter}) {
    Hosts hosts(collective, Dtype::f32, Op::sum, 2, 8);
    hosts.request(1).flags = kRequestStaged;
    EXPECT_FALSE(hosts.read()) << "both sides pass through one window";
    hosts.request(1).in_offset = hosts.request(1).out_offset = kSegmentBytes - kBoardBlockBytes;
    EXPECT_TRUE(hosts.read());
    hosts.request(1).in_offset = hosts.request(1).out_offset += 64;
    EXPECT_FALSE(hosts.read()) << "the one row ends behind the segment";
    Hosts many(collective, Dtype::f32, Op::sum, kLocalRanksMax, 8);
    many.in_place();
    many.request(1).flags = kRequestStaged;
    many.request(1).out_offset = many.request(1).in_offset;
    EXPECT_FALSE(many.read()) << "a row has no room for so many blocks";
    Hosts counted({collective, 2, Op::sum, 8, 0, {3, 8}}, Dtype::f32);
    counted.request(1).flags |= kRequestStaged;
    counted.request(1).out_offset = counted.request(1).in_offset;
    EXPECT_FALSE(counted.read()) << "blocks with counts of their own";
  }
  Hosts hosts(Collective::all_reduce, Dtype::f32, Op::sum, 2, 1 << 18);
  hosts.in_place();
  hosts.request(1).flags = kRequestStaged;
  hosts.request(1).in_offset = hosts.request(1).out_offset =
      kSegmentBytes - kWindowBlocks * kBoardBlockBytes;
  EXPECT_TRUE(hosts.read());
  hosts.request(1).in_offset = hosts.request(1).out_offset += 64;
  EXPECT_FALSE(hosts.read()) << "its window ends behind the segment";
}

// Sizes beyond any segment must not wrap around to a small operation.
TEST(MatchedOp, HugeCounts) {
  for (uint32_t dtype = 0; dtype < kDtypes; ++dtype)
    for (const uint64_t count :
         {uint64_t{1} << 32, uint64_t{1} << 43, (uint64_t{1} << 43) + 1, uint64_t{1} << 58,
          uint64_t{1} << 60, uint64_t{1} << 61, uint64_t{1} << 63, UINT64_MAX}) {
      Hosts hosts(Collective::all_reduce, static_cast<Dtype>(dtype), Op::sum, 2, count);
      hosts.in_place();
      EXPECT_FALSE(hosts.read()) << count;
      for (uint32_t rank = 0; rank < 2; ++rank) hosts.request(rank).flags = kRequestStaged;
      const bool staged = count <= uint64_t{1} << 43;
      ASSERT_EQ(hosts.read(), staged) << count;
      const uint64_t elements = kBoardBlockBytes / size_of(static_cast<Dtype>(dtype));
      if (!staged) continue;
      EXPECT_EQ(hosts.op().blocks, (count + elements - 1) / elements);
      EXPECT_EQ(staged_blocks(count, static_cast<Dtype>(dtype)), hosts.op().blocks);
    }
}

// Random entries: each is refused, or its tensors lie in their segments.
TEST(MatchedOp, GarbageIsRefusedOrHolds) {
  std::mt19937_64 random(5);
  int held = 0;
  for (int i = 0; i < 50'000; ++i) {
    static Hosts hosts(Collective::all_reduce, Dtype::f32, Op::sum, 2, 8);
    Request request{};
    request.collective = static_cast<uint8_t>(random() % 8);
    request.dtype = static_cast<uint8_t>(random() % 10);
    request.op = static_cast<uint8_t>(random() % (kOps + 1));
    request.root = static_cast<uint32_t>(random() % 3);
    request.count = random() >> random() % 64;
    hosts.each([&](uint32_t rank, Request& own) {
      own = request;
      own.in_offset = random() % (kSegmentBytes + 4096) & ~7ull;
      own.out_offset = random() % 2 == 0 ? own.in_offset : random() >> random() % 64;
      hosts.request(rank).flags = static_cast<uint8_t>(random() % 4);
    });
    if (!hosts.read()) continue;
    MatchedOp& joint = hosts.op();
    ++held;
    if (joint.any_staged || joint.count > 1 << 20) continue;
    for (uint32_t block = 0; block < joint.blocks; ++block)
      run_block(joint, block, choose_kernel());
  }
  EXPECT_GT(held, 500);
}

}  // namespace
}  // namespace tutti::board
