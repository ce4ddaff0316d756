// Calls that run out of memory return RESOURCE_EXHAUSTED, and the next call works. Each test makes
// every allocation of a call fail, one after the other.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <vector>

#include "client/tutti.h"
#include "proto/board.h"
#include "tests/support/fake_job.h"
#include "tests/support/scarce_memory.h"

namespace tutti {
namespace {

using testing::allocations_left;
using testing::has_failed;
using testing::throws_something_else;

constexpr int64_t kAllocationsMax = 2000;
constexpr size_t kElements = 1000;

class ClientMemoryTest : public ::testing::Test {
 protected:
  void TearDown() override { tutti_group_free(group_); }

  tutti_code join() {
    tutti_join_options options = tutti_join_defaults();
    options.socket = path_.c_str();
    options.job = "demo";
    options.rank = 0;
    options.world_size = 1;
    return tutti_join(&options, &group_);
  }

  // Repeats the call, with its first, second, ... allocation failing, until none is left to fail.
  static void sweep(const char* what, const std::function<tutti_code()>& call) {
    int64_t refused = 0;
    for (int64_t nth = 0; nth < kAllocationsMax; ++nth) {
      has_failed = false;
      allocations_left = nth;
      const tutti_code code = call();
      allocations_left = -1;
      if (!has_failed) {
        EXPECT_EQ(code, TUTTI_OK) << what << ": " << tutti_last_error()->message;
        EXPECT_GT(refused, 0) << what << " allocates nothing: this tests nothing";
        return;
      }
      if (code == TUTTI_OK) continue;  // The failed allocation was optional.
      ++refused;
      EXPECT_EQ(code, TUTTI_RESOURCE_EXHAUSTED) << what << ", allocation " << nth;
      EXPECT_EQ(tutti_last_error()->code, TUTTI_RESOURCE_EXHAUSTED);
      EXPECT_STREQ(tutti_last_error()->message, "this process is out of memory");
    }
    FAIL() << what << " goes on allocating";
  }

  // Free bytes of the segment.
  size_t room() {
    size_t bytes = 0;
    std::vector<void*> blocks;
    for (size_t each = size_t{1} << 40; each >= 64; each /= 2)
      for (; void* block = tutti_alloc(group_, each); bytes += each) blocks.push_back(block);
    for (void* block : blocks) tutti_free(group_, block);
    return bytes;
  }

