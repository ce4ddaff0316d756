// The checks of requests: sides, places, types and strategies, and the errors of refused ones.
#include <algorithm>
#include <array>
#include <span>

#include "tests/session/trainer.h"

namespace tutti {
namespace {

using testing::HasSubstr;

constexpr uint64_t kEnd = kTestSegmentBytes;

// Rank 1 of 4 unless told otherwise; each call sends one request and takes what arrives.
class RequestTest : public testing::Test {
 protected:
  Call ask(const Request& request) { return ask_of(served, request); }
  Call ask_of(Served& whom, const Request& request) {
    whom.trainer.submit(next_, request);
    const size_t before = whom.events.requests.size();
    EXPECT_TRUE(await(loop, [&] { return whom.events.requests.size() > before; }));
    whom.board->complete({0, next_}, {});
    EXPECT_TRUE(whom.trainer.is_done(next_));
    ++next_;
    EXPECT_EQ(whom.events.ends, 0);
    return whom.events.requests.empty() ? Call{} : whom.events.requests.back();
  }
  void expect_refused(const Request& request, const std::string& why) {
    const Call op = ask(request);
    EXPECT_EQ(op.invalid.code(), Code::invalid_argument) << why;
    EXPECT_THAT(op.invalid.message(), HasSubstr(why));
    EXPECT_THAT(op.invalid.message(), HasSubstr("rank 1 (host a, pid "));
    EXPECT_EQ(op.invalid.culprit(), (Culprit{1, "a"}));
    EXPECT_EQ(op.in, nullptr);
    EXPECT_EQ(op.out, nullptr);
  }
  static Request of(tutti_collective collective, uint64_t in, uint64_t out) {
    Request request = all_reduce_request();
    request.collective = static_cast<uint8_t>(collective);
    request.in_offset = in;
    request.out_offset = out;
    return request;
  }

