// The folding of matched operations, without a board: values are compared with float64 in the
// plainest way. For refusals see matched_op_refusal_test.cc.
#include <cfenv>
#include <numeric>
#include <random>

#include "tests/board/matched_hosts.h"

namespace tutti::board {
namespace {

void run_case(Collective collective, Dtype dtype, Op op, uint32_t ranks, uint64_t count,
              bool in_place) {
  Hosts hosts(collective, dtype, op, ranks, count);
  if (in_place && !has_in_place(collective)) return;
  if (in_place) hosts.in_place();
  hosts.fill();
  hosts.run();
  hosts.check();
}

// Whether there is such a reduction and its values are exact: a mean over three ranks need not be
// in 16 bits.
bool is_exact(Dtype dtype, Op op, uint32_t ranks) {
  if (!applies_to(op, dtype)) return false;
  return op != Op::mean || size_of(dtype) >= 4 || ranks != 3;
}

TEST(MatchedOp, EveryCollectiveDtypeAndOp) {
  for (const Collective collective : kEveryCollective)
    for (uint32_t dtype = 0; dtype < kDtypes; ++dtype)
      for (uint32_t op = 0; op < kOps; ++op) {
        if (op != 0 && !reduces(collective)) continue;
        for (const uint32_t ranks : {1u, 2u, 3u, 4u})
          for (const bool in_place : {false, true})
            if (is_exact(static_cast<Dtype>(dtype), static_cast<Op>(op), ranks))
              run_case(collective, static_cast<Dtype>(dtype), static_cast<Op>(op), ranks, 37,
                       in_place);
        if (HasFatalFailure()) return;
      }
}

// Nothing, a few, a block less one, a block, and some.
TEST(MatchedOp, CountsOfEveryKind) {
  for (const Collective collective : kEveryCollective)
    for (const Dtype dtype : {Dtype::f32, Dtype::u8, Dtype::f64}) {
      const uint64_t block = kBoardBlockBytes / size_of(dtype);
      for (const uint64_t count :
           {uint64_t{0}, uint64_t{1}, uint64_t{2}, block - 1, block, block + 1, 3 * block + 17})
        for (const bool in_place : {false, true}) {
          run_case(collective, dtype, Op::sum, 3, count, in_place);
          if (HasFatalFailure()) return;
        }
    }
}

TEST(MatchedOp, AsManyRanksAsABoardHas) {
  for (const Collective collective : kEveryCollective)
    run_case(collective, Dtype::f32, Op::sum, kLocalRanksMax, 5, false);
}

// Ordinary values of `ranks` tensors of `count` f32, which show in which order they are added.
std::vector<std::vector<float>> ordinary_values(uint32_t ranks, uint64_t count) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 1000);
  std::vector<std::vector<float>> values(ranks, std::vector<float>(count));
  for (std::vector<float>& tensor : values)
    for (float& value : tensor) value = normal(random);
  return values;
}

// The order of the additions is that of the ranks, whatever the block: ordinary values show it.
TEST(MatchedOp, AddsInTheOrderOfTheRanks) {
  const uint64_t count = kBoardBlockBytes / 4 + 1001;
  Hosts hosts(Collective::all_reduce, Dtype::f32, Op::sum, 4, count);
  const auto inputs = ordinary_values(4, count);
  for (uint32_t rank = 0; rank < 4; ++rank)
    std::memcpy(hosts.at(rank, kArenaOffset), inputs[rank].data(), count * 4);
  hosts.run();
  const auto* out = reinterpret_cast<const float*>(hosts.at(2, kOutOffset));
  for (uint64_t i = 0; i < count; ++i)
    ASSERT_EQ(out[i], inputs[0][i] + inputs[1][i] + inputs[2][i] + inputs[3][i]) << i;
}

// The last fold's value of element `i`, one addition after the other.
float folded(const Folds& folds, const std::vector<std::vector<float>>& inputs,
             const std::vector<uint32_t>& order, uint64_t i) {
  std::vector<float> results;
  for (size_t fold = 0; fold < folds.size(); ++fold) {
    const auto term = [&](int t) {
      return t < 0 ? results[static_cast<size_t>(~t)] : inputs[order[static_cast<size_t>(t)]][i];
    };
    float sum = term(folds[fold].front());
    for (const int t : folds[fold].subspan(1)) sum += term(t);
    results.push_back(sum);
  }
  return results.back();
}

