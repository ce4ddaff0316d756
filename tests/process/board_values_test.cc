// Operations on one host's board, with real agents, workers and processes: their bits, how ranks
// share them, and many of them. Values: tests/process/values_test.cc.
// Order: tests/process/board_order_test.cc. Faults: tests/process/board_faults_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <thread>

#include "proto/board.h"
#include "tests/process/board_fixture.h"

namespace tutti {
namespace {

using namespace testing;

class BoardMesh : public ::testing::Test {
 protected:
  std::string run(int ranks, const Trainer::Body& body) { return mesh_.run("job", {ranks}, body); }

  SharedCounters signals_;
  TestMesh mesh_{1};
};

// No other call may use the window of a staged call before its last block is copied out.
TEST_F(BoardMesh, TwoThreadsOfARankStageAtOnce) {
  EXPECT_EQ(run(2,
                [](const RankContext& context) {
                  Group group = context.join();
                  Group other = group.subgroup(std::vector<uint32_t>{0, 1});
                  const auto reduce = [&](Group& where, float base) {
                    for (int round = 0; round < 40; ++round) {
                      const float mine = base + static_cast<float>(round + context.rank);
                      std::vector<float> tensor(300'000, mine);
                      where.all_reduce(std::span(tensor));
                      const float sum = 2 * (base + static_cast<float>(round)) + 1;
                      for (const float value : tensor) check(value == sum, "another's value");
                    }
                  };
                  std::string fault;
                  std::thread beside([&] {
                    try {
                      reduce(other, 5000);
                    } catch (const std::exception& thrown) {
                      fault = thrown.what();
                    }
                  });
                  reduce(group, 0);
                  beside.join();
                  check(fault.empty(), fault);
                }),
            "");
}

// A copy of the whole tensor would need as much shared memory as the tensor.
TEST_F(BoardMesh, BlockingVerbsOfTheSkinPassOrdinaryMemoryBlockByBlock) {
  EXPECT_EQ(run(2, check_nothing_is_copied), "");
  for (const int ranks : {1, 4}) EXPECT_EQ(run(ranks, check_no_blocks_are_copied), "");
}

TEST_F(BoardMesh, AHostOfManyRanks) {
  for (const int ranks : {8, 33})
    EXPECT_EQ(run(ranks,
                  [](const RankContext& context) {
                    Group group = context.join();
                    for (int i = 0; i < 3; ++i) check_works(group);
                  }),
              "")
        << ranks << " ranks";
}

// Bytes of all ranks' inputs and outputs per element of `count`: what the root broadcasts is one.
size_t bytes_each(Collective collective, int ranks) {
  const Reference one{collective, ranks, Op::max, 1, ranks - 1};
  size_t bytes = 0;
  for (int rank = 0; rank < ranks; ++rank) bytes += one.inputs(rank) + one.outputs(rank);
  return collective == Collective::broadcast ? bytes - 1 : bytes;
}

// Sizes around the one from which several ranks fold.
TEST_F(BoardMesh, SizesAroundWhatOneRankFolds) {
  for (const int ranks : {2, 3, 4})
    EXPECT_EQ(run(ranks,
                  [=](const RankContext& context) {
                    Group group = context.join();
                    const size_t both = 2 * static_cast<size_t>(ranks) * kBoardBlockBytes;
                    for (const Collective collective : kEveryCollective) {
                      if (collective == Collective::barrier) continue;
                      const size_t border = both / bytes_each(collective, ranks);
                      for (size_t count = border; count < border + 5; ++count)
                        for (const Way way : {Way::blocking, Way::async})
                          run_task(group, {collective, Dtype::u8, Op::max, count, Memory::shared,
                                           way, true, ""});
                    }
                  }),
              "")
        << ranks << " ranks";
}

// ---- The same bits, whichever rank folds ----

// The ranks fold what they wait for, the worker the rest.
void check_same_bits(Group& group, Dtype dtype, size_t count) {
  const Bytes mine = sevenths(dtype, count, group.rank());
  const auto type = static_cast<tutti_dtype>(dtype);
  const auto sum = [&](bool async, const char* strategy) {
    Bytes out(mine.size());
    tutti_options options = tutti_defaults();
    options.strategy = strategy;
    tutti_work* work = nullptr;
    Error::check(tutti_all_reduce(group.get(), mine.data(), out.data(), count, type, TUTTI_MEAN,
                                  &options, async ? &work : nullptr));
    if (async) Work(work).wait();
    return out;
  };
  const auto by_ranks = sum(false, nullptr);
  sum(true, "ring");
  check(sum(true, nullptr) == by_ranks, "the same when nobody waits");
  check(sum(false, "centralized") == by_ranks, "the same by name");
}

TEST_F(BoardMesh, TheWorkersBitsAreThoseOfTheRanks) {
  EXPECT_EQ(run(3,
                [](const RankContext& context) {
                  Group group = context.join();
                  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16})
                    for (const size_t count : {1u, 777u, 50'001u, 700'001u})
                      check_same_bits(group, dtype, count);
                }),
            "");
}

// ---- Many operations, and ranks far apart ----

TEST_F(BoardMesh, ThousandsInARow) {
  for (const int ranks : {2, 4})
    EXPECT_EQ(run(ranks,
                  [](const RankContext& context) {
                    Group group = context.join();
                    for (const bool shared : {true, false}) {
                      stream(group, 5000, 16, shared);
                      stream(group, 300, 40'001, shared);
                      stream(group, 30, 400'001, shared);
                    }
                  }),
              "");
}

// Rank 0 asks for `ahead` operations before the others begin.
void run_ahead(Group& group, const SharedCounters& signals, int signal, int ahead) {
  std::deque<std::vector<float>> tensors;
  std::deque<Work> works;
  int ended = 0;
  const auto end_one = [&] {
    works.front().wait();
    check_all(tensors.front(), sum_at(group.world_size(), ended++));
    works.pop_front();
    tensors.pop_front();
  };
  if (group.rank() != 0) signals.wait_for(signal, 1);
  for (int step = 0; step < ahead; ++step) {
    if (works.size() == 250) {
      signals[signal] = 1;
      end_one();
    }
    tensors.emplace_back(10, static_cast<float>(step + group.rank()));
    works.push_back(group.all_reduce_async(std::span(tensors.back())));
  }
  if (group.rank() == 0) signals[signal] = 1;
  while (!works.empty()) end_one();
}

TEST_F(BoardMesh, ARankFarAhead) {
  EXPECT_EQ(run(3,
                [this](const RankContext& context) {
                  Group group = context.join();
                  int signal = 0;
                  for (const int ahead : {1, 63, 64, 65, 128, 129, 250, 300}) {
                    run_ahead(group, signals_, signal++, ahead);
                    check_works(group);
                  }
                }),
            "");
}

}  // namespace
}  // namespace tutti
