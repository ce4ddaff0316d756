// The C ABI: collectives on every kind of memory, works, sub-groups, and the limit of operations.
#include "proto/board.h"
#include "tests/client/fixture.h"
#include "tests/support/call.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;
using testing::Reference;

constexpr size_t kCount = 1000;

TEST_F(ClientTest, AGroupKnowsItsRanksAndHosts) {
  join_all();
  for (int rank = 0; rank < kWorld; ++rank) {
    EXPECT_EQ(tutti_rank(group(rank)), rank);
    EXPECT_EQ(tutti_world_size(group(rank)), kWorld);
    EXPECT_EQ(tutti_epoch(group(rank)), 1u);
    EXPECT_STREQ(tutti_host_of(group(rank), 0), "a");
    EXPECT_STREQ(tutti_host_of(group(rank), 1), "b");
    EXPECT_EQ(tutti_host_of(group(rank), 3), nullptr);
    EXPECT_EQ(tutti_host_of(group(rank), -1), nullptr);
  }
}

// The memory of a rank's input and output: shared or ordinary, separate or in place.
struct Memory {
  bool in_shared;
  bool out_shared;
  bool in_place;
};
constexpr std::array kMemories = {Memory{false, false, false}, Memory{true, false, false},
                                  Memory{false, true, false},  Memory{true, true, false},
                                  Memory{false, false, true},  Memory{true, true, true}};

// One rank's part. In place, its own block lies within the other side; a side that it does not have
// is none.
void run_in(const Memory& memory, const Reference& reference, tutti_group* group) {
  const int rank = tutti_rank(group);
  const auto name = name_of(reference.collective);
  const size_t ins = reference.inputs(rank), outs = reference.outputs(rank);
  GroupBuffer first(group, memory.in_shared, std::max(ins, outs));
  GroupBuffer second(group, memory.out_shared, outs);
  const size_t own = memory.in_place ? reference.before(rank) : 0;
  float* in = ins == 0 ? nullptr : first.data() + (ins < outs ? own : 0);
  float* out = memory.in_place ? first.data() + (outs < ins ? own : 0) : second.data();
  if (outs == 0) out = nullptr;
  if (reference.collective == Collective::broadcast && ins != 0) out = in;
  std::fill_n(out, outs, -1.0f);
  for (size_t i = 0; i < ins; ++i) in[i] = static_cast<float>(reference.input(rank, i));
  const tutti_code code = call(group, reference, Dtype::f32, in, out, nullptr, nullptr);
  if (reference.is_exchange() && memory.in_place && memory.in_shared) {
    EXPECT_EQ(code, TUTTI_INVALID_ARGUMENT);
    EXPECT_THAT(tutti_last_error()->message, HasSubstr("overlap"));
    return;
  }
  ASSERT_EQ(code, TUTTI_OK) << name << tutti_last_error()->message;
  for (size_t i = 0; i < outs; ++i) ASSERT_EQ(out[i], reference.output(rank, i)) << name << i;
  if (outs != 0 && (memory.in_place || in == out)) return;
  for (size_t i = 0; i < ins; ++i)
    ASSERT_EQ(in[i], reference.input(rank, i)) << name << ": changed";
}

TEST_F(ClientTest, EveryCollectiveInEveryMemory) {
  join_all();
  for (const Collective collective : kEveryCollective) {
    const Reference reference{collective, kWorld, Op::sum, kCount, 1};
    for (const Memory& memory : kMemories)
      each([&](int rank) { run_in(memory, reference, group(rank)); });
  }
}

TEST_F(ClientTest, MisalignedMemoryIsCopied) {
  join_all();
  each([&](int rank) {
    auto* block = static_cast<std::byte*>(tutti_alloc(group(rank), 64));
    const std::vector<float> values = input(rank, 4);
    std::memcpy(block + 1, values.data(), 16);
    ASSERT_EQ(tutti_all_reduce(group(rank), block + 1, block + 1, 4, TUTTI_F32, TUTTI_SUM, nullptr,
                               nullptr),
              TUTTI_OK)
        << tutti_last_error()->message;
    std::array<float, 4> sums{};
    std::memcpy(sums.data(), block + 1, 16);
    EXPECT_EQ(sums[3], summed(3));
    tutti_free(group(rank), block);
  });
}