TEST(MatchedOp, EveryDtypeAndOpUnderEveryLocalStrategy) {
  for (const uint32_t strategy : {static_cast<uint32_t>(TUTTI_RING), pack_strategy(TUTTI_TREE, 2)})
    for (uint32_t dtype = 0; dtype < kDtypes; ++dtype)
      for (uint32_t op = 0; op < kOps; ++op)
        for (const uint32_t ranks : {2u, 4u, 5u})
          for (const bool in_place : {false, true}) {
            const auto of = static_cast<Dtype>(dtype);
            if (!is_exact(of, static_cast<Op>(op), ranks)) continue;
            if (static_cast<Op>(op) == Op::mean && ranks == 5) continue;
            Hosts hosts(Collective::all_reduce, of, static_cast<Op>(op), ranks,
                        kBoardBlockBytes / size_of(of) + 4099);
            if (in_place) hosts.in_place();
            hosts.each([&](uint32_t, Request& request) { request.local_strategy = strategy; });
            hosts.fill();
            hosts.run();
            hosts.check();
          }
}

TEST(MatchedOp, AsManyRanksAsABoardHasUnderATree) {
  Hosts hosts(Collective::all_reduce, Dtype::f64, Op::sum, kLocalRanksMax, 5000);
  hosts.each([](uint32_t, Request& r) { r.local_strategy = pack_strategy(TUTTI_TREE, 2); });
  hosts.fill();
  hosts.run();
  hosts.check();
}

// tests/schedule/proof_test.cc proves what local_folds() says.
TEST(MatchedOp, AddsInTheOrderOfItsLocalStrategy) {
  const Strategy strategies[] = {{StrategyKind::ring},
                                 {StrategyKind::tree, 1},
                                 {StrategyKind::tree, 2},
                                 {StrategyKind::tree, 3},
                                 {StrategyKind::centralized}};
  for (const Strategy& strategy : strategies)
    for (const Collective collective :
         {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter})
      for (const uint32_t ranks : {1u, 2u, 3u, 5u, 8u}) {
        const uint64_t count = kFoldBlock + 1001;
        const uint64_t elements = count * (collective == Collective::reduce_scatter ? ranks : 1);
        Hosts hosts(collective, Dtype::f32, Op::sum, ranks, count);
        const auto inputs = ordinary_values(ranks, elements);
        hosts.each([&](uint32_t rank, Request& request) {
          request.local_strategy = packed(strategy);
          std::memcpy(hosts.at(rank, kArenaOffset), inputs[rank].data(), elements * 4);
        });
        hosts.run();
        std::vector<uint32_t> order(ranks);
        std::iota(order.begin(), order.end(), 0);
        const bool root_first =
            collective == Collective::reduce && strategy.kind != StrategyKind::centralized;
        if (root_first) std::rotate(order.begin(), order.end() - 1, order.end());
        const auto folds = local_folds(strategy, static_cast<int>(ranks));
        const auto* out = reinterpret_cast<const float*>(hosts.at(ranks - 1, kOutOffset));
        const uint64_t share = collective == Collective::reduce_scatter ? (ranks - 1) * count : 0;
        for (uint64_t i = 0; i < count; ++i)
          ASSERT_EQ(out[i], folded(folds, inputs, order, share + i))
              << to_string(strategy) << " " << name_of(collective) << " of " << ranks << " at "
              << i;
      }
}

// Also for a group of one rank, where nothing moves.
TEST(ClientJoint, ABoolInPlaceBecomesZeroOrOne) {
  for (const uint32_t ranks : {1u, 2u}) {
    Hosts hosts(Collective::all_reduce, Dtype::boolean, Op::sum, ranks, 3);
    hosts.in_place();
    const std::array<uint8_t, 3> bytes = {0, 2, 128};
    for (uint32_t rank = 0; rank < ranks; ++rank)
      std::memcpy(hosts.at(rank, kArenaOffset), bytes.data(), bytes.size());
    hosts.run();
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      const std::byte* x = hosts.at(rank, kArenaOffset);
      EXPECT_EQ(std::vector(x, x + 3), (std::vector{std::byte{0}, std::byte{1}, std::byte{1}}));
    }
  }
}

