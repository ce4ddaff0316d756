// The C ABI with wrong arguments: NULL handles and buffers, uninitialized structs, memory that is
// too small.
#include <array>

#include "tests/client/fixture.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

class ClientAbiTest : public ClientTest {
 protected:
  static void expect_invalid(tutti_code code, const std::string& words) {
    EXPECT_EQ(code, TUTTI_INVALID_ARGUMENT) << words;
    EXPECT_EQ(tutti_last_error()->code, TUTTI_INVALID_ARGUMENT);
    EXPECT_THAT(tutti_last_error()->message, HasSubstr(words));
  }
  // Operations of rank 0 that were refused keep their places: the other ranks' barriers fail,
  // naming rank 0, until all ranks meet in one.
  void expect_all_work() {
    each([this](int rank) {
      constexpr int kRefusedMax = 100;
      tutti_code code = tutti_barrier(group(rank), nullptr, nullptr);
      for (int i = 0; rank != 0 && code == TUTTI_INVALID_ARGUMENT && i < kRefusedMax; ++i) {
        EXPECT_EQ(tutti_last_error()->rank, 0);
        code = tutti_barrier(group(rank), nullptr, nullptr);
      }
      EXPECT_EQ(code, TUTTI_OK) << tutti_last_error()->message;
    });
  }

  float x_ = 1;
};

TEST_F(ClientAbiTest, ABindingRefusesACallInItsPlace) {
  join_all();
  expect_invalid(tutti_refuse(group(0), TUTTI_GATHER, TUTTI_INVALID_ARGUMENT, "why"), "why");
  EXPECT_EQ(tutti_refuse(group(0), TUTTI_GATHER, TUTTI_OK, nullptr), TUTTI_UNKNOWN);
  EXPECT_EQ(tutti_refuse(group(0), TUTTI_GATHER, static_cast<tutti_code>(99), nullptr),
            TUTTI_UNKNOWN);
  const auto none = static_cast<tutti_collective>(99);
  expect_invalid(tutti_refuse(group(0), none, TUTTI_UNAVAILABLE, "why"), "unknown collective");
  each([this](int rank) {
    if (rank == 0) return;
    EXPECT_EQ(tutti_barrier(group(rank), nullptr, nullptr), TUTTI_INVALID_ARGUMENT);
    EXPECT_THAT(tutti_last_error()->message, HasSubstr("asked for gather: why"));
    for (int i = 0; i < 2; ++i)
      EXPECT_EQ(tutti_barrier(group(rank), nullptr, nullptr), TUTTI_UNKNOWN);
  });
  expect_all_work();
}

TEST_F(ClientAbiTest, ANullGroupIsRefused) {
  tutti_work* work = nullptr;
  float* x = &x_;
  const size_t one = 1;
  const void* in = x;
  void* out = x;
  tutti_group* made = nullptr;
  const std::string words = "the group is NULL";
  for (tutti_work** asked : {static_cast<tutti_work**>(nullptr), &work}) {
    const auto dtype = TUTTI_F32;
    expect_invalid(tutti_all_reduce(nullptr, x, x, 1, dtype, TUTTI_SUM, nullptr, asked), words);
    expect_invalid(
        tutti_all_reduce_many(nullptr, &in, &out, &one, 1, dtype, TUTTI_SUM, nullptr, asked),
        words);
    expect_invalid(tutti_reduce(nullptr, x, x, 1, dtype, TUTTI_SUM, 0, nullptr, asked), words);
    expect_invalid(tutti_broadcast(nullptr, x, 1, dtype, 0, nullptr, asked), words);
    expect_invalid(tutti_all_gather(nullptr, x, x, 1, dtype, nullptr, asked), words);
    expect_invalid(tutti_reduce_scatter(nullptr, x, x, 1, dtype, TUTTI_SUM, nullptr, asked), words);
    expect_invalid(tutti_gather(nullptr, x, x, 1, dtype, 0, nullptr, asked), words);
    expect_invalid(tutti_scatter(nullptr, x, x, 1, dtype, 0, nullptr, asked), words);
    expect_invalid(tutti_all_to_all(nullptr, x, x, 1, dtype, nullptr, asked), words);
    expect_invalid(tutti_all_gather_v(nullptr, x, x, &one, dtype, nullptr, asked), words);
    expect_invalid(tutti_reduce_scatter_v(nullptr, x, x, &one, dtype, TUTTI_SUM, nullptr, asked),
                   words);
    expect_invalid(tutti_all_to_all_v(nullptr, x, &one, x, &one, dtype, nullptr, asked), words);
    expect_invalid(tutti_send(nullptr, x, 1, dtype, 0, 0, nullptr, asked), words);
    expect_invalid(tutti_recv(nullptr, x, 1, dtype, 0, 0, nullptr, asked), words);
    expect_invalid(tutti_barrier(nullptr, nullptr, asked), words);
    EXPECT_EQ(work, nullptr);
  }
  const uint32_t rank = 0;
  expect_invalid(tutti_subgroup(nullptr, &rank, 1, &made), words);
  expect_invalid(tutti_leave(nullptr), words);
  EXPECT_EQ(tutti_alloc(nullptr, 64), nullptr);
  expect_invalid(tutti_last_error()->code, words);
}