  Loop loop;
  Served served{loop};
  uint64_t next_ = 0;
};

TEST_F(RequestTest, RefusesUnknownNumbers) {
  Request request = all_reduce_request();
  request.dtype = kDtypes;
  expect_refused(request, "dtype 13");
  request = all_reduce_request();
  request.op = kOps;
  expect_refused(request, "op 9");
  for (const uint8_t collective : {kCollectives, 63, 65, 200, 255}) {
    request = all_reduce_request();
    request.collective = collective;
    expect_refused(request, "unknown collective " + std::to_string(collective));
  }
}

// The library refuses a call, which keeps its place: the text is the trainer's, and may be
// anything.
TEST_F(RequestTest, RefusedCallsSayWhyInThePlacesOfTheirRanks) {
  const std::string why = "the tensor is\n on fire\x01";
  std::memcpy(served.trainer.at(kArenaOffset), why.data(), why.size());
  Request request = of(TUTTI_ALL_REDUCE, kArenaOffset, 0);
  request.flags = kRequestRefused;
  request.root = TUTTI_OUT_OF_RANGE;
  request.count = why.size();
  Call op = ask(request);
  EXPECT_EQ(op.invalid.code(), Code::out_of_range);
  EXPECT_THAT(op.invalid.message(), HasSubstr("the tensor is? on fire?"));
  EXPECT_EQ(op.invalid.culprit(), (Culprit{1, "a"}));
  for (const uint64_t offset : {uint64_t{0}, kArenaOffset - 1, kEnd - 8, ~uint64_t{0} - 4}) {
    request.in_offset = offset;
    request.count = offset == kEnd - 8 ? 9 : ~uint64_t{0};
    request.root = 0xffffffff;
    op = ask(request);
    EXPECT_FALSE(op.invalid.ok());
    EXPECT_THAT(op.invalid.message(), HasSubstr("the call was refused")) << offset;
    EXPECT_EQ(op.in, nullptr);
  }
}

// Only ranks can fold what passes through windows, or is a list: the worker gets no memory of it.
// In a group over several hosts, as this one is, it would have to, so the request is refused.
TEST_F(RequestTest, StagedAndListedTensorsAreTheRanks) {
  for (const uint8_t flag : {kRequestStaged, kRequestListed}) {
    Request request = of(TUTTI_ALL_REDUCE, kArenaOffset, kArenaOffset);
    request.flags = flag;
    request.count = 1 << 20;  // More than the segment holds.
    const Call op = ask(request);
    EXPECT_EQ(op.invalid.code(), Code::invalid_argument);
    EXPECT_THAT(op.invalid.message(), testing::HasSubstr("are for groups of one host"));
    EXPECT_TRUE(op.ranks_only);
    EXPECT_EQ(op.in, nullptr);
    EXPECT_EQ(op.out, nullptr);
  }
  EXPECT_FALSE(ask(all_reduce_request()).ranks_only);
}

// A list in device memory: the records are copied, and must be those of the count.
TEST_F(RequestTest, ListsInDeviceMemoryAreCopiedAndCounted) {
  Request request = of(TUTTI_ALL_REDUCE, kArenaOffset, 0);
  request.flags = kRequestDevice | kRequestListed;
  request.count = 30;
  request.records = 2;
  const DeviceRequest asked{.value = 2, .factor = 0.5};
  std::array<ListedDeviceTensor, 2> tensors = {{{{7, 8}, {9, 0}, 10}, {{7, 0}, {7, 0}, 20}}};
  const auto place = [&] {
    std::memcpy(served.trainer.at(kArenaOffset), &asked, sizeof(asked));
    std::memcpy(served.trainer.at(kArenaOffset + sizeof(asked)), tensors.data(), sizeof(tensors));
  };
  place();
  const Call op = ask(request);
  ASSERT_EQ(op.invalid.to_string(), "OK");
  EXPECT_FALSE(op.ranks_only);
  ASSERT_EQ(op.device->listed.size(), 2u);
  EXPECT_EQ(op.device->listed[0].in.offset, 8u);
  EXPECT_EQ(op.device->listed[1].count, 20u);
  EXPECT_EQ(op.device->asked.factor, 0.5);
  for (const uint64_t wrong : {uint64_t{0}, uint64_t{19}, ~uint64_t{0}}) {
    tensors[1].count = wrong;
    place();
    expect_refused(request, wrong == 19 ? "29 elements together, not 30" : "has no count");
  }
  for (const uint32_t records : {uint32_t{0}, uint32_t{31}, ~uint32_t{0}}) {
    request.records = records;
    expect_refused(request, "the records of a list lie outside");
  }
  request.records = 2;
  request.in_offset = kEnd - sizeof(asked);
  expect_refused(request, "the records of a list lie outside");
  request.in_offset = kArenaOffset;
  request.collective = TUTTI_REDUCE;
  expect_refused(request, "lists of tensors are for all_reduce");
  request.flags = kRequestDevice | kRequestStaged;
  expect_refused(request, "device memory passes through no window");
}

TEST_F(RequestTest, RefusesMeanOfIntegers) {
  Request request = all_reduce_request();
  request.op = TUTTI_MEAN;
  for (const auto dtype : {TUTTI_I8, TUTTI_U8, TUTTI_I32, TUTTI_I64, TUTTI_BOOL, TUTTI_I16,
                           TUTTI_U16, TUTTI_U32, TUTTI_U64}) {
    request.dtype = static_cast<uint8_t>(dtype);
    expect_refused(request, "MEAN needs a floating-point dtype; use SUM and divide");
  }
  request.dtype = TUTTI_BF16;
  EXPECT_TRUE(ask(request).invalid.ok());
}

TEST_F(RequestTest, RefusesOpsThatAreNotForTheDtype) {
  Request request = all_reduce_request();
  request.op = TUTTI_PREMUL_SUM;
  for (const auto dtype : {TUTTI_I8, TUTTI_U64, TUTTI_BOOL}) {
    request.dtype = static_cast<uint8_t>(dtype);
    expect_refused(request, "PREMUL_SUM needs a floating-point dtype; multiply and use SUM");
  }
  const std::map<tutti_op, std::string> bitwise = {
      {TUTTI_BAND, "BAND"}, {TUTTI_BOR, "BOR"}, {TUTTI_BXOR, "BXOR"}};
  for (const auto& [op, name] : bitwise) {
    request.op = static_cast<uint8_t>(op);
    for (const auto dtype : {TUTTI_F32, TUTTI_F64, TUTTI_F16, TUTTI_BF16}) {
      request.dtype = static_cast<uint8_t>(dtype);
      expect_refused(request, name + " needs integers or bools");
    }
    for (const auto dtype : {TUTTI_I8, TUTTI_U64, TUTTI_BOOL}) {
      request.dtype = static_cast<uint8_t>(dtype);
      EXPECT_TRUE(ask(request).invalid.ok()) << name << " " << dtype;
    }
  }
}

TEST_F(RequestTest, RefusesStrategiesThatAreNone) {
  Request request = all_reduce_request();
  request.local_strategy = pack_strategy(TUTTI_TREE, 0);
  expect_refused(request, "arity must be >= 1");
  request.local_strategy = pack_strategy(4, 0);
  expect_refused(request, "strategy 4");
  request.local_strategy = 0;
  request.global_strategy = pack_strategy(TUTTI_RING, 2);
  expect_refused(request, "only a tree has an arity");
}

TEST_F(RequestTest, RefusesRootsOutsideTheGroup) {
  Request request = of(TUTTI_REDUCE, kArenaOffset, 0);
  request.root = 4;
  expect_refused(request, "root 4 is no rank of a group of 4");
  request.collective = TUTTI_BROADCAST;
  expect_refused(request, "root 4");
  request = all_reduce_request();
  request.root = 4;
  EXPECT_EQ(ask(request).signature.root, 0u) << "an all_reduce has no root to be wrong";
}

TEST_F(RequestTest, RefusesSidesOutsideTheArena) {
  expect_refused(of(TUTTI_ALL_REDUCE, 0, kArenaOffset), "input side");
  expect_refused(of(TUTTI_ALL_REDUCE, kArenaOffset - 4, kArenaOffset), "outside the segment");
  expect_refused(of(TUTTI_ALL_REDUCE, kArenaOffset, kEnd - 28), "output side");
  expect_refused(of(TUTTI_ALL_REDUCE, ~uint64_t{0} - 3, kArenaOffset), "input side");
  EXPECT_TRUE(ask(of(TUTTI_ALL_REDUCE, kArenaOffset, kEnd - 32)).invalid.ok());
}

TEST_F(RequestTest, RefusesCountsThatOverflow) {
  for (const uint64_t count : {~uint64_t{0}, uint64_t{1} << 62, (uint64_t{1} << 62) + 1}) {
    Request request = all_reduce_request();
    request.count = count;
    expect_refused(request, "more than any memory holds");
  }
  Request request = of(TUTTI_ALL_GATHER, kArenaOffset, kArenaOffset);
  request.count = uint64_t{1} << 60;  // Fits once, but not four times.
  expect_refused(request, "more than any memory holds");
  request = all_reduce_request();
  request.count = uint64_t{1} << 40;
  expect_refused(request, "outside the segment");
}

// Alone, a rank can ask for so many bytes that offset and size together wrap around.
TEST_F(RequestTest, RefusesEndsThatOverflow) {
  Served alone(loop, 0, 1);
  Request request = all_reduce_request();
  request.count = (uint64_t{1} << 62) - 1;
  const Call op = ask_of(alone, request);
  EXPECT_THAT(op.invalid.message(), HasSubstr("outside the segment"));
  EXPECT_EQ(op.in, nullptr);
}

TEST_F(RequestTest, RootedCollectivesHaveBlocksAtTheRootAlone) {
  Request request = of(TUTTI_GATHER, kArenaOffset, 0);
  EXPECT_EQ(ask(request).out, nullptr) << "rank 1 is no root";
  request.root = 1;
  expect_refused(request, "output side");
  request.out_offset = kEnd - 4 * 32;
  EXPECT_TRUE(ask(request).invalid.ok());
  request.in_offset = request.out_offset + 32;  // In place: rank 1's block.
  EXPECT_TRUE(ask(request).invalid.ok());
  request.in_offset = request.out_offset + 64;
  expect_refused(request, "overlap in part");
  request = of(TUTTI_SCATTER, 0, kArenaOffset);
  EXPECT_EQ(ask(request).in, nullptr);
  request.root = 1;
  request.in_offset = kEnd - 4 * 32 + 4;
  expect_refused(request, "input side");
}

TEST_F(RequestTest, AnAllToAllIsNeverInPlace) {
  expect_refused(of(TUTTI_ALL_TO_ALL, kArenaOffset, kArenaOffset), "overlap in part");
  expect_refused(of(TUTTI_ALL_TO_ALL, kArenaOffset, kArenaOffset + 4 * 32 - 4), "overlap in part");
  EXPECT_TRUE(ask(of(TUTTI_ALL_TO_ALL, kArenaOffset, kArenaOffset + 4 * 32)).invalid.ok());
}

TEST_F(RequestTest, RefusesMisalignedSides) {
  expect_refused(of(TUTTI_ALL_REDUCE, kArenaOffset + 2, kArenaOffset + 64), "not aligned for f32");
  expect_refused(of(TUTTI_ALL_REDUCE, kArenaOffset, kArenaOffset + 65), "not aligned for f32");
}

TEST_F(RequestTest, InPlaceIsFineAndPartialOverlapIsNot) {
  const Call op = ask(of(TUTTI_ALL_REDUCE, kArenaOffset, kArenaOffset));
  EXPECT_TRUE(op.invalid.ok());
  EXPECT_EQ(op.in, op.out);
  expect_refused(of(TUTTI_ALL_REDUCE, kArenaOffset, kArenaOffset + 4), "overlap in part");
  expect_refused(of(TUTTI_ALL_REDUCE, kArenaOffset + 28, kArenaOffset), "overlap in part");
  EXPECT_TRUE(ask(of(TUTTI_ALL_REDUCE, kArenaOffset + 32, kArenaOffset)).invalid.ok());
}

TEST_F(RequestTest, EmptyTensorsHaveNoSides) {
  Request request = all_reduce_request();
  request.count = 0;
  request.in_offset = request.out_offset = 0;
  const Call op = ask(request);
  EXPECT_TRUE(op.invalid.ok()) << op.invalid.to_string();
  EXPECT_EQ(op.in, nullptr);
  EXPECT_EQ(op.out, nullptr);
}

TEST_F(RequestTest, ReduceWritesOnlyAtTheRoot) {
  Request request = of(TUTTI_REDUCE, kArenaOffset, 0);
  request.root = 2;
  Call op = ask(request);
  EXPECT_TRUE(op.invalid.ok());
  EXPECT_NE(op.in, nullptr);
  EXPECT_EQ(op.out, nullptr);
  request.root = 1;
  expect_refused(request, "output side");
  request.out_offset = kArenaOffset + 32;
  op = ask(request);
  EXPECT_EQ(op.out - op.in, 32);
}

TEST_F(RequestTest, BroadcastReadsOnlyAtTheRoot) {
  Request request = of(TUTTI_BROADCAST, 0, kArenaOffset);
  request.root = 2;
  Call op = ask(request);
  EXPECT_TRUE(op.invalid.ok());
  EXPECT_EQ(op.in, nullptr);
  EXPECT_NE(op.out, nullptr);
  request.root = 1;
  request.in_offset = kArenaOffset + 128;
  expect_refused(request, "one buffer");
  request.out_offset = 0;
  op = ask(request);
  EXPECT_TRUE(op.invalid.ok());
  EXPECT_EQ(op.out, op.in);
}

TEST_F(RequestTest, GatherNeedsRoomForAll) {
  // Rank 1 of 4, 32 bytes each: in place is the second quarter of the output.
  EXPECT_TRUE(ask(of(TUTTI_ALL_GATHER, kArenaOffset + 32, kArenaOffset)).invalid.ok());
  EXPECT_TRUE(ask(of(TUTTI_ALL_GATHER, kArenaOffset, kEnd - 128)).invalid.ok());
  expect_refused(of(TUTTI_ALL_GATHER, kArenaOffset, kEnd - 124), "output side (128 bytes");
  expect_refused(of(TUTTI_ALL_GATHER, kArenaOffset, kArenaOffset), "overlap in part");
  expect_refused(of(TUTTI_ALL_GATHER, kArenaOffset + 64, kArenaOffset), "overlap in part");
}

TEST_F(RequestTest, ScatterReadsFromAll) {
  EXPECT_TRUE(ask(of(TUTTI_REDUCE_SCATTER, kArenaOffset, kArenaOffset + 32)).invalid.ok());
  EXPECT_TRUE(ask(of(TUTTI_REDUCE_SCATTER, kEnd - 128, kArenaOffset)).invalid.ok());
  expect_refused(of(TUTTI_REDUCE_SCATTER, kEnd - 124, kArenaOffset), "input side (128 bytes");
  expect_refused(of(TUTTI_REDUCE_SCATTER, kArenaOffset, kArenaOffset), "overlap in part");
}

TEST_F(RequestTest, BarrierNeedsNothing) {
  Request request = of(TUTTI_BARRIER, ~uint64_t{0}, ~uint64_t{0});
  request.dtype = 99;
  const Call op = ask(request);
  EXPECT_TRUE(op.invalid.ok()) << op.invalid.to_string();
  EXPECT_EQ(op.signature.count, 0u);
}

TEST_F(RequestTest, GroupsHaveTheirOwnSizes) {
  served.board->answer_subgroup(1, 3, {1, 2});
  const uint32_t area = served.trainer.view().subgroup_request(0).area;
  ASSERT_EQ(area, 1u);
  served.trainer.write(0, of(TUTTI_ALL_GATHER, kArenaOffset, kEnd - 64), 0, area);
  served.trainer.set_word(0, board::Phase::called, 1, area);
  served.trainer.set_called(0, area);
  served.trainer.ring();
  ASSERT_TRUE(await(loop, [&] { return served.events.requests.size() == 1; }));
  const Call& op = served.events.requests[0];
  EXPECT_TRUE(op.invalid.ok()) << op.invalid.to_string();
  EXPECT_EQ(op.group, 3u);
  EXPECT_EQ(op.number, 0u);
  served.board->complete({3, 0}, {});
  EXPECT_EQ(served.trainer.word(0, area).phase, board::Phase::done);
  EXPECT_EQ(served.trainer.word(0), board::SlotWord{}) << "the job's area is another";
}

// Marks for areas that no group has.
TEST_F(RequestTest, UnknownGroupsAreNotServed) {
  for (const uint32_t area : {1u, 2u, kAreasMax - 1}) {
    served.trainer.write(0, all_reduce_request(), 0, area);
    served.trainer.set_word(0, board::Phase::called, 1, area);
    served.trainer.set_called(0, area);
  }
  served.trainer.ring();
  drain(loop);
  EXPECT_TRUE(served.events.requests.empty());
  EXPECT_TRUE(ask(all_reduce_request()).invalid.ok());
}

TEST_F(RequestTest, SubgroupsOfNonsenseAreAnsweredAtOnce) {
  BoardSubgroupRequest& subgroup = served.trainer.view().subgroup_request(0);
  const std::vector<std::vector<uint32_t>> lists = {{}, {0, 1, 2, 3, 0}, {4}, {1, 1}};
  const auto expect_refusal = [&] {
    ASSERT_TRUE(await(loop, [&] {
      return subgroup.state.load() == static_cast<uint32_t>(SubgroupRequestState::answered);
    }));
    EXPECT_EQ(subgroup.failure.code, TUTTI_INVALID_ARGUMENT) << subgroup.failure.message;
    EXPECT_EQ(subgroup.failure.culprit_rank, 1);
    EXPECT_THAT(subgroup.failure.message, HasSubstr("rank 1 (host a, pid "));
  };
  for (const auto& ranks : lists) {
    served.trainer.ask_subgroup(ranks);
    expect_refusal();
  }
  for (const uint64_t offset : {uint64_t{0}, kEnd - 4, ~uint64_t{0} - 3}) {
    subgroup.ranks = 2;
    subgroup.list_offset = offset;
    subgroup.state = static_cast<uint32_t>(SubgroupRequestState::asked);
    served.trainer.ring();
    expect_refusal();
  }
  subgroup.ranks = ~uint32_t{0};
  subgroup.state = static_cast<uint32_t>(SubgroupRequestState::asked);
  served.trainer.ring();
  expect_refusal();
  EXPECT_TRUE(served.events.subgroups.empty());
  EXPECT_EQ(served.events.ends, 0);
}

}  // namespace
}  // namespace tutti
