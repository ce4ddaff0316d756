// Memory that an operation under way has: another one that would write it, or read what is written
// there, is refused and names both; all others run.
#include <gtest/gtest.h>

#include <span>
#include <thread>

#include "tests/process/board_fixture.h"

namespace tutti {
namespace {

using namespace testing;

constexpr size_t kCount = 300'000;

// Rank 0 makes its calls before the others make any, so that its operations are under way.
class InUseMesh : public ::testing::TestWithParam<std::vector<int>> {
 protected:
  std::string run(const std::function<void(Group&)>& first,
                  const std::function<void(Group&)>& others) {
    return mesh_.run("job", GetParam(), [&](const RankContext& context) {
      Group group = context.join();
      if (context.rank != 0) signals_.wait_for(0, 1);
      (context.rank == 0 ? first : others)(group);
      signals_[0] = 1;
      check_works(group);
    });
  }
  void let_others_go() const { signals_[0] = 1; }

  SharedCounters signals_;
  TestMesh mesh_{2};
};
INSTANTIATE_TEST_SUITE_P(Layouts, InUseMesh, ::testing::Values(std::vector{2}, std::vector{1, 1}));

struct Kind {
  bool shared;
  bool stay;
  size_t count;
};
// The last two are copied as a whole, and so are nowhere in use.
constexpr Kind kKinds[] = {{true, false, 4},      {true, false, kCount}, {false, true, 4},
                           {false, true, kCount}, {false, false, 4},     {false, false, kCount}};

tutti_options options_of(const Kind& kind) {
  tutti_options options = tutti_defaults();
  options.buffers_stay = kind.stay ? 1 : 0;
  return options;
}

Work start(Group& group, const float* in, float* out, const Kind& kind) {
  const tutti_options options = options_of(kind);
  tutti_work* work = nullptr;
  Error::check(
      tutti_all_reduce(group.get(), in, out, kind.count, TUTTI_F32, TUTTI_SUM, &options, &work));
  return Work(work);
}

void check_refused(tutti_code code, const std::string& words) {
  const std::string message = tutti_last_error()->message;
  check(code == TUTTI_INVALID_ARGUMENT, "code " + std::to_string(code));
  check(message.find(words) != std::string::npos, "'" + message + "' does not say " + words);
}

// For the other ranks, whose call rank 0 refused.
void check_refused_by_0(Group& group, float* x, size_t count) {
  const tutti_code code =
      tutti_all_reduce(group.get(), x, x, count, TUTTI_F32, TUTTI_SUM, nullptr, nullptr);
  check_refused(code, "wait for that first");
  check(tutti_last_error()->rank == 0, "rank 0 is to blame");
}

TEST_P(InUseMesh, WhatAnOperationWritesIsRefusedToOthers) {
  for (const Kind& kind : std::span(kKinds).first(4)) {
    signals_[0] = 0;
    EXPECT_EQ(
        run(
            [&](Group& group) {
              const Tensor memory(group, kind.count * sizeof(float), kind.shared);
              const Tensor other(group, kind.count * sizeof(float), kind.shared);
              auto* x = reinterpret_cast<float*>(memory.data());
              auto* y = reinterpret_cast<float*>(other.data());
              std::fill(x, x + kind.count, 1.0f);
              Work work = start(group, x, x, kind);
              const tutti_options options = options_of(kind);
              tutti_work* none = nullptr;
              check_refused(tutti_all_reduce(group.get(), x, x, kind.count, TUTTI_F32, TUTTI_SUM,
                                             &options, &none),
                            "all_reduce writes memory that all_reduce #0");
              const tutti_code reads = tutti_all_reduce(group.get(), x + kind.count - 1, y, 1,
                                                        TUTTI_F32, TUTTI_SUM, nullptr, nullptr);
              check_refused(reads, "all_reduce reads memory that all_reduce #0");
              const void* in = y;
              void* out = x;
              const tutti_code writes = tutti_all_reduce_many(
                  group.get(), &in, &out, &kind.count, 1, TUTTI_F32, TUTTI_SUM, nullptr, nullptr);
              check_refused(writes, "all_reduce writes memory that all_reduce #0");
              check(none == nullptr, "no work");
              let_others_go();
              work.wait();
              check_all({x, kind.count}, 2);
              Work again = start(group, x, x, kind);  // It is free now.
              again.wait();
              check_all({x, kind.count}, 3);
            },
            [&](Group& group) {
              std::vector<float> x(kind.count, 1.0f);
              group.all_reduce(std::span(x));
              check_refused_by_0(group, x.data(), kind.count);
              check_refused_by_0(group, x.data(), 1);
              check_refused_by_0(group, x.data(), kind.count);
              x.assign(kind.count, 1.0f);
              group.all_reduce(std::span(x));
            }),
        "");
  }
}

// One input for two operations at once; and, where it is copied, an output in its place.
TEST_P(InUseMesh, WhatOperationsOnlyReadIsFreeToRead) {
  for (const Kind& kind : kKinds) {
    signals_[0] = 0;
    EXPECT_EQ(run(
                  [&](Group& group) {
                    const size_t bytes = kind.count * sizeof(float);
                    const Tensor memory(group, bytes, kind.shared), a(group, bytes, kind.shared),
                        b(group, bytes, kind.shared);
                    auto* x = reinterpret_cast<float*>(memory.data());
                    std::fill(x, x + kind.count, 1.0f);
                    Work first = start(group, x, reinterpret_cast<float*>(a.data()), kind);
                    Work second = start(group, x, reinterpret_cast<float*>(b.data()), kind);
                    const bool is_copied = !kind.shared && !kind.stay;
                    if (is_copied) {
                      Work third = start(group, x, x, kind);
                      let_others_go();
                      third.wait();
                      check_all({x, kind.count}, 2);
                    } else {
                      const tutti_code code = tutti_all_reduce(
                          group.get(), x, x, kind.count, TUTTI_F32, TUTTI_SUM, nullptr, nullptr);
                      check_refused(code, "all_reduce writes memory that all_reduce #");
                      let_others_go();
                    }
                    second.wait();
                    first.wait();
                    check_all({reinterpret_cast<float*>(a.data()), kind.count}, 2);
                    check_all({reinterpret_cast<float*>(b.data()), kind.count}, 2);
                  },
                  [&](Group& group) {
                    std::vector<float> x(kind.count, 1.0f), y(kind.count);
                    group.all_reduce(std::span<const float>(x), std::span(y));
                    group.all_reduce(std::span<const float>(x), std::span(y));
                    if (kind.shared || kind.stay)
                      return check_refused_by_0(group, x.data(), kind.count);
                    group.all_reduce(std::span<const float>(x), std::span(y));
                  }),
              "");
  }
}

// Groups of a job, messages, and lists.
TEST_P(InUseMesh, OnAllGroupsAndByMessages) {
  EXPECT_EQ(
      run(
          [&](Group& group) {
            Group other = group.subgroup(std::vector<uint32_t>{0, 1});
            std::vector<float> x(kCount, 1.0f), y(4);
            const Kind kind{false, true, kCount};
            Work work = start(group, x.data(), x.data(), kind);
            check_refused(tutti_broadcast(other.get(), x.data(), 4, TUTTI_F32, 0, nullptr, nullptr),
                          "broadcast reads memory that all_reduce #0");
            check_refused(tutti_send(group.get(), x.data(), 4, TUTTI_F32, 1, 1, nullptr, nullptr),
                          "send reads memory that all_reduce #0");
            check_refused(tutti_recv(group.get(), x.data(), 4, TUTTI_F32, 1, 2, nullptr, nullptr),
                          "recv writes memory that all_reduce #0");
            let_others_go();
            work.wait();
            tutti_work* message = nullptr;
            Error::check(tutti_recv(group.get(), y.data(), 4, TUTTI_F32, 1, 0, nullptr, &message));
            Work received(message);
            check_refused(tutti_broadcast(group.get(), y.data(), 4, TUTTI_F32, 0, nullptr, nullptr),
                          "broadcast reads memory that recv");
            received.wait();
            check_all(y, 5);
            Error::check(tutti_broadcast(group.get(), y.data(), 4, TUTTI_F32, 0, nullptr, nullptr));
          },
          [&](Group& group) {
            Group other = group.subgroup(std::vector<uint32_t>{0, 1});
            std::vector<float> x(kCount, 1.0f), y(4, 5.0f);
            group.all_reduce(std::span(x));
            check_refused(tutti_broadcast(other.get(), x.data(), 4, TUTTI_F32, 0, nullptr, nullptr),
                          "wait for that first");
            check_refused(tutti_broadcast(group.get(), x.data(), 4, TUTTI_F32, 0, nullptr, nullptr),
                          "wait for that first");
            std::vector<float> none(4);
            check_refused(
                tutti_recv(group.get(), none.data(), 4, TUTTI_F32, 0, 1, nullptr, nullptr),
                "wait for that first");
            group.send(std::span<const float>(y), 0, 2);  // The call that it is for was refused.
            group.send(std::span<const float>(y), 0, 0);
            Error::check(tutti_broadcast(group.get(), x.data(), 4, TUTTI_F32, 0, nullptr, nullptr));
            check_all({x.data(), 4}, 5);
          }),
      "");
}

// Freed work: ordinary memory is free at once, shared memory once the operation has ended. That it
// has ended is enough, where nothing is copied.
TEST_P(InUseMesh, WorkThatIsFreedLeavesOrdinaryMemoryAlone) {
  const auto first = [&](Group& group) {
    std::vector<float> x(4, 1.0f);
    const std::span<float> y = group.alloc<float>(4), z = group.alloc<float>(4);
    std::ranges::fill(y, 1.0f);
    std::ranges::fill(z, 1.0f);
    static_cast<void>(start(group, x.data(), x.data(), {false, true, 4}));
    static_cast<void>(start(group, y.data(), y.data(), {true, false, 4}));
    Work held = start(group, z.data(), z.data(), {true, false, 4});
    check_refused(tutti_all_reduce(group.get(), y.data(), y.data(), 4, TUTTI_F32, TUTTI_SUM,
                                   nullptr, nullptr),
                  "memory that all_reduce #1");
    Work again = start(group, x.data(), x.data(), {false, true, 4});
    let_others_go();
    again.wait();
    check_all(x, 2);
    while (!held.done()) sched_yield();
    Work last = start(group, z.data(), z.data(), {true, false, 4});
    last.wait();
    check_all(z, 3);
  };
  const auto others = [&](Group& group) {
    std::vector<float> x(4, 1.0f);
    const auto reduce = [&] {
      std::ranges::fill(x, 1.0f);
      group.all_reduce(std::span(x));
    };
    for (int i = 0; i < 3; ++i) reduce();
    check_refused_by_0(group, x.data(), 4);
    for (int i = 0; i < 2; ++i) reduce();
  };
  EXPECT_EQ(run(first, others), "");
}

// A call that blocks on another thread counts, too. Rank 0 finds that by reductions on another
// group, in which the others take part until one is refused; they let the call go on then.
TEST_P(InUseMesh, ACallThatBlocksOnAnotherThreadHasItsMemory) {
  const auto first = [&](Group& group) {
    Group other = group.subgroup(std::vector<uint32_t>{0, 1});
    std::vector<float> x(kCount, 1.0f);
    let_others_go();
    std::thread beside([&] { group.all_reduce(std::span(x)); });
    tutti_code code = TUTTI_OK;
    while (code == TUTTI_OK) {
      tutti_work* work = nullptr;
      code =
          tutti_reduce(other.get(), x.data(), nullptr, 1, TUTTI_F32, TUTTI_SUM, 1, nullptr, &work);
      if (code == TUTTI_OK) Work(work).wait();
    }
    const std::string told = tutti_last_error()->message;
    beside.join();
    check(told.find("reduce reads memory that all_reduce") != std::string::npos, told);
    check_all(x, 2);
  };
  const auto others = [&](Group& group) {
    Group other = group.subgroup(std::vector<uint32_t>{0, 1});
    std::vector<float> x(kCount, 1.0f), y(1);
    tutti_code code = TUTTI_OK;
    while (code == TUTTI_OK)
      code = tutti_reduce(other.get(), y.data(), y.data(), 1, TUTTI_F32, TUTTI_SUM, 1, nullptr,
                          nullptr);
    check_refused(code, "wait for that first");
    group.all_reduce(std::span(x));
    check_all(x, 2);
  };
  EXPECT_EQ(run(first, others), "");
}

}  // namespace
}  // namespace tutti
