// The folding of matched operations whose blocks have counts of their own. Without a board.
#include "daemon/base/signature.h"
#include "tests/board/matched_hosts.h"
#include "tests/support/uneven.h"

namespace tutti::board {
namespace {

using testing::Counts;
using testing::Uneven;
using testing::uneven_cases;
using testing::Values;

constexpr uint64_t kCountsOffset = kSegmentBytes - (16 << 10);

// The ranks of a host that agree on an uneven operation.
class UnevenHosts : public Hosts {
 public:
  UnevenHosts(const Uneven& uneven, Dtype dtype)
      : Hosts(uneven.collective, dtype, uneven.op, static_cast<uint32_t>(uneven.ranks), 0),
        uneven_(uneven),
        dtype_(dtype) {
    const std::vector<uint64_t> counts(uneven.counts.begin(), uneven.counts.end());
    each([&](uint32_t rank, Request& request) {
      std::memcpy(at(rank, kCountsOffset), counts.data(), counts.size() * sizeof(uint64_t));
      request.flags |= kRequestCounts;
      request.root = 0;
      request.count = kCountsOffset;
      request.layout = layout_of(counts);
    });
  }

  // The smaller side lies among the blocks of the larger one.
  void in_place() {
    each([&](uint32_t rank, Request& request) {
      size_t before = 0;
      for (uint32_t r = 0; r < rank; ++r) before += uneven_.counts[r];
      if (uneven_.collective == Collective::all_gather)
        request.in_offset = request.out_offset + before * size_of(dtype_);
      if (uneven_.collective == Collective::reduce_scatter)
        request.out_offset = request.in_offset + before * size_of(dtype_);
    });
  }

  void fill_inputs() {
    each([&](uint32_t rank, const Request& request) {
      const Values values = uneven_.input(static_cast<int>(rank));
      Bytes tensor(values.size() * size_of(dtype_));
      for (size_t i = 0; i < values.size(); ++i) put(tensor, dtype_, i, values[i]);
      std::copy(tensor.begin(), tensor.end(), at(rank, request.in_offset));
    });
  }

  void check_outputs() {
    each([&](uint32_t rank, const Request& request) {
      const Values want = uneven_.output(static_cast<int>(rank));
      const std::byte* out = at(rank, request.out_offset);
      const Bytes got(out, out + want.size() * size_of(dtype_));
      for (size_t i = 0; i < want.size(); ++i)
        ASSERT_EQ(get(got, dtype_, i), held(dtype_, want[i]))
            << name_of(uneven_.collective) << " " << name_of(dtype_) << ", " << uneven_.ranks
            << " ranks, rank " << rank << ", element " << i;
      if (request.out_offset != kOutOffset) return;
      for (size_t i = 0; i < 64; ++i)
        ASSERT_EQ(out[got.size() + i], std::byte{0}) << "written behind the output";
    });
  }

 private:
  const Uneven uneven_;
  const Dtype dtype_;
};

TEST(MatchedCounts, ValuesOfEveryKind) {
  for (const int ranks : {1, 2, 3, 5})
    for (const Dtype dtype : {Dtype::f32, Dtype::u8, Dtype::f64})
      for (const Uneven& uneven :
           uneven_cases(ranks, 3 * kBoardBlockBytes / 8 / static_cast<size_t>(ranks) + 17))
        for (const bool in_place : {false, true}) {
          if (in_place && uneven.is_exchange()) continue;
          UnevenHosts hosts(uneven, dtype);
          if (in_place) hosts.in_place();
          hosts.fill_inputs();
          hosts.run();
          hosts.check_outputs();
          if (HasFatalFailure()) return;
        }
}

TEST(MatchedCounts, BlocksWithoutElementsAreNotFolded) {
  UnevenHosts none({Collective::all_to_all, 3, Counts(9, 0)}, Dtype::f32);
  ASSERT_TRUE(none.read());
  EXPECT_EQ(decide(none.op()).next, Phase::done);
  UnevenHosts one({Collective::all_to_all, 2, {0, 5, 0, 0}}, Dtype::f32);
  ASSERT_TRUE(one.read());
  EXPECT_EQ(one.op().blocks, 1u);
}

UnevenHosts three_ranks() { return {{Collective::all_gather, 3, {1, 2, 3}}, Dtype::f32}; }

TEST(MatchedCounts, RanksThatDisagreeDoNotMatch) {
  UnevenHosts layout = three_ranks();
  layout.request(1).layout += 1;
  EXPECT_FALSE(layout.read());
  UnevenHosts without = three_ranks();
  without.request(1).flags = 0;
  EXPECT_FALSE(without.read());
}

// The hash of the layout is not that of the counts that a rank wrote.
TEST(MatchedCounts, CountsThatChangeDoNotMatch) {
  UnevenHosts hosts = three_ranks();
  const uint64_t other = 1'000'000'000'000;
  std::memcpy(hosts.at(0, kCountsOffset), &other, sizeof(other));
  EXPECT_FALSE(hosts.read());
}

// With the layout of those counts.
void expect_refused(Collective collective, const Counts& counts, uint64_t offset) {
  UnevenHosts hosts({Collective::all_gather, 3, counts}, Dtype::f32);
  hosts.each([&](uint32_t, Request& request) {
    request.collective = static_cast<uint8_t>(collective);
    request.count = offset;
  });
  EXPECT_FALSE(hosts.read()) << name_of(collective) << " at " << offset;
}

TEST(MatchedCounts, HostileRequestsAreRefused) {
  const Counts good = {1, 2, 3};
  for (const uint64_t offset :
       {uint64_t{0}, kSegmentBytes - 16, kSegmentBytes, ~uint64_t{7}, kCountsOffset + 4})
    expect_refused(Collective::all_gather, good, offset);
  expect_refused(Collective::all_reduce, good, kCountsOffset);
  expect_refused(Collective::broadcast, good, kCountsOffset);
  expect_refused(Collective::all_gather, {1, 1 << 20, 3}, kCountsOffset);  // Beyond the segment.
  expect_refused(Collective::all_gather, {size_t{1} << 63, size_t{1} << 63, 0}, kCountsOffset);
  expect_refused(Collective::all_gather, {SIZE_MAX, 1, 0}, kCountsOffset);
  expect_refused(Collective::reduce_scatter, {SIZE_MAX / 4, SIZE_MAX / 4, SIZE_MAX / 4 * 2},
                 kCountsOffset);
}

}  // namespace
}  // namespace tutti::board