TEST_F(ClientAbiTest, ANullGroupHasNoRank) {
  EXPECT_EQ(tutti_rank(nullptr), -1);
  EXPECT_EQ(tutti_world_size(nullptr), 0);
  EXPECT_EQ(tutti_epoch(nullptr), 0u);
  EXPECT_STREQ(tutti_launcher(nullptr), "");
  EXPECT_EQ(tutti_host_of(nullptr, 0), nullptr);
  EXPECT_EQ(tutti_host_of(nullptr, -1), nullptr);
}

TEST_F(ClientAbiTest, FreeingNullDoesNothing) {
  join_all();
  tutti_group_free(nullptr);
  tutti_work_free(nullptr);
  tutti_free(nullptr, nullptr);
  tutti_free(group(0), nullptr);
  tutti_free(nullptr, &x_);
  tutti_free(group(0), &x_);
  expect_invalid(tutti_work_wait(nullptr, -1), "the work is NULL");
  EXPECT_EQ(tutti_work_done(nullptr), 1);
  expect_all_work();
}

TEST_F(ClientAbiTest, ANullPlaceForAResultIsRefused) {
  join_all();
  const tutti_join_options options = tutti_join_defaults();
  expect_invalid(tutti_join(nullptr, nullptr), "group is NULL");
  expect_invalid(tutti_join(&options, nullptr), "group is NULL");
  const std::array<uint32_t, 2> ranks = {0, 1};
  expect_invalid(tutti_subgroup(group(0), ranks.data(), 2, nullptr), "subgroup is NULL");
  expect_all_work();
}

TEST_F(ClientAbiTest, WrongListsOfRanksAreRefused) {
  join_all();
  const uint32_t self = 0;
  tutti_group* made = groups[0];
  for (const size_t count : {size_t{0}, size_t{2}, SIZE_MAX}) {
    expect_invalid(tutti_subgroup(group(0), nullptr, count, &made), "ranks is NULL");
    EXPECT_EQ(made, nullptr);
  }
  expect_invalid(tutti_subgroup(group(0), &self, 0, &made), "not of the sub-group");
  for (const size_t count : {size_t{4}, SIZE_MAX / 4, SIZE_MAX})
    expect_invalid(tutti_subgroup(group(0), &self, count, &made), "larger than the job");
  expect_all_work();
}

TEST_F(ClientAbiTest, ANullBufferIsRefused) {
  join_all();
  float* x = &x_;
  tutti_group* g = group(0);
  const auto dtype = TUTTI_F32;
  const auto sum = TUTTI_SUM;
  const std::string words = "a buffer is NULL";
  expect_invalid(tutti_all_reduce(g, nullptr, x, 1, dtype, sum, nullptr, nullptr), words);
  expect_invalid(tutti_all_reduce(g, x, nullptr, 1, dtype, sum, nullptr, nullptr), words);
  expect_invalid(tutti_reduce(g, x, nullptr, 1, dtype, sum, 0, nullptr, nullptr), words);
  expect_invalid(tutti_broadcast(g, nullptr, 1, dtype, 0, nullptr, nullptr), words);
  expect_invalid(tutti_all_gather(g, x, nullptr, 1, dtype, nullptr, nullptr), words);
  expect_invalid(tutti_reduce_scatter(g, nullptr, x, 1, dtype, sum, nullptr, nullptr), words);
  expect_invalid(tutti_gather(g, x, nullptr, 1, dtype, 0, nullptr, nullptr), words);
  expect_invalid(tutti_scatter(g, nullptr, x, 1, dtype, 0, nullptr, nullptr), words);
  expect_invalid(tutti_all_to_all(g, x, nullptr, 1, dtype, nullptr, nullptr), words);
  expect_all_work();
}

