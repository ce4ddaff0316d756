// Messages between two ranks, with real agents, workers and processes, on one host and over
// several.
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>

#include "tests/process/messages_fixture.h"

namespace tutti {
namespace {

using namespace testing;

// Sizes in bytes around what one broadcast and one part carry.
constexpr size_t kSizes[] = {0, 1, 100, 4071, 4072, 4073, 5000, 100'000, (4 << 20) - 1, 9'000'001};

INSTANTIATE_TEST_SUITE_P(OneAndTwoHosts, Messages,
                         ::testing::Values(std::vector{3, 0}, std::vector{2, 1},
                                           std::vector{1, 2}));

// Around the ring, blocking: rank 0 sends first.
TEST_P(Messages, OfEverySizeArriveUnchanged) {
  EXPECT_EQ(run([](const RankContext& context) {
              Group group = context.join();
              const int next = (context.rank + 1) % 3;
              const int before = (context.rank + 2) % 3;
              for (int round = 0; round < 3; ++round)
                for (const size_t size : kSizes) {
                  const auto mine = pattern(size, context.rank + round);
                  if (context.rank == 0) send_bytes(group, mine, next);
                  check(recv_bytes(group, size, before) == pattern(size, before + round),
                        std::to_string(size) + " bytes");
                  if (context.rank != 0) send_bytes(group, mine, next);
                }
            }),
            "");
}

// All ranks to all, without waiting, and in another order than they are received.
TEST_P(Messages, ThatAreNotWaitedForCross) {
  EXPECT_EQ(run([](const RankContext& context) {
              Group group = context.join();
              for (const size_t size : kSizes) {
                std::deque<std::vector<uint8_t>> sent;
                std::vector<Work> sends;
                for (int to = 0; to < 3; ++to)
                  if (to != context.rank) {
                    sent.push_back(pattern(size, 10 * context.rank + to));
                    sends.push_back(start_send(group, sent.back(), to));
                  }
                for (Work& work : sends)
                  if (context.rank == 2) work.done();
                for (int from = 2; from >= 0; --from)
                  if (from != context.rank)
                    check(recv_bytes(group, size, from) == pattern(size, 10 * from + context.rank),
                          std::to_string(size) + " bytes");
                for (Work& work : sends) work.wait();
              }
            }),
            "");
}

// Every rank waits for its sends before its receives, which were started earlier.
TEST_P(Messages, AReceiveUnderWayNeedsNobodyWhoWaitsForIt) {
  EXPECT_EQ(run([](const RankContext& context) {
              Group group = context.join();
              for (const size_t size : {10u, 6'000'000u}) {
                const int other = context.rank == 0 ? 1 : 0;
                if (context.rank == 2) {
                  group.barrier();
                  continue;
                }
                Incoming incoming(group, size, other);
                send_bytes(group, pattern(size, context.rank), other);
                group.barrier();
                check(incoming.wait() == other, "the source");
                check(incoming.bytes == pattern(size, other), "the message");
              }
            }),
            "");
}

TEST_P(Messages, TagsAreMatchedInAnyOrder) {
  EXPECT_EQ(run([](const RankContext& context) {
              Group group = context.join();
              constexpr uint64_t kTags[] = {5, 0, UINT64_MAX, 7, 5};
              for (const size_t size : {100u, 50'000u}) {
                if (context.rank == 2) {
                  std::deque<std::vector<uint8_t>> sent;
                  std::vector<Work> works;
                  for (int i = 0; i < 5; ++i) {
                    sent.push_back(pattern(size, i));
                    works.push_back(start_send(group, sent.back(), 0, kTags[i]));
                  }
                  for (Work& work : works) work.wait();
                }
                if (context.rank != 0) continue;
                for (const int i : {3, 0, 2, 4, 1})  // Of tag 5 the first, then the second.
                  check(recv_bytes(group, size, 2, kTags[i]) == pattern(size, i),
                        "message " + std::to_string(i));
              }
            }),
            "");
}

TEST_P(Messages, FromAnyRank) {
  EXPECT_EQ(run([](const RankContext& context) {
              Group group = context.join();
              for (int round = 0; round < 20; ++round) {
                const size_t size = round % 2 == 0 ? 40 : 200'000;
                const auto tag = static_cast<uint64_t>(round);
                if (context.rank != 1) {
                  send_bytes(group, pattern(size, context.rank), 1, tag);
                  continue;
                }
                std::set<int> sources;
                for (int i = 0; i < 2; ++i) {
                  Incoming incoming(group, size, TUTTI_ANY_RANK, tag);
                  const int from = incoming.wait();
                  check(incoming.bytes == pattern(size, from), "the message of that rank");
                  sources.insert(from);
                }
                check(sources == std::set{0, 2}, "one of each");
                if (round == 10) {
                  std::vector<uint8_t> late(1);
                  tutti_options soon = tutti_defaults();
                  soon.timeout_ms = 50;
                  check(tutti_recv(group.get(), late.data(), 1, TUTTI_U8, TUTTI_ANY_RANK, 99, &soon,
                                   nullptr) == TUTTI_DEADLINE_EXCEEDED,
                        "nobody sends this");
                }
              }
              group.barrier();
            }),
            "");
}

TEST_P(Messages, OfSubgroupsAreApart) {
  EXPECT_EQ(run([](const RankContext& context) {
              Group group = context.join();
              Group reversed = group.subgroup(std::vector<uint32_t>{2, 1, 0});
              if (context.rank == 0) {
                const auto in_group = pattern(10, 1), in_reversed = pattern(10, 2);
                Work one = start_send(group, in_group, 2);
                Work two = start_send(reversed, in_reversed, 0);
                one.wait();
                two.wait();
              }
              if (context.rank == 2) {
                check(recv_bytes(reversed, 10, 2) == pattern(10, 2), "of the sub-group");
                check(recv_bytes(group, 10, 0) == pattern(10, 1), "of the job");
              }
              group.barrier();
            }),
            "");
}

TEST_P(Messages, ThousandsInARowBesideCollectives) {
  EXPECT_EQ(run([](const RankContext& context) {
              Group group = context.join();
              const int other = context.rank == 0 ? 2 : 0;
              for (int i = 0; i < 3000 && context.rank != 1; ++i) {
                if (context.rank == 0) send_bytes(group, {static_cast<uint8_t>(i)}, other);
                check(recv_bytes(group, 1, other).front() == static_cast<uint8_t>(i), "in order");
                if (context.rank == 2) send_bytes(group, {static_cast<uint8_t>(i)}, other);
              }
              for (int i = 0; i < 5; ++i) check_works(group);
            }),
            "");
}

TEST_P(Messages, FromSeveralThreads) {
  EXPECT_EQ(run([](const RankContext& context) {
              Group group = context.join();
              if (context.rank == 2) return group.barrier();
              std::vector<std::thread> threads;
              std::atomic<int> faults = 0;
              for (uint64_t tag = 0; tag < 3; ++tag)
                threads.emplace_back([&, tag] {
                  try {
                    for (int i = 0; i < 200; ++i) {
                      const size_t size = i % 10 == 0 ? 30'000 : 8;
                      const auto want = pattern(size, i + static_cast<int>(tag));
                      if (context.rank == 0)
                        send_bytes(group, want, 1, tag);
                      else
                        faults += recv_bytes(group, size, 0, tag) != want;
                    }
                  } catch (const Error&) {
                    ++faults;
                  }
                });
              for (std::thread& thread : threads) thread.join();
              check(faults == 0, "every message arrives");
              group.barrier();
            }),
            "");
}

// ---- Failures ----

TEST_P(Messages, OfAnotherShapeAreNamed) {
  EXPECT_EQ(run([](const RankContext& context) {
              Group group = context.join();
              for (const size_t size : {10u, 100'000u, 13'000'000u}) {
                if (context.rank == 0) {
                  send_bytes(group, pattern(size, 0), 1);
                  send_bytes(group, pattern(size, 1), 1);
                }
                if (context.rank != 1) continue;
                std::vector<float> x(5);
                expect_code(tutti_recv(group.get(), x.data(), 5, TUTTI_F32, 0, 0, nullptr, nullptr),
                            TUTTI_FAILED_PRECONDITION,
                            "recv f32[5] from rank 0 (tag 0): the message is u8[" +
                                std::to_string(size) + "]");
                check(recv_bytes(group, size, 0) == pattern(size, 1), "the next message");
              }
              check_works(group);
            }),
            "");
}

TEST_P(Messages, ThatNobodySendsOrReceivesInTime) {
  EXPECT_EQ(run([](const RankContext& context) {
              Group group = context.join();
              tutti_options soon = tutti_defaults();
              soon.timeout_ms = 200;
              uint8_t byte = 1;
              if (context.rank == 0) {
                expect_code(tutti_recv(group.get(), &byte, 1, TUTTI_U8, 2, 9, &soon, nullptr),
                            TUTTI_DEADLINE_EXCEEDED,
                            "recv u8[1] from rank 2 (tag 9): rank 2 (host");
                check(tutti_last_error()->rank == 2, "rank 2 is to blame");
                expect_code(tutti_send(group.get(), &byte, 1, TUTTI_U8, 1, 4, &soon, nullptr),
                            TUTTI_DEADLINE_EXCEEDED, "send to rank 1 (tag 4): ");
                check(tutti_last_error()->rank == 1, "rank 1 is to blame");
              }
              group.barrier();
              // The next message comes all the same.
              if (context.rank == 2) send_bytes(group, {7}, 0, 9);
              if (context.rank == 0) check(recv_bytes(group, 1, 2, 9).front() == 7, "a later one");
              group.barrier();
            }),
            "");
}

// The lost message fails no receive: neither of another tag nor from any rank.
TEST_P(Messages, AfterOneThatNobodyTookOthersArrive) {
  EXPECT_EQ(run([](const RankContext& context) {
              Group group = context.join();
              tutti_options soon = tutti_defaults();
              soon.timeout_ms = 200;
              for (const size_t size : {1u, 9'000'001u}) {
                const auto lost = pattern(size, 5);
                if (context.rank == 0) {
                  expect_code(
                      tutti_send(group.get(), lost.data(), size, TUTTI_U8, 1, 4, &soon, nullptr),
                      TUTTI_DEADLINE_EXCEEDED, "send to rank 1 (tag 4): ");
                  group.barrier();
                  send_bytes(group, pattern(size, 6), 1, 8);
                  send_bytes(group, pattern(size, 7), 1, 8);
                } else {
                  group.barrier();
                }
                if (context.rank == 1) {
                  check(recv_bytes(group, size, 0, 8) == pattern(size, 6), "the next");
                  check(recv_bytes(group, size, TUTTI_ANY_RANK, 8) == pattern(size, 7), "any");
                }
              }
              check_works(group);
            }),
            "");
}

// A sender that is many messages ahead of a receiver, which then waits for one that never comes.
TEST_P(Messages, ASenderThatDoesNotCallAnyMoreDelaysNoDeadline) {
  EXPECT_EQ(run([this](const RankContext& context) {
              Group group = context.join();
              if (context.rank == 0) {
                for (int i = 0; i < 256; ++i) {
                  const std::vector<uint8_t> byte = {static_cast<uint8_t>(i)};
                  start_send(group, byte, 1);
                }
                signals_.wait_for(GetParam()[0], 1);
              }
              if (context.rank == 1) {
                for (int i = 0; i < 256; ++i)
                  check(recv_bytes(group, 1, 0).front() == static_cast<uint8_t>(i), "in order");
                tutti_options soon = tutti_defaults();
                soon.timeout_ms = 300;
                uint8_t byte = 0;
                expect_code(tutti_recv(group.get(), &byte, 1, TUTTI_U8, 0, 0, &soon, nullptr),
                            TUTTI_DEADLINE_EXCEEDED, "no such message within 300 ms");
                signals_[GetParam()[0]] = 1;
              }
              check_works(group);
            }),
            "");
}

TEST_P(Messages, OnlyTheTimeoutOfTheOptionsIsUsed) {
  EXPECT_EQ(run([](const RankContext& context) {
              Group group = context.join();
              tutti_options options = tutti_defaults();
              options.strategy = context.rank == 0 ? "ring" : "no strategy";
              options.factor = 7;
              std::vector<uint8_t> bytes = pattern(5000, 1);
              if (context.rank == 0)
                Error::check(
                    tutti_send(group.get(), bytes.data(), 5000, TUTTI_U8, 1, 0, &options, nullptr));
              if (context.rank == 1) {
                std::vector<uint8_t> got(5000);
                Error::check(
                    tutti_recv(group.get(), got.data(), 5000, TUTTI_U8, 0, 0, &options, nullptr));
                check(got == bytes, "the message");
              }
              check_works(group);
            }),
            "");
}

TEST_P(Messages, BuffersThatExceedTheirBlockAreRefused) {
  EXPECT_EQ(run([](const RankContext& context) {
              Group group = context.join();
              std::span<uint8_t> block = group.alloc<uint8_t>(64);
              std::span<uint8_t> next = group.alloc<uint8_t>(64);
              std::ranges::fill(next, uint8_t{1});
              const int other = (context.rank + 1) % 3;
              for (const size_t size : {1000u, 9'000'000u}) {
                expect_code(tutti_send(group.get(), block.data(), size, TUTTI_U8, other, 5, nullptr,
                                       nullptr),
                            TUTTI_INVALID_ARGUMENT, "the buffer");
                expect_code(tutti_recv(group.get(), block.data(), size, TUTTI_U8, other, 6, nullptr,
                                       nullptr),
                            TUTTI_INVALID_ARGUMENT, "the buffer");
              }
              group.barrier();
              if (context.rank == 0) send_bytes(group, pattern(10, 1), 1);
              if (context.rank == 1) check(recv_bytes(group, 10, 0) == pattern(10, 1), "the first");
              for (const uint8_t byte : next) check(byte == 1, "the next block");
              group.barrier();
            }),
            "");
}

// Of 2^42 bytes, which no receiver can keep, nor was asked to.
TEST_P(Messages, AMessageThatNobodyCanKeepIsLostAlone) {
  EXPECT_EQ(
      run([](const RankContext& context) {
        Group group = context.join();
        tutti_options soon = tutti_defaults();
        soon.timeout_ms = 300;
        if (context.rank == 0) {
          const size_t huge = size_t{1} << 42;
          void* memory =
              mmap(nullptr, huge, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
          check(memory != MAP_FAILED, "address space");
          check(tutti_send(group.get(), memory, huge, TUTTI_U8, 1, 1, &soon, nullptr) != TUTTI_OK,
                "nobody takes it");
        }
        if (context.rank == 2) send_bytes(group, pattern(10, 2), 1);
        if (context.rank == 1) {
          check(recv_bytes(group, 10, 2) == pattern(10, 2), "of an innocent");
          uint8_t byte = 0;
          expect_code(tutti_recv(group.get(), &byte, 1, TUTTI_U8, 0, 2, &soon, nullptr),
                      TUTTI_DEADLINE_EXCEEDED, "no such message within 300 ms");
        }
        group.barrier();
      }),
      "");
}

TEST_P(Messages, ThreadsThatSendToOneRankKeepTheirDeadlines) {
  EXPECT_EQ(run([](const RankContext& context) {
              Group group = context.join();
              if (context.rank == 0) {
                const auto slow = pattern(5'000'000, 0);
                const auto send = [&](int timeout_ms) {
                  tutti_options options = tutti_defaults();
                  options.timeout_ms = timeout_ms;
                  return tutti_send(group.get(), slow.data(), slow.size(), TUTTI_U8, 1, 0, &options,
                                    nullptr);
                };
                std::atomic<bool> begun = false, ended = false;
                std::thread first([&] {
                  begun = true;
                  send(6000);
                  ended = true;
                });
                while (!begun) std::this_thread::yield();
                // Had the one waited for the first, the first would have ended during the other.
                for (int i = 0; i < 2; ++i)
                  check(send(300) == TUTTI_DEADLINE_EXCEEDED, tutti_last_error()->message);
                check(!ended, "in time");
                first.join();
              }
              group.barrier();
            }),
            "");
}

TEST_P(Messages, ARankThatDiesIsNamed) {
  std::vector<Trainer> trainers = mesh_.start("job", GetParam(), [](const RankContext& context) {
    Group group = context.join();
    group.barrier();
    if (context.rank == 2) {
      write_line("dies");
      for (;;) pause();
    }
    uint8_t byte = 0;
    const bool any = context.rank == 1;
    const tutti_code code =
        tutti_recv(group.get(), &byte, 1, TUTTI_U8, any ? TUTTI_ANY_RANK : 2, 0, nullptr, nullptr);
    expect_code(code, TUTTI_UNAVAILABLE, "rank 2 (host");
    check(tutti_last_error()->rank == 2, "rank 2 is to blame");
  });
  EXPECT_EQ(trainers[2].read_line(), "dies");
  trainers[2].kill(SIGKILL);
  EXPECT_EQ(trainers[0].wait(), "");
  EXPECT_EQ(trainers[1].wait(), "");
}

// A rank that leaves on purpose ends a receive from any rank only if no other can send.
TEST_P(Messages, RanksThatLeaveDoNotEndAReceiveFromOthers) {
  EXPECT_EQ(run([](const RankContext& context) {
              Group group = context.join();
              group.barrier();
              if (context.rank == 1) return;
              if (context.rank == 2) {
                uint8_t byte = 0;
                expect_code(tutti_recv(group.get(), &byte, 1, TUTTI_U8, 1, 0, nullptr, nullptr),
                            TUTTI_UNAVAILABLE, "left during");
                return send_bytes(group, {3}, 0);
              }
              Incoming incoming(group, 1, TUTTI_ANY_RANK);
              check(incoming.wait() == 2 && incoming.bytes[0] == 3, "the message of rank 2");
              uint8_t byte = 0;
              for (int i = 0; i < 3; ++i)
                expect_code(tutti_recv(group.get(), &byte, 1, TUTTI_U8, TUTTI_ANY_RANK, 0, nullptr,
                                       nullptr),
                            TUTTI_UNAVAILABLE, "left during");
            }),
            "");
}

TEST_P(Messages, WrongCallsAreRefusedAtOnce) {
  EXPECT_EQ(run([](const RankContext& context) {
              Group group = context.join();
              const auto invalid = TUTTI_INVALID_ARGUMENT;
              tutti_group* g = group.get();
              uint8_t byte = 0;
              const auto send = [&](const void* in, size_t count, tutti_dtype dtype, int to) {
                return tutti_send(g, in, count, dtype, to, 0, nullptr, nullptr);
              };
              expect_code(send(&byte, 1, TUTTI_U8, 3), invalid, "destination 3 is no rank of");
              expect_code(send(&byte, 1, TUTTI_U8, -1), invalid, "destination -1 is no rank of");
              expect_code(send(&byte, 1, TUTTI_U8, context.rank), invalid, "this rank itself");
              const int other = (context.rank + 1) % 3;
              expect_code(send(nullptr, 1, TUTTI_U8, other), invalid, "the buffer is NULL");
              expect_code(send(&byte, SIZE_MAX, TUTTI_F64, other), invalid, "any memory holds");
              expect_code(send(&byte, 1, static_cast<tutti_dtype>(99), other), invalid,
                          "unknown dtype 99");
              expect_code(tutti_recv(g, &byte, 1, TUTTI_U8, -2, 0, nullptr, nullptr), invalid,
                          "source -2 is no rank of");
              check_works(group);
            }),
            "");
}

TEST_P(Messages, AbandonedReceivesLeaveMessagesToOthers) {
  EXPECT_EQ(run([](const RankContext& context) {
              Group group = context.join();
              if (context.rank == 0) {
                { Incoming never(group, 10, 1); }
                group.barrier();
                check(recv_bytes(group, 10, 1) == pattern(10, 1), "the message");
                { Incoming never(group, 10, 1, 5); }
              } else {
                group.barrier();
              }
              if (context.rank == 1) send_bytes(group, pattern(10, 1), 0);
              group.barrier();
            }),
            "");
}

}  // namespace
}  // namespace tutti
