// tutti_all_reduce_many(): lists of many sizes in every kind of memory, and how they fail.
#include <numeric>

#include "proto/board.h"
#include "tests/client/fixture.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

// Floats of two blocks of the board, and of a step in which memory is copied.
constexpr size_t kTwoBlocks = 2 * kBoardBlockBytes / sizeof(float);
constexpr size_t kCopyStep = (size_t{4} << 20) / sizeof(float);

class BatchTest : public ClientTest {
 protected:
  // One rank's tensors. If `shared`, every third input and every second output is shared memory.
  class List {
   public:
    List(tutti_group* group, int rank, const std::vector<size_t>& counts, bool shared,
         bool in_place)
        : counts_(counts) {
      for (size_t i = 0; i < counts.size(); ++i) {
        ins_.push_back(std::make_unique<GroupBuffer>(group, shared && i % 3 == 0, counts[i]));
        ins_[i]->fill(ClientTest::input(rank, counts[i]));
        if (!in_place)
          outs_.push_back(std::make_unique<GroupBuffer>(group, shared && i % 2 == 0, counts[i]));
        from_.push_back(ins_[i]->data());
        to_.push_back(in_place ? ins_[i]->data() : outs_[i]->data());
      }
    }

    tutti_code reduce(tutti_group* group, tutti_work** work = nullptr, tutti_op op = TUTTI_SUM,
                      const tutti_options* options = nullptr) {
      return tutti_all_reduce_many(group, from_.data(), to_.data(), counts_.data(), counts_.size(),
                                   TUTTI_F32, op, options, work);
    }
    void check(float factor = 1) {
      for (size_t i = 0; i < counts_.size(); ++i)
        for (size_t at = 0; at < counts_[i]; ++at)
          ASSERT_EQ(static_cast<float*>(to_[i])[at], ClientTest::summed(at) * factor)
              << i << "[" << at << "]";
    }
    // Whether the inputs are what they were made of.
    bool unchanged(int rank) {
      bool same = true;
      for (size_t i = 0; i < counts_.size(); ++i)
        same &= ins_[i]->values() == ClientTest::input(rank, counts_[i]);
      return same;
    }

   private:
    std::vector<size_t> counts_;
    std::vector<std::unique_ptr<GroupBuffer>> ins_;
    std::vector<std::unique_ptr<GroupBuffer>> outs_;
    std::vector<const void*> from_;
    std::vector<void*> to_;
  };

  void reduce_everywhere(const std::vector<size_t>& counts) {
    for (const bool shared : {false, true})
      for (const bool in_place : {false, true})
        each([&](int rank) {
          List list(group(rank), rank, counts, shared, in_place);
          ASSERT_EQ(list.reduce(group(rank)), TUTTI_OK) << tutti_last_error()->message;
          list.check();
        });
  }
};

TEST_F(BatchTest, ListsOfManySizesInEveryMemory) {
  join_all();
  const std::vector<std::vector<size_t>> lists = {
      {},
      {0},
      {1},
      {0, 0, 0},
      {5, 0, 1, 1000, 3},
      {kTwoBlocks, kTwoBlocks + 1, 7},
      {kTwoBlocks + 1},
      std::vector<size_t>(9, kTwoBlocks),
      {kTwoBlocks - 1, kTwoBlocks, kTwoBlocks, kTwoBlocks, 1, 1},
      {1, kCopyStep * 2, 2, kCopyStep * 3, 3},
  };
  for (const std::vector<size_t>& counts : lists) reduce_everywhere(counts);
}

// Ordinary, shared and mixed lists; copied as a whole and block by block.
TEST_F(BatchTest, EachTensorIsMultipliedOnce) {
  join_all();
  const std::vector<std::vector<size_t>> lists = {{0, 5, 1000, 3}, {1, kCopyStep + 1, 2, 77}};
  for (const std::vector<size_t>& counts : lists)
    for (const bool shared : {false, true})
      for (const bool in_place : {false, true})
        for (const bool async : {false, true})
          each([&](int rank) {
            List list(group(rank), rank, counts, shared, in_place);
            tutti_options options = tutti_defaults();
            options.factor = 0.5;
            tutti_work* work = nullptr;
            ASSERT_EQ(list.reduce(group(rank), async ? &work : nullptr, TUTTI_PREMUL_SUM, &options),
                      TUTTI_OK)
                << tutti_last_error()->message;
            if (async) {
              EXPECT_EQ(tutti_work_wait(work, -1), TUTTI_OK);
            }
            tutti_work_free(work);
            list.check(0.5);
            EXPECT_TRUE(in_place || list.unchanged(rank));
          });
}

TEST_F(BatchTest, FiveThousandTensors) {
  join_all();
  std::vector<size_t> counts(5000);
  for (size_t i = 0; i < counts.size(); ++i) counts[i] = i * 37 % 300;
  reduce_everywhere(counts);
}