TEST_F(ClientAbiTest, WrongListsOfTensorsAreRefused) {
  join_all();
  const std::array<const void*, 2> ins = {&x_, &x_};
  const std::array<const void*, 2> ins_without_second = {&x_, nullptr};
  const std::array<void*, 2> outs = {&x_, &x_};
  const std::array<void*, 2> outs_without_first = {nullptr, &x_};
  const std::array<size_t, 2> ones = {1, 1};
  const std::array<size_t, 2> huge = {1, SIZE_MAX / 2};
  const std::array<size_t, 2> huge_in_all = {SIZE_MAX / 4, SIZE_MAX / 4};
  const auto many = [&](const void* const* in, void* const* out, const size_t* counts,
                        size_t size = 2) {
    return tutti_all_reduce_many(group(0), in, out, counts, size, TUTTI_F32, TUTTI_SUM, nullptr,
                                 nullptr);
  };
  expect_invalid(many(nullptr, outs.data(), ones.data()), "a list of tensors is NULL");
  expect_invalid(many(ins.data(), nullptr, ones.data()), "a list of tensors is NULL");
  expect_invalid(many(ins.data(), outs.data(), nullptr), "a list of tensors is NULL");
  expect_invalid(many(ins_without_second.data(), outs.data(), ones.data()),
                 "tensor 1 of the list: a buffer is NULL");
  expect_invalid(many(ins.data(), outs_without_first.data(), ones.data()),
                 "tensor 0 of the list: a buffer is NULL");
  expect_invalid(many(ins.data(), outs.data(), huge.data()), "tensor 1 of the list: count ");
  expect_invalid(many(ins.data(), outs.data(), huge_in_all.data()), "more than any memory holds");
  for (const size_t size : {size_t{1} << 24, size_t{1} << 40, SIZE_MAX})
    expect_invalid(many(ins.data(), outs.data(), ones.data(), size), "at most 16777215");
  expect_all_work();
}

TEST_F(ClientAbiTest, UninitializedOptionsAreRefused) {
  join_all();
  tutti_options options = tutti_defaults();
  tutti_join_options join_options = tutti_join_defaults();
  tutti_group* made = nullptr;
  for (const size_t size : {size_t{0}, size_t{1}, size_t{8}, size_t{12}, size_t{16}, size_t{4097},
                            SIZE_MAX / 2, SIZE_MAX}) {
    options.size = join_options.size = size;
    expect_invalid(tutti_barrier(group(0), &options, nullptr), "begin with tutti_defaults()");
    expect_invalid(tutti_join(&join_options, &made), "begin with tutti_join_defaults()");
    EXPECT_EQ(made, nullptr);
  }
  expect_all_work();
}

TEST_F(ClientAbiTest, OptionsOfANewerHeaderAreRead) {
  join_all();
  struct Newer {
    tutti_options known = tutti_defaults();
    std::array<uint64_t, 4> unknown{};
  };
  each([this](int rank) {
    Newer options;
    options.known.size = sizeof(options);
    options.known.strategy = "tree:0";
    const tutti_code code = tutti_barrier(group(rank), &options.known, nullptr);
    expect_invalid(code, "arity must be >= 1");
    options.known.strategy = "ring";
    EXPECT_EQ(tutti_barrier(group(rank), &options.known, nullptr), TUTTI_OK);
  });
}

// The struct ended with `timeout_ms` before it had a factor, which then is 1.
TEST_F(ClientAbiTest, OptionsOfAnOlderHeaderAreRead) {
  join_all();
  struct Older {
    size_t size;
    const char* strategy;
    int32_t timeout_ms;
  };
  each([this](int rank) {
    struct {
      Older known{sizeof(Older), "ring", 0};
      double behind = 7;
    } older;
    static_assert(sizeof(Older) == offsetof(tutti_options, factor));
    std::array<float, 2> x = {1, 2};
    const auto* options = reinterpret_cast<const tutti_options*>(&older);
    EXPECT_EQ(tutti_all_reduce(group(rank), x.data(), x.data(), 2, TUTTI_F32, TUTTI_PREMUL_SUM,
                               options, nullptr),
              TUTTI_OK);
    EXPECT_EQ(x, (std::array<float, 2>{3, 6}));
  });
}

TEST_F(ClientAbiTest, OnlyPremulSumHasAFactorAndItsDefaultIsOne) {
  join_all();
  each([this](int rank) {
    tutti_options options = tutti_defaults();
    const auto reduced = [&](tutti_op op, const tutti_options* how) {
      float x = 1;
      EXPECT_EQ(tutti_all_reduce(group(rank), &x, &x, 1, TUTTI_F32, op, how, nullptr), TUTTI_OK);
      return x;
    };
    EXPECT_EQ(reduced(TUTTI_PREMUL_SUM, nullptr), 3);
    EXPECT_EQ(reduced(TUTTI_PREMUL_SUM, &options), 3);
    options.factor = 1 + rank;
    EXPECT_EQ(reduced(TUTTI_PREMUL_SUM, &options), 6);
    EXPECT_EQ(reduced(TUTTI_SUM, &options), 3);
  });
}

