// The C ABI: collectives on every kind of memory, works, sub-groups, and the limit of operations.
#include <numeric>

#include "proto/board.h"
#include "tests/client/fixture.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

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

TEST_F(ClientTest, AllReduceInEveryMemory) {
  join_all();
  for (const Memory& memory : kMemories) {
    each([&](int rank) {
      GroupBuffer in(group(rank), memory.in_shared, kCount);
      GroupBuffer other(group(rank), memory.out_shared, kCount);
      GroupBuffer& out = memory.in_place ? in : other;
      in.fill(input(rank, kCount));
      ASSERT_EQ(tutti_all_reduce(group(rank), in.data(), out.data(), kCount, TUTTI_F32, TUTTI_SUM,
                                 nullptr, nullptr),
                TUTTI_OK)
          << tutti_last_error()->message;
      for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(out.data()[i], summed(i));
      if (!memory.in_place) {
        EXPECT_EQ(in.values(), input(rank, kCount)) << "the input changed";
      }
    });
  }
}

TEST_F(ClientTest, ReduceReachesOnlyTheRoot) {
  join_all();
  for (const Memory& memory : kMemories) {
    each([&](int rank) {
      GroupBuffer in(group(rank), memory.in_shared, kCount);
      GroupBuffer other(group(rank), memory.out_shared, kCount);
      GroupBuffer& out = memory.in_place ? in : other;
      in.fill(input(rank, kCount));
      ASSERT_EQ(tutti_reduce(group(rank), in.data(), rank == 2 ? out.data() : nullptr, kCount,
                             TUTTI_F32, TUTTI_SUM, 2, nullptr, nullptr),
                TUTTI_OK);
      if (rank == 2)
        for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(out.data()[i], summed(i));
      else
        EXPECT_EQ(in.values(), input(rank, kCount));
    });
  }
}

TEST_F(ClientTest, BroadcastInEitherMemory) {
  join_all();
  for (const bool shared : {false, true}) {
    each([&](int rank) {
      GroupBuffer x(group(rank), shared, kCount);
      x.fill(input(rank, kCount));
      ASSERT_EQ(tutti_broadcast(group(rank), x.data(), kCount, TUTTI_F32, 1, nullptr, nullptr),
                TUTTI_OK);
      EXPECT_EQ(x.values(), input(1, kCount));
    });
  }
}

TEST_F(ClientTest, AllGatherInEveryMemory) {
  join_all();
  for (const Memory& memory : kMemories) {
    each([&](int rank) {
      GroupBuffer separate(group(rank), memory.in_shared, kCount);
      GroupBuffer out(group(rank), memory.out_shared, kCount * kWorld);
      float* in = memory.in_place ? out.data() + size_t(rank) * kCount : separate.data();
      std::ranges::copy(input(rank, kCount), in);
      ASSERT_EQ(tutti_all_gather(group(rank), in, out.data(), kCount, TUTTI_F32, nullptr, nullptr),
                TUTTI_OK)
          << tutti_last_error()->message;
      for (int r = 0; r < kWorld; ++r)
        for (size_t i = 0; i < kCount; ++i)
          ASSERT_EQ(out.data()[size_t(r) * kCount + i], input(r, kCount)[i]);
    });
  }
}

TEST_F(ClientTest, ReduceScatterInEveryMemory) {
  join_all();
  for (const Memory& memory : kMemories) {
    each([&](int rank) {
      GroupBuffer in(group(rank), memory.in_shared, kCount * kWorld);
      GroupBuffer separate(group(rank), memory.out_shared, kCount);
      float* out = memory.in_place ? in.data() + size_t(rank) * kCount : separate.data();
      in.fill(input(rank, kCount * kWorld));
      ASSERT_EQ(tutti_reduce_scatter(group(rank), in.data(), out, kCount, TUTTI_F32, TUTTI_SUM,
                                     nullptr, nullptr),
                TUTTI_OK)
          << tutti_last_error()->message;
      for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(out[i], summed(size_t(rank) * kCount + i));
      if (!memory.in_place) {
        EXPECT_EQ(in.values(), input(rank, kCount * kWorld));
      }
    });
  }
}

// The root's own block may lie within the other side. Other ranks have no such side.
TEST_F(ClientTest, GatherAndScatterInEveryMemory) {
  join_all();
  constexpr int kRoot = 1;
  for (const Memory& memory : kMemories) {
    each([&](int rank) {
      const bool root = rank == kRoot;
      GroupBuffer own(group(rank), memory.in_shared, kCount);
      GroupBuffer all(group(rank), memory.out_shared, root ? kCount * kWorld : 0);
      const bool in_place = root && memory.in_place;
      float* part = in_place ? all.data() + size_t(rank) * kCount : own.data();
      std::ranges::copy(input(rank, kCount), part);
      ASSERT_EQ(tutti_gather(group(rank), part, root ? all.data() : nullptr, kCount, TUTTI_F32,
                             kRoot, nullptr, nullptr),
                TUTTI_OK)
          << tutti_last_error()->message;
      for (int r = 0; root && r < kWorld; ++r)
        for (size_t i = 0; i < kCount; ++i)
          ASSERT_EQ(all.data()[size_t(r) * kCount + i], input(r, kCount)[i]);
      for (size_t i = 0; !in_place && i < kCount; ++i) part[i] = -1;
      ASSERT_EQ(tutti_scatter(group(rank), root ? all.data() : nullptr, part, kCount, TUTTI_F32,
                              kRoot, nullptr, nullptr),
                TUTTI_OK)
          << tutti_last_error()->message;
      for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(part[i], input(rank, kCount)[i]);
    });
  }
}

TEST_F(ClientTest, AllToAllInEveryMemory) {
  join_all();
  for (const Memory& memory : kMemories) {
    each([&](int rank) {
      GroupBuffer in(group(rank), memory.in_shared, kCount * kWorld);
      GroupBuffer separate(group(rank), memory.out_shared, kCount * kWorld);
      in.fill(input(rank, kCount * kWorld));
      const bool shared = memory.in_shared && memory.in_place;
      float* out = memory.in_place ? in.data() : separate.data();
      const tutti_code code =
          tutti_all_to_all(group(rank), in.data(), out, kCount, TUTTI_F32, nullptr, nullptr);
      if (shared) {
        EXPECT_EQ(code, TUTTI_INVALID_ARGUMENT);
        EXPECT_THAT(tutti_last_error()->message, ::testing::HasSubstr("overlap"));
        return;
      }
      ASSERT_EQ(code, TUTTI_OK) << tutti_last_error()->message;
      for (int r = 0; r < kWorld; ++r)
        for (size_t i = 0; i < kCount; ++i)
          ASSERT_EQ(out[size_t(r) * kCount + i],
                    input(r, kCount * kWorld)[size_t(rank) * kCount + i]);
    });
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
    EXPECT_LT(took, Millis(300 + 2'500));  // Half a second of grace, and slack for a busy machine.
    EXPECT_THAT(tutti_last_error()->message,
                ::testing::HasSubstr("the agent at " + who +
                                     " did not answer rank 1 of job 'demo' in time"));
  }
}

}  // namespace
}  // namespace tutti
