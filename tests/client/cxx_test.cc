// tutti.hpp: collectives of every element type, works, shared memory, exceptions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <thread>
#include <vector>

#include "client/tutti.hpp"
#include "tests/support/fake_job.h"

namespace tutti {
namespace {

using std::chrono::milliseconds;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kPath = ::testing::TempDir() + "cxx_" + std::to_string(getpid()) + ".sock";

void on_two_ranks(const std::function<void(Group&)>& body) {
  FakeJob job(kPath, 2);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.emplace_back([&, rank] {
      Group group = Group::join({.socket = kPath, .job = "demo", .rank = rank, .world_size = 2});
      body(group);
    });
  for (std::thread& rank : ranks) rank.join();
}

// On two ranks.
void check_collectives_with_counts(Group& group) {
  const int rank = group.rank();
  const std::vector<size_t> counts = {1, 2};
  const std::vector<int> mine(counts[static_cast<size_t>(rank)], rank);
  std::vector<int> all(3);
  group.all_gather_v(std::span(mine), std::span(all), counts);
  EXPECT_THAT(all, ElementsAre(0, 1, 1));
  std::vector<int> part(mine.size());
  group.reduce_scatter_v(std::span<const int>(all), std::span(part), counts, tutti::max);
  EXPECT_EQ(part, mine);
  const std::vector<size_t> sent =
      rank == 0 ? std::vector<size_t>{1, 2} : std::vector<size_t>{0, 3};
  const std::vector<size_t> got = rank == 0 ? std::vector<size_t>{1, 0} : std::vector<size_t>{2, 3};
  std::vector<int> received(rank == 0 ? 1 : 5);
  const std::vector<int> numbers = {10 * rank, 10 * rank + 1, 10 * rank + 2};
  group.all_to_all_v(std::span(numbers), sent, std::span(received), got);
  EXPECT_EQ(received, rank == 0 ? std::vector{0} : (std::vector{1, 2, 10, 11, 12}));
  EXPECT_THROW(group.all_gather_v(std::span(numbers), std::span(all), counts), Error);
}

TEST(ClientCxx, RunsEveryCollective) {
  on_two_ranks([](Group& group) {
    const int rank = group.rank();
    EXPECT_THAT(group.hosts(), ElementsAre("a", "b"));
    EXPECT_EQ(group.epoch(), 1u);
    std::vector<float> x = {1.0f + static_cast<float>(rank), 4.0f};
    group.all_reduce(std::span(x), mean, {.strategy = "tree:2"});
    EXPECT_THAT(x, ElementsAre(1.5f, 4.0f));
    std::vector<int64_t> y(3, rank + 1);
    group.reduce(std::span(y), 1, prod);
    EXPECT_THAT(y, Each(rank == 1 ? 2 : 1));
    group.broadcast(std::span(y), 1);
    EXPECT_THAT(y, Each(2));
    std::vector<double> gathered(2);
    const std::vector<double> one(1, rank * 0.5);
    group.all_gather(std::span(one), std::span(gathered));
    EXPECT_THAT(gathered, ElementsAre(0.0, 0.5));
    std::vector<double> scattered(1);
    group.reduce_scatter(std::span<const double>(gathered), std::span(scattered), tutti::max);
    EXPECT_EQ(scattered[0], rank * 0.5);
    std::vector<double> at_root(rank == 1 ? 2 : 0);
    group.gather(std::span(one), std::span(at_root), 1);
    if (rank == 1) {
      EXPECT_THAT(at_root, ElementsAre(0.0, 0.5));
    }
    group.scatter(std::span<const double>(at_root), std::span(scattered), 1);
    EXPECT_EQ(scattered[0], rank * 0.5);
    const std::vector<int> sent = {10 * rank, 10 * rank + 1};
    std::vector<int> received(2);
    group.all_to_all(std::span(sent), std::span(received));
    EXPECT_THAT(received, ElementsAre(rank, 10 + rank));
    check_collectives_with_counts(group);
    const std::vector<int> word = {rank + 5};
    std::vector<int> answer(1);
    tutti::Work message = group.send_async(std::span(word), 1 - rank, 9);
    EXPECT_EQ(group.recv(std::span(answer), TUTTI_ANY_RANK, 9), 1 - rank);
    EXPECT_THAT(answer, ElementsAre(6 - rank));
    message.wait();
    EXPECT_EQ(message.source(), -1);
    group.barrier();
  });
}

TEST(ClientCxx, SumsOfInputsWithFactors) {
  on_two_ranks([](Group& group) {
    const Options half_or_double = {.factor = group.rank() == 0 ? 0.5 : 2.0};
    std::vector<float> x = {2, 4};
    std::vector<float> out(2);
    group.all_reduce(std::span<const float>(x), std::span(out), premul_sum, half_or_double);
    EXPECT_THAT(x, ElementsAre(2.0f, 4.0f));
    EXPECT_THAT(out, ElementsAre(5.0f, 10.0f));
    std::vector<float> part(1);
    group.reduce_scatter(std::span<const float>(x), std::span(part), premul_sum, half_or_double);
    EXPECT_EQ(part[0], group.rank() == 0 ? 5 : 10);
    group.all_reduce_many(std::vector{std::span(out)}, premul_sum, half_or_double);
    EXPECT_THAT(out, ElementsAre(12.5f, 25.0f));
    std::span<double> shared = group.alloc<double>(2);
    std::ranges::fill(shared, 1);
    group.reduce(shared, 1, premul_sum, half_or_double);
    EXPECT_THAT(shared, Each(group.rank() == 1 ? 2.5 : 1.0));
    group.all_reduce(shared, premul_sum);
    EXPECT_THAT(shared, Each(3.5));
  });
}

template <class T>
void expect_reduced(Group& group, tutti_dtype dtype, T mine, tutti_op op, T expected) {
  EXPECT_EQ(dtype_of<T>(), dtype);
  std::array<T, 3> x = {mine, mine, mine};
  group.all_reduce(std::span<T>(x), op);
  EXPECT_THAT(x, Each(expected)) << "dtype " << dtype;
}

TEST(ClientCxx, EveryElementHasItsDtype) {
  on_two_ranks([](Group& group) {
    const int rank = group.rank();
    expect_reduced<bool>(group, TUTTI_BOOL, rank == 1, tutti::sum, true);
    expect_reduced<bool>(group, TUTTI_BOOL, rank == 1, tutti::prod, false);
    expect_reduced<int16_t>(group, TUTTI_I16, rank == 1 ? -300 : 1, tutti::min, -300);
    expect_reduced<uint16_t>(group, TUTTI_U16, rank == 1 ? 40000 : 1, tutti::max, 40000);
    expect_reduced<uint32_t>(group, TUTTI_U32, rank == 1 ? 3'000'000'000 : 1, tutti::max,
                             3'000'000'000);
    expect_reduced<uint64_t>(group, TUTTI_U64, rank == 1 ? UINT64_MAX : 1, tutti::max, UINT64_MAX);
    expect_reduced<int8_t>(group, TUTTI_I8, -1, tutti::sum, -2);
    expect_reduced<uint8_t>(group, TUTTI_U8, 100, tutti::sum, 200);
    expect_reduced<uint16_t>(group, TUTTI_U16, rank == 1 ? 0xff0 : 0xff, tutti::band, 0xf0);
    expect_reduced<int32_t>(group, TUTTI_I32, rank == 1 ? -8 : 3, tutti::bor, -5);
    expect_reduced<uint8_t>(group, TUTTI_U8, rank == 1 ? 6 : 3, tutti::bxor, 5);
    expect_reduced<bool>(group, TUTTI_BOOL, true, tutti::bxor, false);
  });
}

TEST(ClientCxx, WorkAndSharedMemory) {
  on_two_ranks([](Group& group) {
    std::span<int32_t> x = group.alloc<int32_t>(100);
    std::iota(x.begin(), x.end(), group.rank());
    Work work = group.all_reduce_async(x);
    while (!work.wait_for(milliseconds(10))) continue;
    EXPECT_TRUE(work.done());
    EXPECT_EQ(x[10], 10 + 11);
    group.free(x);
    const std::vector<uint32_t> ranks = {0, 1};
    Group both = group.subgroup(ranks);
    EXPECT_EQ(both.world_size(), 2);
    both.barrier();
  });
}

TEST(ClientCxx, ListsOfTensors) {
  on_two_ranks([](Group& group) {
    const auto rank = static_cast<float>(group.rank());
    std::vector<float> a = {rank, 2}, b, c(100, 1.5f);
    const std::vector<std::span<float>> xs = {a, b, c};
    group.all_reduce_many(xs);
    EXPECT_THAT(a, ElementsAre(1.0f, 4.0f));
    EXPECT_THAT(c, Each(3.0f));
    std::vector<float> d(2);
    const std::vector<std::span<const float>> ins = {a};
    group.all_reduce_many_async(ins, {std::span(d)}, mean).wait();
    EXPECT_THAT(d, ElementsAre(1.0f, 4.0f));
    EXPECT_THROW(group.all_reduce_many_async(ins, xs), Error);
  });
}

TEST(ClientCxx, CallsThatAreRefusedKeepTheirPlace) {
  on_two_ranks([](Group& group) {
    std::vector<float> x(4, 1), y(4), small(3);
    const std::span<const float> in(x);
    const std::span<float> out(group.rank() == 1 ? small : y);
    const std::vector<size_t> counts = {2, group.rank() == 1 ? size_t{3} : size_t{2}};
    EXPECT_THROW(group.all_reduce(in, out), Error);
    EXPECT_THROW(group.all_reduce_many_async<float>({in, in}, {y, out}).wait(), Error);
    EXPECT_THROW(group.all_to_all(in, out), Error);
    EXPECT_THROW(group.all_gather_v(in.first(2), std::span(y), counts), Error);
    EXPECT_THROW(group.reduce_scatter(in, out.first(group.rank() == 1 ? 1 : 2)), Error);
    group.all_reduce(in, std::span(y));
    EXPECT_THAT(y, Each(2));
  });
}

TEST(ClientCxx, FailuresAreErrors) {
  on_two_ranks([](Group& group) {
    std::vector<float> x(kFailingCount);
    try {
      group.all_reduce(std::span(x));
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code, TUTTI_FAILED_PRECONDITION);
      EXPECT_EQ(error.rank, 1);
      EXPECT_EQ(error.host, "b");
      EXPECT_STREQ(error.what(), "FAILED_PRECONDITION: ranks disagree");
    }
    const std::vector<float> three(3);
    EXPECT_THROW(group.all_gather(std::span(three), std::span(x)), Error);
    EXPECT_THROW(group.gather(std::span(three), std::span(x), group.rank()), Error);
    EXPECT_THROW(group.scatter(std::span(three), std::span(x), group.rank()), Error);
    std::vector<float> other(3);
    EXPECT_THROW(group.all_to_all(std::span(three), std::span(other)), Error);
  });
  EXPECT_THROW(Group::join({.socket = "/nonexistent", .job = "j", .rank = 0, .world_size = 1}),
               Error);
}

}  // namespace
}  // namespace tutti