// Ordinary tensors pass through a window of kWindowBlocks blocks, beside one that lies in the
// segment as a whole.
TEST(MatchedOp, StagedPartsPassThroughTheirWindow) {
  const uint64_t block = kBoardBlockBytes / 4;
  const uint64_t count = (kWindowBlocks + 3) * block + 5;
  for (const Collective collective :
       {Collective::all_reduce, Collective::reduce, Collective::broadcast}) {
    Hosts hosts(collective, Dtype::f32, Op::sum, 2, count);
    hosts.in_place();
    hosts.request(0).flags = kRequestStaged | kRequestBlocking;
    const bool sends = collective != Collective::broadcast;
    ASSERT_TRUE(hosts.read());
    EXPECT_TRUE(hosts.op().any_staged && hosts.op().anyone_waits);
    ASSERT_EQ(hosts.op().blocks, kWindowBlocks + 4);
    std::vector<float> in(count), out(count);
    auto* whole = reinterpret_cast<float*>(hosts.at(1, kArenaOffset));
    for (uint64_t i = 0; i < count; ++i) {
      in[i] = static_cast<float>(i % 1000);
      whole[i] = static_cast<float>(i % 777);
    }
    for (uint32_t b = 0; b < hosts.op().blocks; ++b) {
      const StagedBlock at = staged_block(count, Dtype::f32, b);
      EXPECT_EQ(at.first, b * block);
      std::byte* window = hosts.at(0, kArenaOffset + b % kWindowBlocks * kBoardBlockBytes);
      if (sends) std::memcpy(window, in.data() + at.first, at.count * 4);
      run_block(hosts.op(), b, choose_kernel());
      std::memcpy(out.data() + at.first, window, at.count * 4);
    }
    for (uint64_t i = 0; i < count; ++i) {
      const auto a = static_cast<float>(i % 1000), b = static_cast<float>(i % 777);
      const float sum = collective == Collective::broadcast ? b : a + b;
      ASSERT_EQ(whole[i], sum) << name_of(collective) << " " << i;
      if (collective == Collective::reduce) continue;
      ASSERT_EQ(out[i], sum) << i;
    }
  }
}

// Copies between a rank's tensor and a row of its window: from the input or to the output.
void copy_row(const StagedRows& rows, uint64_t row, size_t element, Bytes& side, uint64_t first,
              std::byte* place, bool is_out) {
  for (uint64_t block = 0; block * rows.count * element < side.size(); ++block) {
    std::byte* tensor = side.data() + (block * rows.count + rows.first(row)) * element;
    std::byte* window = place + (first + block * rows.part) * element;
    std::memcpy(is_out ? tensor : window, is_out ? window : tensor, rows.elements(row) * element);
  }
}

// Every other rank's tensors pass through its window, those of the others lie in the segment.
void run_rows(Collective collective, Dtype dtype, uint32_t ranks, uint64_t count, bool in_place) {
  Hosts hosts(collective, dtype, Op::sum, ranks, count);
  if (in_place) hosts.in_place();
  const Reference& reference = hosts.reference();
  const size_t element = size_of(dtype);
  std::vector<Bytes> ins, outs;
  hosts.fill();
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    ins.push_back(inputs_of(reference, dtype, static_cast<int>(rank)));
    outs.emplace_back(reference.outputs(static_cast<int>(rank)) * element);
    if (rank % 2 != 0) continue;
    hosts.request(rank).flags = kRequestStaged;
    hosts.request(rank).in_offset = hosts.request(rank).out_offset = kArenaOffset;
  }
  ASSERT_TRUE(hosts.read());
  ASSERT_EQ(hosts.op().blocks, hosts.op().rows.rows());
  ASSERT_GT(hosts.op().blocks, kWindowBlocks);
  for (uint32_t row = 0; row < hosts.op().blocks; ++row) {
    const auto copy_all = [&](bool is_out) {
      for (uint32_t rank = 0; rank < ranks; rank += 2) {
        const StagedRows rows = staged_rows({collective, 0, ranks}, rank, dtype, count);
        std::byte* place = hosts.at(rank, kArenaOffset + row % kWindowBlocks * kBoardBlockBytes);
        copy_row(rows, row, element, is_out ? outs[rank] : ins[rank], is_out ? rows.out : rows.in,
                 place, is_out);
      }
    };
    copy_all(false);
    run_block(hosts.op(), row, choose_kernel());
    copy_all(true);
  }
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const std::byte* out =
        rank % 2 == 0 ? outs[rank].data() : hosts.at(rank, hosts.request(rank).out_offset);
    for (uint64_t i = 0; i < reference.outputs(static_cast<int>(rank)); ++i)
      ASSERT_EQ(get(out, dtype, i), held(dtype, reference.output(static_cast<int>(rank), i)))
          << name_of(collective) << " " << name_of(dtype) << ", rank " << rank << " of " << ranks
          << ", element " << i;
  }
}