TEST_F(ClientTest, EmptyTensorsAndBarriers) {
  join_all();
  std::atomic<int> before = 0;
  each([&](int rank) {
    EXPECT_EQ(
        tutti_all_reduce(group(rank), nullptr, nullptr, 0, TUTTI_F32, TUTTI_SUM, nullptr, nullptr),
        TUTTI_OK);
    ++before;
    EXPECT_EQ(tutti_barrier(group(rank), nullptr, nullptr), TUTTI_OK);
    EXPECT_EQ(before, kWorld) << "somebody passed the barrier early";
  });
}

TEST_F(ClientTest, ManyOperationsAtOnce) {
  join_all();
  each([&](int rank) {
    std::vector<std::vector<float>> tensors;
    std::vector<tutti_work*> works;
    for (size_t i = 0; i < 200; ++i) tensors.push_back(input(rank, i));
    for (std::vector<float>& x : tensors) {
      works.push_back(nullptr);
      ASSERT_EQ(tutti_all_reduce(group(rank), x.data(), x.data(), x.size(), TUTTI_F32, TUTTI_SUM,
                                 nullptr, &works.back()),
                TUTTI_OK);
    }
    for (size_t i = works.size(); i-- > 0;) {
      ASSERT_EQ(tutti_work_wait(works[i], -1), TUTTI_OK);
      EXPECT_EQ(tutti_work_done(works[i]), 1);
      for (size_t k = 0; k < i; ++k) ASSERT_EQ(tensors[i][k], summed(k));
      tutti_work_free(works[i]);
    }
  });
}

TEST_F(ClientTest, ACallWaitsWhileAllSlotsAreInUse) {
  join_all();
  std::vector<tutti_work*> works(kBoardSlots);
  for (tutti_work*& work : works) ASSERT_EQ(tutti_barrier(group(0), nullptr, &work), TUTTI_OK);
  std::atomic<bool> others_came = false;
  each([&](int rank) {
    if (rank == 0) {
      tutti_work* extra = nullptr;
      ASSERT_EQ(tutti_barrier(group(0), nullptr, &extra), TUTTI_OK);
      EXPECT_TRUE(others_came) << "there was no room before";
      EXPECT_EQ(tutti_work_wait(extra, -1), TUTTI_OK);
      tutti_work_free(extra);
      return;
    }
    others_came = true;
    for (uint32_t i = 0; i < kBoardSlots + 1; ++i)
      EXPECT_EQ(tutti_barrier(group(rank), nullptr, nullptr), TUTTI_OK);
  });
  for (tutti_work* work : works) {
    EXPECT_EQ(tutti_work_wait(work, 0), TUTTI_OK);
    tutti_work_free(work);
  }
}

// The other ranks never call, so the slots stay in use.
TEST_F(ClientTest, ACallWithoutAFreeSlotFailsInTime) {
  join_all();
  tutti_options options = tutti_defaults();
  options.timeout_ms = 200;
  std::vector<tutti_work*> works(kBoardSlots);
  for (tutti_work*& work : works) ASSERT_EQ(tutti_barrier(group(0), &options, &work), TUTTI_OK);
  tutti_work* extra = nullptr;
  EXPECT_EQ(tutti_barrier(group(0), &options, &extra), TUTTI_DEADLINE_EXCEEDED);
  EXPECT_THAT(tutti_last_error()->message,
              HasSubstr("256 operations of the group are under way, "
                        "and rank 2 (host a) has not ended the first"));
  EXPECT_EQ(tutti_last_error()->rank, 2);
  EXPECT_EQ(extra, nullptr);
  for (tutti_work* work : works) {
    EXPECT_NE(tutti_work_wait(work, -1), TUTTI_OK);
    tutti_work_free(work);
  }
}

TEST_F(ClientTest, AWorkMayBeWaitedForAgainAfterATimeout) {
  join_all();
  std::vector<float> x = input(0, kCount);
  tutti_work* work = nullptr;
  ASSERT_EQ(
      tutti_all_reduce(group(0), x.data(), x.data(), kCount, TUTTI_F32, TUTTI_SUM, nullptr, &work),
      TUTTI_OK);
  EXPECT_EQ(tutti_work_done(work), 0);
  EXPECT_EQ(tutti_work_wait(work, 30), TUTTI_DEADLINE_EXCEEDED);
  EXPECT_THAT(tutti_last_error()->message, HasSubstr("not done after 30 ms"));
  each([&](int rank) {
    if (rank == 0) return;
    std::vector<float> y = input(rank, kCount);
    EXPECT_EQ(tutti_all_reduce(group(rank), y.data(), y.data(), kCount, TUTTI_F32, TUTTI_SUM,
                               nullptr, nullptr),
              TUTTI_OK);
  });
  EXPECT_EQ(tutti_work_wait(work, -1), TUTTI_OK);
  EXPECT_EQ(x[7], summed(7));
  tutti_work_free(work);
}