// Sides in shared memory that overlap in part are refused before anything is multiplied.
TEST_F(ClientAbiTest, NothingIsMultipliedWhereSidesOverlapInPart) {
  join_all();
  each([this](int rank) {
    auto* x = static_cast<float*>(tutti_alloc(group(rank), 12 * sizeof(float)));
    std::fill(x, x + 12, 5.0f);
    tutti_options options = tutti_defaults();
    options.factor = 2;
    expect_invalid(
        tutti_all_reduce(group(rank), x, x + 4, 8, TUTTI_F32, TUTTI_PREMUL_SUM, &options, nullptr),
        "overlap in part");
    EXPECT_EQ(std::vector<float>(x, x + 12), std::vector<float>(12, 5.0f));
    tutti_free(group(rank), x);
  });
}

// A refused operation leaves shared memory as it was, though the call is in place.
TEST_F(ClientAbiTest, NothingIsMultipliedWhereTheDtypeHasNoFactor) {
  join_all();
  each([this](int rank) {
    auto* x = static_cast<int32_t*>(tutti_alloc(group(rank), sizeof(int32_t)));
    *x = 5;
    tutti_options options = tutti_defaults();
    options.factor = 2;
    expect_invalid(
        tutti_all_reduce(group(rank), x, x, 1, TUTTI_I32, TUTTI_PREMUL_SUM, &options, nullptr),
        "PREMUL_SUM needs a floating-point dtype");
    EXPECT_EQ(*x, 5);
    tutti_free(group(rank), x);
  });
}

// ---- Memory of tutti_alloc() ----

TEST_F(ClientAbiTest, ABlockIsNotOverrun) {
  join_all();
  tutti_group* g = group(0);
  auto* block = static_cast<float*>(tutti_alloc(g, 10 * sizeof(float)));
  auto* next = static_cast<float*>(tutti_alloc(g, 10 * sizeof(float)));
  std::fill(next, next + 10, 7.0f);
  std::array<float, 20> ordinary{};
  const auto reduce = [&](const void* in, void* out, size_t count) {
    return tutti_all_reduce(g, in, out, count, TUTTI_F32, TUTTI_SUM, nullptr, nullptr);
  };
  const std::string words = "80 bytes, but its block of tutti_alloc() has only 40 from there on";
  expect_invalid(reduce(block, block, 20), "the input has " + words);
  expect_invalid(reduce(block, ordinary.data(), 20), "the input has " + words);
  expect_invalid(reduce(ordinary.data(), block, 20), "the output has " + words);
  expect_invalid(reduce(block + 5, block + 5, 6), "24 bytes, but its block of tutti_alloc() has");
  expect_invalid(reduce(block, block, 11), "only 40 from there on");
  expect_invalid(tutti_broadcast(g, block, 20, TUTTI_F32, 0, nullptr, nullptr), words);
  expect_invalid(tutti_all_gather(g, block, block, 10, TUTTI_F32, nullptr, nullptr),
                 "the output has 120 bytes");
  tutti_options scaling = tutti_defaults();
  scaling.factor = 2;
  expect_invalid(
      tutti_all_reduce(g, block, block, 20, TUTTI_F32, TUTTI_PREMUL_SUM, &scaling, nullptr),
      "the input has " + words);
  EXPECT_EQ(std::vector<float>(next, next + 10), std::vector<float>(10, 7.0f));
  expect_all_work();
  each([&](int rank) {
    std::array<float, 10> x{};
    void* mine = rank == 0 ? static_cast<void*>(block) : x.data();
    EXPECT_EQ(tutti_all_reduce(group(rank), mine, mine, 10, TUTTI_F32, TUTTI_SUM, nullptr, nullptr),
              TUTTI_OK);
  });
}

TEST_F(ClientAbiTest, ABlockInAListIsNotOverrun) {
  join_all();
  for (const size_t count : {size_t{10}, size_t{1} << 17}) {  // Copied as a whole, and staged.
    auto* block = static_cast<float*>(tutti_alloc(group(0), count * sizeof(float)));
    std::vector<float> ordinary(count + 1);
    const size_t more = count + 1;
    const void* in = block;
    void* out = ordinary.data();
    const auto many = [&](const void* from, void* to) {
      in = from;
      out = to;
      return tutti_all_reduce_many(group(0), &in, &out, &more, 1, TUTTI_F32, TUTTI_SUM, nullptr,
                                   nullptr);
    };
    expect_invalid(many(block, block), "tensor 0 of the list: the input has");
    expect_invalid(many(ordinary.data(), block), "tensor 0 of the list: the output has");
    tutti_free(group(0), block);
  }
  expect_all_work();
}

TEST_F(ClientAbiTest, FreedMemoryIsNoBuffer) {
  join_all();
  auto* block = static_cast<float*>(tutti_alloc(group(0), 64));
  tutti_free(group(0), block);
  expect_invalid(tutti_broadcast(group(0), block, 4, TUTTI_F32, 0, nullptr, nullptr),
                 "has only 0 from there on");
  expect_all_work();
}

}  // namespace
}  // namespace tutti