  const std::string path_ = ::testing::TempDir() + "memory_" + std::to_string(getpid()) + ".sock";
  FakeJob job_{path_, 1};
  tutti_group* group_ = nullptr;
  std::array<float, kElements> x_{};
};

TEST_F(ClientMemoryTest, JoiningAndLeaving) {
  sweep("join", [this] { return join(); });
  ASSERT_NE(group_, nullptr);
  EXPECT_EQ(tutti_barrier(group_, nullptr, nullptr), TUTTI_OK);
}

TEST_F(ClientMemoryTest, EveryCollective) {
  ASSERT_EQ(join(), TUTTI_OK);
  const size_t room_before = room();
  float* x = x_.data();
  const auto dtype = TUTTI_F32;
  const auto sum = TUTTI_SUM;
  tutti_options options = tutti_defaults();
  options.strategy = "tree:2,centralized";
  sweep("all_reduce",
        [&] { return tutti_all_reduce(group_, x, x, kElements, dtype, sum, &options, nullptr); });
  sweep("reduce",
        [&] { return tutti_reduce(group_, x, x, kElements, dtype, sum, 0, nullptr, nullptr); });
  sweep("broadcast",
        [&] { return tutti_broadcast(group_, x, kElements, dtype, 0, nullptr, nullptr); });
  sweep("all_gather",
        [&] { return tutti_all_gather(group_, x, x, kElements, dtype, nullptr, nullptr); });
  sweep("reduce_scatter", [&] {
    return tutti_reduce_scatter(group_, x, x, kElements, dtype, sum, nullptr, nullptr);
  });
  sweep("gather",
        [&] { return tutti_gather(group_, x, x, kElements, dtype, 0, nullptr, nullptr); });
  sweep("scatter",
        [&] { return tutti_scatter(group_, x, x, kElements, dtype, 0, nullptr, nullptr); });
  sweep("all_to_all",
        [&] { return tutti_all_to_all(group_, x, x, kElements, dtype, nullptr, nullptr); });
  const size_t counts[] = {kElements};
  sweep("all_gather_v",
        [&] { return tutti_all_gather_v(group_, x, x, counts, dtype, nullptr, nullptr); });
  sweep("reduce_scatter_v",
        [&] { return tutti_reduce_scatter_v(group_, x, x, counts, dtype, sum, nullptr, nullptr); });
  std::vector<float> y(kElements);
  sweep("all_to_all_v", [&] {
    return tutti_all_to_all_v(group_, x, counts, y.data(), counts, dtype, nullptr, nullptr);
  });
  sweep("barrier", [&] { return tutti_barrier(group_, nullptr, nullptr); });
  EXPECT_EQ(room(), room_before) << "a failed call releases what it held";
}

TEST_F(ClientMemoryTest, AListOfTensors) {
  ASSERT_EQ(join(), TUTTI_OK);
  const std::array<const void*, 2> ins = {x_.data(), x_.data() + 500};
  const std::array<void*, 2> outs = {x_.data(), x_.data() + 500};
  const std::array<size_t, 2> counts = {500, 500};
  sweep("all_reduce_many", [&] {
    return tutti_all_reduce_many(group_, ins.data(), outs.data(), counts.data(), 2, TUTTI_F32,
                                 TUTTI_SUM, nullptr, nullptr);
  });
}

TEST_F(ClientMemoryTest, WorkThatIsWaitedForLater) {
  ASSERT_EQ(join(), TUTTI_OK);
  tutti_work* work = nullptr;
  sweep("all_reduce and its work", [&] {
    const tutti_code code = tutti_all_reduce(group_, x_.data(), x_.data(), kElements, TUTTI_F32,
                                             TUTTI_SUM, nullptr, &work);
    EXPECT_EQ(code == TUTTI_OK, work != nullptr);
    const tutti_code waited = code == TUTTI_OK ? tutti_work_wait(work, -1) : code;
    while (code == TUTTI_OK && tutti_work_done(work) == 0) continue;
    tutti_work_free(work);
    return waited;
  });
}

// A list that the segment has no room for is staged inside the call, which releases its window.
TEST_F(ClientMemoryTest, AListWithoutRoomThatIsWaitedForLater) {
  ASSERT_EQ(join(), TUTTI_OK);
  std::vector<float> list(size_t{1} << 20, 1.0f);
  const size_t window = 2 * kWindowBlocks * kBoardBlockBytes;
  ASSERT_LT(window, list.size() * sizeof(float));
  void* taken = tutti_alloc(group_, room() - window);
  ASSERT_NE(taken, nullptr);
  const std::array<const void*, 2> ins = {list.data(), list.data() + list.size() / 2};
  const std::array<void*, 2> outs = {list.data(), list.data() + list.size() / 2};
  const std::array<size_t, 2> counts = {list.size() / 2, list.size() / 2};
  sweep("all_reduce_many", [&] {
    tutti_work* work = nullptr;
    const tutti_code code = tutti_all_reduce_many(group_, ins.data(), outs.data(), counts.data(), 2,
                                                  TUTTI_F32, TUTTI_SUM, nullptr, &work);
    const tutti_code waited = code == TUTTI_OK ? tutti_work_wait(work, -1) : code;
    tutti_work_free(work);
    return waited;
  });
  EXPECT_EQ(room(), window);
  tutti_free(group_, taken);
}

// Every holder of a tensor must release it, or tutti_free() does not free it.
TEST_F(ClientMemoryTest, AListOfSharedMemory) {
  ASSERT_EQ(join(), TUTTI_OK);
  const size_t room_before = room();
  std::array<void*, 6> tensors{};
  std::array<size_t, 6> counts{};
  for (void*& tensor : tensors) {
    tensor = tutti_alloc(group_, kElements * sizeof(float));
    ASSERT_NE(tensor, nullptr);
    std::memset(tensor, 0, kElements * sizeof(float));
  }
  counts.fill(kElements);
  for (size_t size = 1; size <= tensors.size(); ++size)
    sweep("all_reduce_many", [&] {
      return tutti_all_reduce_many(group_, tensors.data(), tensors.data(), counts.data(), size,
                                   TUTTI_F32, TUTTI_SUM, nullptr, nullptr);
    });
  for (void* tensor : tensors) tutti_free(group_, tensor);
  EXPECT_EQ(room(), room_before);
}

TEST_F(ClientMemoryTest, SubGroupsAndSharedMemory) {
  ASSERT_EQ(join(), TUTTI_OK);
  const uint32_t self = 0;
  tutti_group* sub = nullptr;
  sweep("subgroup", [&] { return tutti_subgroup(group_, &self, 1, &sub); });
  EXPECT_EQ(tutti_world_size(sub), 1);
  tutti_group_free(sub);
  void* memory = nullptr;
  sweep("alloc", [&] {
    memory = tutti_alloc(group_, 4096);
    return memory == nullptr ? tutti_last_error()->code : TUTTI_OK;
  });
  tutti_free(group_, memory);
}

TEST_F(ClientMemoryTest, AWrongArgumentIsRefusedWithoutMemory) {
  allocations_left = 0;
  const tutti_code code = tutti_barrier(nullptr, nullptr, nullptr);
  allocations_left = -1;
  EXPECT_EQ(code, TUTTI_RESOURCE_EXHAUSTED);
}

TEST_F(ClientMemoryTest, OtherExceptionsAreInternal) {
  ASSERT_EQ(join(), TUTTI_OK);
  throws_something_else = true;
  allocations_left = 0;
  const tutti_code code = tutti_barrier(group_, nullptr, nullptr);
  allocations_left = -1;
  throws_something_else = false;
  EXPECT_EQ(code, TUTTI_INTERNAL);
  EXPECT_STREQ(tutti_last_error()->message, "a fault inside the client library: a test's own");
  EXPECT_EQ(tutti_barrier(group_, nullptr, nullptr), TUTTI_OK);
}

}  // namespace
}  // namespace tutti