TEST_F(BatchTest, MoreTensorsThanAGroupHasSlots) {
  join_all();
  reduce_everywhere(std::vector<size_t>(kBoardSlots + 50, 1000));
}

TEST_F(BatchTest, WorksCanBeWaitedForInAnyOrder) {
  join_all();
  each([&](int rank) {
    List first(group(rank), rank, {3, kTwoBlocks * 2, 4}, true, true);
    List second(group(rank), rank, {100, 200}, false, false);
    tutti_work* works[2];
    ASSERT_EQ(first.reduce(group(rank), &works[0]), TUTTI_OK);
    ASSERT_EQ(second.reduce(group(rank), &works[1]), TUTTI_OK);
    for (tutti_work* work : {works[1], works[0]}) {
      EXPECT_EQ(tutti_work_wait(work, -1), TUTTI_OK) << tutti_last_error()->message;
      EXPECT_EQ(tutti_work_done(work), 1);
      EXPECT_EQ(tutti_work_wait(work, 0), TUTTI_OK);
      tutti_work_free(work);
    }
    first.check();
    second.check();
  });
}

TEST_F(BatchTest, NothingStaysHeldWhenWorksAreDropped) {
  join_all();
  each([&](int rank) {
    void* before = tutti_alloc(group(rank), 1);
    tutti_free(group(rank), before);
    for (int i = 0; i < 20; ++i) {
      List list(group(rank), rank, {3, 4, kTwoBlocks * 2}, false, true);
      tutti_work* work = nullptr;
      ASSERT_EQ(list.reduce(group(rank), &work), TUTTI_OK);
      tutti_work_free(work);
    }
    ASSERT_EQ(tutti_barrier(group(rank), nullptr, nullptr), TUTTI_OK);
    void* after = tutti_alloc(group(rank), 1);
    EXPECT_EQ(after, before) << "a copy was not released";
    tutti_free(group(rank), after);
  });
}

// The list has kFailingCount elements, which the fake job refuses. The group stays usable.
TEST_F(BatchTest, AListThatFailsIsOneFailure) {
  join_all();
  each([&](int rank) {
    List list(group(rank), rank, {1000, kFailingCount - 1003, 3}, false, true);
    EXPECT_EQ(list.reduce(group(rank)), TUTTI_FAILED_PRECONDITION);
    EXPECT_STREQ(tutti_last_error()->message, "ranks disagree");
    EXPECT_EQ(tutti_last_error()->rank, 1);
  });
  reduce_everywhere({1, 2, 3});
}

TEST_F(BatchTest, AWorkMayBeWaitedForAgainAfterATimeout) {
  join_all();
  std::vector<std::unique_ptr<List>> lists;
  for (int rank = 0; rank < kWorld; ++rank)
    lists.push_back(
        std::make_unique<List>(group(rank), rank, std::vector<size_t>{1, 2}, false, true));
  tutti_work* work = nullptr;
  ASSERT_EQ(lists[0]->reduce(group(0), &work), TUTTI_OK);
  EXPECT_EQ(tutti_work_wait(work, 20), TUTTI_DEADLINE_EXCEEDED);
  EXPECT_EQ(tutti_work_done(work), 0);
  each([&](int rank) {
    if (rank == 0)
      EXPECT_EQ(tutti_work_wait(work, -1), TUTTI_OK);
    else
      EXPECT_EQ(lists[static_cast<size_t>(rank)]->reduce(group(rank)), TUTTI_OK);
    lists[static_cast<size_t>(rank)]->check();
  });
  tutti_work_free(work);
}

TEST_F(BatchTest, AMissingRankEndsItByTheDeadline) {
  join_all();
  tutti_options options = tutti_defaults();
  options.timeout_ms = 50;
  std::vector<float> x(4);
  const void* in = x.data();
  void* out = x.data();
  const size_t count = 4;
  EXPECT_EQ(tutti_all_reduce_many(group(0), &in, &out, &count, 1, TUTTI_F32, TUTTI_SUM, &options,
                                  nullptr),
            TUTTI_DEADLINE_EXCEEDED);
}

TEST_F(BatchTest, AKilledWorkerIsNamed) {
  join_all();
  List list(group(0), 0, {1, kTwoBlocks * 2, 3}, false, true);
  tutti_work* work = nullptr;
  ASSERT_EQ(list.reduce(group(0), &work), TUTTI_OK);
  job.kill();
  EXPECT_EQ(tutti_work_wait(work, -1), TUTTI_UNAVAILABLE);
  EXPECT_THAT(tutti_last_error()->message, HasSubstr("the worker of job 'demo' on host a (pid "));
  tutti_work_free(work);
}

}  // namespace
}  // namespace tutti