TEST_F(ClientTest, AFreedWorkKeepsItsMemoryUntilTheOperationEnds) {
  join_all();
  auto* x = static_cast<float*>(tutti_alloc(group(0), kCount * sizeof(float)));
  std::ranges::copy(input(0, kCount), x);
  tutti_work* work = nullptr;
  ASSERT_EQ(tutti_all_reduce(group(0), x, x, kCount, TUTTI_F32, TUTTI_SUM, nullptr, &work),
            TUTTI_OK);
  tutti_work_free(work);
  tutti_free(group(0), x);
  void* next = tutti_alloc(group(0), kCount * sizeof(float));
  EXPECT_NE(next, x) << "the worker still writes there";
  each([&](int rank) {
    if (rank == 0) return;
    std::vector<float> y = input(rank, kCount);
    EXPECT_EQ(tutti_all_reduce(group(rank), y.data(), y.data(), kCount, TUTTI_F32, TUTTI_SUM,
                               nullptr, nullptr),
              TUTTI_OK);
  });
  each([&](int rank) { EXPECT_EQ(tutti_barrier(group(rank), nullptr, nullptr), TUTTI_OK); });
  EXPECT_EQ(tutti_alloc(group(0), kCount * sizeof(float)), x) << "it was never freed";
}

TEST_F(ClientTest, SubgroupsRunOnTheirOwn) {
  join_all();
  each([&](int rank) {
    if (rank == 1) return;
    const std::array<uint32_t, 2> ranks = {2, 0};
    tutti_group* pair = nullptr;
    ASSERT_EQ(tutti_subgroup(group(rank), ranks.data(), 2, &pair), TUTTI_OK)
        << tutti_last_error()->message;
    EXPECT_EQ(tutti_rank(pair), rank == 2 ? 0 : 1);
    EXPECT_EQ(tutti_world_size(pair), 2);
    EXPECT_STREQ(tutti_host_of(pair, 0), "a");
    const int32_t mine = rank;
    std::array<int32_t, 2> all{};
    EXPECT_EQ(tutti_all_gather(pair, &mine, all.data(), 1, TUTTI_I32, nullptr, nullptr), TUTTI_OK);
    EXPECT_THAT(all, ::testing::ElementsAre(2, 0));
    EXPECT_EQ(tutti_leave(pair), TUTTI_OK);
    EXPECT_EQ(tutti_barrier(pair, nullptr, nullptr), TUTTI_FAILED_PRECONDITION);
    tutti_group_free(pair);
  });
  each([&](int rank) { EXPECT_EQ(tutti_barrier(group(rank), nullptr, nullptr), TUTTI_OK); });
}

TEST_F(ClientTest, OneGroupManyThreads) {
  join_all();
  each([&](int rank) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < 100; ++i)
          EXPECT_EQ(tutti_barrier(group(rank), nullptr, nullptr), TUTTI_OK);
      });
    for (std::thread& thread : threads) thread.join();
  });
}

// The listener never accepts, like an agent that is stopped. The second join waits in connect().
TEST(ClientJoin, AgentThatDoesNotAnswerIsNamedInTime) {
  const std::string path = ::testing::TempDir() + "stopped_" + std::to_string(getpid()) + ".sock";
  const Result<Fd> listener = listen_unix(path, SOCK_STREAM, 0600);
  ASSERT_TRUE(listener.ok());
  ASSERT_EQ(listen(listener->get(), 0), 0);
  tutti_join_options options = tutti_join_defaults();
  options.socket = path.c_str();
  options.job = "demo";
  options.rank = 1;
  options.world_size = 2;
  options.timeout_ms = 300;
  const std::string pid = " (pid " + std::to_string(getpid()) + ")";
  for (const std::string& who : {path + pid, path}) {
    const TimePoint begin = Clock::now();
    tutti_group* group = nullptr;
    EXPECT_EQ(tutti_join(&options, &group), TUTTI_DEADLINE_EXCEEDED);
    const auto took = Clock::now() - begin;
    EXPECT_GE(took, Millis(300));
    EXPECT_LT(took, Millis(20'000));  // By rights half a second of grace; the machine may be busy.
    EXPECT_THAT(tutti_last_error()->message,
                ::testing::HasSubstr("the agent at " + who +
                                     " did not answer rank 1 of job 'demo' in time"));
  }
}

}  // namespace
}  // namespace tutti