TEST(MatchedOp, BlocksPassThroughWindowsInRows) {
  for (const Collective collective : kEveryCollective)
    for (const Dtype dtype : {Dtype::f32, Dtype::boolean, Dtype::bf16})
      for (const uint32_t ranks : {1u, 2u, 5u}) {
        if (!has_blocks(collective)) continue;
        const StagedRows rows = staged_rows({collective, 0, ranks}, 0, dtype, 0);
        run_rows(collective, dtype, ranks, (kWindowBlocks + 1) * rows.part + 77,
                 ranks == 2 && has_in_place(collective));
        if (HasFatalFailure()) return;
      }
}

// Tensors that lie apart are folded as the one tensor that they are end to end, beside a rank that
// has them in one piece.
TEST(MatchedOp, AListIsFoldedWhereItsTensorsLie) {
  const std::vector<uint64_t> counts = {1, 700, 0, kBoardBlockBytes / 4, 3, 40'000};
  uint64_t all = 0;
  for (const uint64_t count : counts) all += count;
  Hosts hosts(Collective::all_reduce, Dtype::f32, Op::sum, 2, all);
  hosts.in_place();
  auto* whole = reinterpret_cast<float*>(hosts.at(1, kArenaOffset));
  for (uint64_t i = 0; i < all; ++i) whole[i] = static_cast<float>(i % 777);
  auto* record = reinterpret_cast<ListedTensor*>(hosts.at(0, kOutOffset));
  std::vector<uint64_t> places;
  uint64_t at = kArenaOffset + 64;
  uint64_t first = 0;
  for (const uint64_t count : counts) {
    *record++ = {at, at, count};
    auto* tensor = reinterpret_cast<float*>(hosts.at(0, at));
    for (uint64_t i = 0; i < count; ++i) tensor[i] = static_cast<float>((first + i) % 1000);
    places.push_back(at);
    at += count * 4 + 128;
    first += count;
  }
  hosts.request(0).in_offset = kOutOffset;
  hosts.request(0).out_offset = 0;
  hosts.request(0).records = static_cast<uint32_t>(counts.size());
  hosts.request(0).flags = kRequestListed;
  hosts.run();
  first = 0;
  for (size_t tensor = 0; tensor < counts.size(); ++tensor)
    for (uint64_t i = 0; i < counts[tensor]; ++i, ++first) {
      const auto want = static_cast<float>(first % 1000 + first % 777);
      ASSERT_EQ(reinterpret_cast<float*>(hosts.at(0, places[tensor]))[i], want)
          << tensor << " " << i;
      ASSERT_EQ(whole[first], want) << first;
    }
}

// A program may set any rounding mode; the result must not depend on the rank that folds.
TEST(MatchedOp, TheCallersRoundingChangesNoBits) {
  for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO, FE_TONEAREST}) {
    Hosts hosts(Collective::all_reduce, Dtype::f32, Op::sum, 2, 100);
    hosts.in_place();
    for (uint32_t rank = 0; rank < 2; ++rank) {
      auto* values = reinterpret_cast<float*>(hosts.at(rank, kArenaOffset));
      for (int i = 0; i < 100; ++i) values[i] = rank == 0 ? 1.0f : (i % 2 == 0 ? 1e-9f : -1e-9f);
    }
    ASSERT_EQ(std::fesetround(mode), 0);
    hosts.run();
    EXPECT_EQ(std::fegetround(), mode) << "and the caller keeps it";
    std::fesetround(FE_TONEAREST);
    const auto* sums = reinterpret_cast<const float*>(hosts.at(1, kArenaOffset));
    for (int i = 0; i < 100; ++i) ASSERT_EQ(sums[i], 1.0f) << mode << " " << i;
  }
}

