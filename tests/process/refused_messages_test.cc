// Messages of which one side is refused: the other side's call is for that message all the same,
// and the next call for the next one.
#include <gtest/gtest.h>
#include <poll.h>

#include "tests/process/messages_fixture.h"

namespace tutti {
namespace {

using namespace testing;

using RefusedMessages = Messages;

INSTANTIATE_TEST_SUITE_P(OneAndTwoHosts, RefusedMessages,
                         ::testing::Values(std::vector{3, 0}, std::vector{2, 1},
                                           std::vector{1, 2}));

TEST_P(RefusedMessages, RefusedSendsFailTheirReceives) {
  EXPECT_EQ(run([](const RankContext& context) {
              Group group = context.join();
              const auto invalid = TUTTI_INVALID_ARGUMENT;
              tutti_group* g = group.get();
              const uint64_t tag = 3;
              uint8_t byte = 0;
              if (context.rank == 0) {
                expect_code(tutti_send(g, nullptr, 1, TUTTI_U8, 1, tag, nullptr, nullptr), invalid,
                            "the buffer is NULL");
                expect_code(tutti_refuse_send(g, 1, &tag, invalid, "why"), invalid, "why");
                expect_code(tutti_refuse_send(g, 1, nullptr, TUTTI_OK, nullptr), TUTTI_UNKNOWN,
                            "the call was refused");
                send_bytes(group, pattern(9'000'000, 1), 1, tag);
              } else if (context.rank == 1) {
                for (const char* words : {"rank 0 (host", "refused to send it: why"}) {
                  expect_code(tutti_recv(g, &byte, 1, TUTTI_U8, 0, tag, nullptr, nullptr), invalid,
                              words);
                  check(tutti_last_error()->rank == 0, "rank 0 is to blame");
                }
                expect_code(tutti_recv(g, &byte, 1, TUTTI_U8, TUTTI_ANY_RANK, 7, nullptr, nullptr),
                            TUTTI_UNKNOWN, "refused");
                check(recv_bytes(group, 9'000'000, 0, tag) == pattern(9'000'000, 1), "the next");
              }
              group.barrier();
            }),
            "");
}

TEST_P(RefusedMessages, RefusedReceivesLoseTheirMessages) {
  EXPECT_EQ(run([](const RankContext& context) {
              Group group = context.join();
              const auto invalid = TUTTI_INVALID_ARGUMENT;
              tutti_group* g = group.get();
              const uint64_t tag = 3;
              if (context.rank == 0) {
                for (const size_t size : {10u, 9'000'000u, 20u, 30u})
                  send_bytes(group, pattern(size, 1), 1, tag);
              } else if (context.rank == 1) {
                expect_code(tutti_recv(g, nullptr, 1, TUTTI_U8, 0, tag, nullptr, nullptr), invalid,
                            "the buffer is NULL");
                expect_code(tutti_refuse_recv(g, TUTTI_ANY_RANK, &tag, invalid, "why"), invalid,
                            "why");
                expect_code(tutti_refuse_recv(g, 0, nullptr, invalid, "why"), invalid, "why");
                expect_code(tutti_refuse_recv(g, 3, nullptr, invalid, "why"), invalid,
                            "source 3 is no rank");
                check(recv_bytes(group, 30, 0, tag) == pattern(30, 1), "the next message");
              }
              group.barrier();
            }),
            "");
}

// However late the message comes.
TEST_P(RefusedMessages, ARefusedReceiveIsForItsMessageAlone) {
  constexpr int kJoinTimeoutMs = 5'000;
  EXPECT_EQ(run([&](const RankContext& context) {
              Group group = context.join(kJoinTimeoutMs);
              const uint64_t tag = 3;
              if (context.rank == 1)
                expect_code(tutti_refuse_recv(group.get(), 0, &tag, TUTTI_INVALID_ARGUMENT, "why"),
                            TUTTI_INVALID_ARGUMENT, "why");
              group.barrier();
              poll(nullptr, 0, kJoinTimeoutMs + 1'000);
              if (context.rank == 0)
                for (const int seed : {1, 2}) send_bytes(group, pattern(10, seed), 1, tag);
              if (context.rank == 1)
                check(recv_bytes(group, 10, 0, tag) == pattern(10, 2), "the second message");
              group.barrier();
            }),
            "");
}

std::string run_with_small_segments(const std::vector<int>& ranks, const Trainer::Body& body) {
  TestMesh mesh(LocalMeshOptions{.hosts = 2, .agent_flags = {"--segment-bytes=8388608"}});
  return mesh.run("job", ranks, body);
}

// Takes all of the rank's segment.
std::vector<void*> fill_segment(Group& group) {
  std::vector<void*> blocks;
  for (size_t bytes = size_t{8} << 20; bytes != 0; bytes /= 2)
    while (void* block = tutti_alloc(group.get(), bytes)) blocks.push_back(block);
  return blocks;
}

// What the segment has no room for is refused, and the receiver's call gets no other message.
TEST_P(RefusedMessages, ASendWithoutRoomFailsItsReceive) {
  EXPECT_EQ(run_with_small_segments(
                GetParam(),
                [](const RankContext& context) {
                  Group group = context.join();
                  if (context.rank == 0) {
                    const std::vector<void*> blocks = fill_segment(group);
                    const std::vector<uint8_t> first = pattern(10, 1);
                    tutti_work* work = nullptr;
                    expect_code(tutti_send(group.get(), first.data(), first.size(), TUTTI_U8, 1, 3,
                                           nullptr, &work),
                                TUTTI_RESOURCE_EXHAUSTED, "segment");
                    for (void* block : blocks) tutti_free(group.get(), block);
                    send_bytes(group, pattern(10, 2), 1, 3);
                  } else if (context.rank == 1) {
                    uint8_t byte[10];
                    expect_code(tutti_recv(group.get(), byte, 10, TUTTI_U8, 0, 3, nullptr, nullptr),
                                TUTTI_RESOURCE_EXHAUSTED, "refused to send it");
                    check(recv_bytes(group, 10, 0, 3) == pattern(10, 2), "the second message");
                  }
                  group.barrier();
                }),
            "");
}

TEST_P(RefusedMessages, AReceiveWithoutRoomLosesItsMessage) {
  EXPECT_EQ(run_with_small_segments(
                GetParam(),
                [](const RankContext& context) {
                  Group group = context.join();
                  if (context.rank == 1) {
                    const std::vector<void*> blocks = fill_segment(group);
                    uint8_t byte = 0;
                    expect_code(tutti_recv(group.get(), &byte, 1, TUTTI_U8, 0, 3, nullptr, nullptr),
                                TUTTI_RESOURCE_EXHAUSTED, "segment");
                    for (void* block : blocks) tutti_free(group.get(), block);
                    check(recv_bytes(group, 10, 0, 3) == pattern(10, 2), "the second message");
                  } else if (context.rank == 0) {
                    for (const int seed : {1, 2}) send_bytes(group, pattern(10, seed), 1, 3);
                  }
                  group.barrier();
                }),
            "");
}

}  // namespace
}  // namespace tutti
