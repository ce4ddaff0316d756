// Values and bits of operations on one host's board, with real agents, workers and processes.
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

constexpr Way kWays[] = {Way::blocking, Way::async, Way::passing, Way::by_rank, Way::by_three};

void every_kind(Group& group, size_t count) {
  for (const Collective collective : kEveryCollective)
    for (const Memory memory : kMemories)
      for (const Way way : kWays)
        for (const bool in_place : {true, false})
          run_task(group, {collective, Dtype::f32, Op::sum, count, memory, way, in_place, ""});
}

TEST_F(BoardMesh, EveryCollectiveOverEveryKindOfMemory) {
  for (int ranks = 1; ranks <= 4; ++ranks)
    EXPECT_EQ(run(ranks,
                  [](const RankContext& context) {
                    Group group = context.join();
                    for (const size_t count : {0u, 1u, 3u, 1001u, 40'001u})
                      every_kind(group, count);
                  }),
              "")
        << ranks << " ranks";
}

// Lists of tensors in shared memory are folded in place, unless only the worker knows the strategy.
TEST_F(BoardMesh, ListsInSharedMemoryUnderEveryStrategy) {
  EXPECT_EQ(run(3,
                [](const RankContext& context) {
                  Group group = context.join();
                  constexpr size_t kCounts[] = {1000, 3, 70'000};
                  for (const char* strategy : {"", "ring", "tree:2", "centralized,ring"}) {
                    std::deque<Tensor> tensors;
                    std::vector<std::span<float>> spans;
                    for (const size_t count : kCounts) {
                      tensors.emplace_back(group, count * sizeof(float), true);
                      spans.emplace_back(reinterpret_cast<float*>(tensors.back().data()), count);
                      std::ranges::fill(spans.back(), static_cast<float>(context.rank + 1));
                    }
                    group.all_reduce_many(spans, tutti::sum, {.strategy = strategy});
                    for (const std::span<float>& tensor : spans)
                      for (const float value : tensor) check(value == 6, strategy);
                  }
                }),
            "");
}

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
}

// As many ranks as a board holds, and one more, whose job runs without a board.
TEST_F(BoardMesh, AHostFullOfRanks) {
  for (const int ranks : {8, 32, 33})
    EXPECT_EQ(run(ranks,
                  [](const RankContext& context) {
                    Group group = context.join();
                    for (int i = 0; i < 3; ++i) check_works(group);
                  }),
              "")
        << ranks << " ranks";
}

TEST_F(BoardMesh, EveryCollectiveOfSeveralMegabytes) {
  for (const int ranks : {2, 3})
    EXPECT_EQ(run(ranks,
                  [](const RankContext& context) {
                    Group group = context.join();
                    for (const size_t count : {300'007u, 1'200'001u})
                      for (const Collective collective : kEveryCollective)
                        for (const Memory memory : kMemories)
                          run_task(group, {collective, Dtype::f32, Op::sum, count, memory,
                                           Way::blocking, true, ""});
                    for (const Way way : kWays)
                      run_task(group, {Collective::all_reduce, Dtype::u8, Op::max, 2'000'003,
                                       Memory::by_rank, way, false, ""});
                  }),
              "")
        << ranks << " ranks";
}

// Bytes of all ranks' inputs and outputs per element of `count`.
size_t bytes_each(Collective collective, size_t ranks) {
  switch (collective) {
    case Collective::all_reduce:
      return 2 * ranks;
    case Collective::reduce:
      return ranks + 1;
    case Collective::broadcast:
      return ranks;
    case Collective::all_gather:
    case Collective::reduce_scatter:
      return ranks * (ranks + 1);
    case Collective::gather:
    case Collective::scatter:
      return 2 * ranks;
    case Collective::all_to_all:
      return 2 * ranks * ranks;
    case Collective::barrier:
      break;
  }
  return SIZE_MAX;
}

// Sizes around the one from which several ranks fold.
TEST_F(BoardMesh, SizesAroundWhatOneRankFolds) {
  for (const int ranks : {2, 3, 4})
    EXPECT_EQ(run(ranks,
                  [=](const RankContext& context) {
                    Group group = context.join();
                    const auto world = static_cast<size_t>(ranks);
                    for (const Collective collective : kEveryCollective) {
                      const size_t border =
                          2 * world * kBoardBlockBytes / bytes_each(collective, world);
                      for (size_t count = border; count < border + 5; ++count)
                        for (const Way way : {Way::blocking, Way::async})
                          run_task(group, {collective, Dtype::u8, Op::max, count, Memory::shared,
                                           way, true, ""});
                    }
                  }),
              "")
        << ranks << " ranks";
}

// With factors 2 ^ -rank of inputs i * 2 ^ rank. One list is small, the other is staged where it
// may be.
void check_premultiplied_list(Group& group, Memory memory, bool in_place, bool async) {
  const int rank = group.rank();
  const auto shared = [&](bool output, size_t tensor) {
    if (memory == Memory::by_rank) return rank % 2 == 1;
    if (memory == Memory::by_side) return in_place ? tensor % 2 == 1 : output;
    return memory == Memory::shared;
  };
  const auto value = [](size_t i) { return static_cast<float>(i % 1000); };
  for (const size_t last : {5u, 200'003u}) {
    const std::vector<size_t> counts = {1000, 0, 3, last};
    std::deque<Tensor> tensors;
    std::vector<const void*> ins;
    std::vector<void*> outs;
    for (size_t t = 0; t < counts.size(); ++t) {
      auto* in = tensors.emplace_back(group, counts[t] * 4, shared(false, t)).data();
      ins.push_back(in);
      outs.push_back(in_place ? in
                              : tensors.emplace_back(group, counts[t] * 4, shared(true, t)).data());
      for (size_t i = 0; i < counts[t]; ++i) put_as(in + 4 * i, std::ldexp(value(i), rank));
    }
    tutti_options options = tutti_defaults();
    options.factor = std::ldexp(1, -rank);
    tutti_work* work = nullptr;
    Error::check(tutti_all_reduce_many(group.get(), ins.data(), outs.data(), counts.data(),
                                       counts.size(), TUTTI_F32, TUTTI_PREMUL_SUM, &options,
                                       async ? &work : nullptr));
    if (async) Work(work).wait();
    for (size_t t = 0; t < counts.size(); ++t)
      for (size_t i = 0; i < counts[t]; ++i) {
        const auto* in = static_cast<const float*>(ins[t]);
        check(static_cast<const float*>(outs[t])[i] == value(i) * 3, "a premultiplied sum");
        check(in_place || in[i] == std::ldexp(value(i), rank), "the input is as it was");
      }
  }
}

TEST_F(BoardMesh, EveryDtypeAndOp) {
  EXPECT_EQ(run(2,
                [](const RankContext& context) {
                  Group group = context.join();
                  for (uint32_t dtype = 0; dtype < kDtypes; ++dtype)
                    for (uint32_t op = 0; op < kOps; ++op) {
                      Task task;
                      task.dtype = static_cast<Dtype>(dtype);
                      task.op = static_cast<Op>(op);
                      if (!applies_to(task.op, task.dtype)) continue;
                      for (const size_t count : {33u, 150'001u}) {
                        task.count = count;
                        run_task(group, task);
                        task.collective = Collective::reduce_scatter;
                        run_task(group, task);
                        task.collective = Collective::all_reduce;
                      }
                    }
                }),
            "");
}

// Inputs are multiplied wherever they are: in their output's memory, in a copy, or in a window.
TEST_F(BoardMesh, PremultipliedSumsOverEveryKindOfMemory) {
  EXPECT_EQ(
      run(3,
          [](const RankContext& context) {
            Group group = context.join();
            for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::f16, Dtype::bf16})
              for (const bool in_place : {true, false})
                for (const Collective collective :
                     {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter}) {
                  Task task{collective, dtype, Op::premul_sum};
                  task.in_place = in_place;
                  task.count = 2 * kBoardBlockBytes / size_of(dtype) + 1001;
                  run_task(group, task);
                  for (const size_t count : {0u, 33u, 5001u})
                    for (const Memory memory : kMemories)
                      for (const Way way : kWays) {
                        task.count = count, task.memory = memory, task.way = way;
                        run_task(group, task);
                      }
                }
          }),
      "");
}

// The same lists, in ordinary, shared and mixed memory.
TEST_F(BoardMesh, PremultipliedSumsOfLists) {
  EXPECT_EQ(run(3,
                [](const RankContext& context) {
                  Group group = context.join();
                  for (const Memory memory : kMemories)
                    for (const bool in_place : {true, false})
                      for (const bool async : {true, false})
                        check_premultiplied_list(group, memory, in_place, async);
                }),
            "");
}

// ---- The same bits, whichever rank folds ----

std::vector<std::byte> ordinary_values(int rank, Dtype dtype, size_t count) {
  std::mt19937 random(static_cast<unsigned>(rank) + 1);
  std::normal_distribution<float> normal(0, 3);
  std::vector<std::byte> values(count * size_of(dtype));
  for (size_t i = 0; i < count; ++i) {
    const float value = normal(random);
    if (dtype == Dtype::f32) testing::put_as(values.data() + 4 * i, value);
    if (dtype == Dtype::f16) testing::put_as(values.data() + 2 * i, testing::f16_of(value));
    if (dtype == Dtype::bf16) testing::put_as(values.data() + 2 * i, testing::bf16_of(value));
  }
  return values;
}

void expect_same_bits(Group& group, Group& by_worker, Dtype dtype, size_t count) {
  const auto mine = ordinary_values(group.rank(), dtype, count);
  const auto type = static_cast<tutti_dtype>(dtype);
  const auto sum = [&](Group& through, bool async, const char* strategy) {
    std::vector<std::byte> out(mine.size());
    tutti_options options = tutti_defaults();
    options.strategy = strategy;
    tutti_work* work = nullptr;
    Error::check(tutti_all_reduce(through.get(), mine.data(), out.data(), count, type, TUTTI_MEAN,
                                  &options, async ? &work : nullptr));
    if (async) Work(work).wait();
    return out;
  };
  const auto on_board = sum(group, false, nullptr);
  check(sum(by_worker, false, nullptr) == on_board, "the worker's bits");
  sum(group, true, "ring");
  check(sum(group, true, nullptr) == on_board, "the same when nobody waits");
  check(sum(group, false, "centralized") == on_board, "the same by name");
}

TEST_F(BoardMesh, TheBitsAreThoseOfTheWorker) {
  EXPECT_EQ(run(3,
                [](const RankContext& context) {
                  Group group = context.join();
                  const std::vector<uint32_t> everyone = {0, 1, 2};
                  Group by_worker = group.subgroup(everyone);
                  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16})
                    for (const size_t count : {1u, 777u, 50'001u, 700'001u})
                      expect_same_bits(group, by_worker, dtype, count);
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