// The worker folds by records that trainers may change: nothing outside the segments is accessed.
TEST(MatchedOp, RecordsThatLieTouchNothingOutside) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 5'000; ++i) {
    static Hosts hosts(Collective::all_reduce, Dtype::f32, Op::sum, 2, 1000);
    hosts.in_place();
    hosts.request(0).in_offset = kOutOffset;
    hosts.request(0).records = static_cast<uint32_t>(random() % 8);
    hosts.request(0).flags = kRequestListed;
    auto* record = reinterpret_cast<ListedTensor*>(hosts.at(0, kOutOffset));
    for (int j = 0; j < 8; ++j)
      record[j] = {random() >> random() % 64, random() >> random() % 64, random() >> random() % 64};
    hosts.run();
  }
  Hosts hosts(Collective::all_reduce, Dtype::f32, Op::sum, 2, 1000);
  hosts.request(0).flags = kRequestListed;
  hosts.request(0).records = UINT32_MAX;
  EXPECT_FALSE(hosts.read()) << "the records end behind the segment";
  hosts.request(0).in_offset = kOutOffset;
  hosts.request(0).records = 1001;
  EXPECT_FALSE(hosts.read()) << "more tensors than elements: looking for one would take for ever";
  hosts.request(0).records = 1000;
  EXPECT_TRUE(hosts.read());
}

// The offset of an empty list is arbitrary, and may be 0: it must not be taken for a plain tensor.
TEST(MatchedOp, AListOfNoneFoldsNothing) {
  Hosts hosts(Collective::all_reduce, Dtype::f32, Op::sum, 2, 8);
  hosts.fill();
  hosts.request(0).flags = kRequestListed;
  hosts.request(0).records = 0;
  hosts.request(0).in_offset = -reinterpret_cast<uint64_t>(hosts.at(0, 0));
  hosts.run();
  float out = 7;
  std::memcpy(&out, hosts.at(1, kOutOffset), sizeof(out));
  EXPECT_EQ(out, 0) << "a sum that lacks a rank";
}

// What another host has folded is the last term, however the ranks' values are associated, and in
// whatever type it came.
TEST(LocalFolds, ACarryIsFoldedOnceAndLast) {
  constexpr uint64_t kElements = 3 * kFoldBlock + 5;
  constexpr int kContributions = 5;
  const Kernel kernel = choose_kernel();
  std::vector<testing::Bytes> inputs(kContributions, testing::Bytes(kElements * 2));
  std::vector<float> carry(kElements);
  std::vector<float> sums(kElements);
  std::mt19937 random(7);
  for (uint64_t i = 0; i < kElements; ++i) {
    carry[i] = sums[i] = static_cast<float>(random() % 64);
    for (testing::Bytes& input : inputs) {
      const auto value = static_cast<float>(random() % 64);
      testing::put(input, Dtype::f16, i, value);
      sums[i] += value;
    }
  }
  std::vector<const std::byte*> from;
  for (const testing::Bytes& input : inputs) from.push_back(input.data());
  for (const Strategy& local : std::vector<Strategy>{
           {StrategyKind::centralized}, {StrategyKind::tree, 2}, {StrategyKind::ring}}) {
    std::vector<float> result(kElements, -1);
    const Target target{result.data(), Dtype::f32};
    const Folds folds = local_folds(local, kContributions);
    std::vector<std::byte> scratch(scratch_bytes(folds.size(), Dtype::f16));
    run_folds({.folds = folds,
               .contributions = from,
               .targets = {&target, 1},
               .dtype = Dtype::f16,
               .count = kElements,
               .scratch = scratch,
               .carry = {carry.data(), Dtype::f32}},
              [&](const FoldJob& job) { return kernel(job), true; });
    EXPECT_EQ(result, sums) << to_string(local);
  }
}

}  // namespace
}  // namespace tutti::board
