// Offers of memory, as a trainer writes them: what the board hands on, and what it refuses.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/session/trainer.h"

namespace tutti {
namespace {

using testing::HasSubstr;

constexpr uint64_t kRecord = kArenaOffset;

class OfferTest : public ::testing::Test {
 protected:
  // Sends new descriptors with a byte, and returns them.
  std::vector<Fd> send_descriptors(size_t count) {
    std::vector<Fd> owned;
    std::vector<int> raw;
    for (size_t i = 0; i < count; ++i) {
      owned.emplace_back(memfd_create("chunk", MFD_CLOEXEC));
      raw.push_back(owned.back().get());
    }
    char byte = 0;
    iovec part = {&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(16 * sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(count * sizeof(int));
    std::memcpy(CMSG_DATA(header), raw.data(), count * sizeof(int));
    EXPECT_EQ(sendmsg(served.trainer.socket(), &message, 0), 1);
    return owned;
  }

  // Writes the offer and asks; the answer, or OK where it was handed on.
  Status ask(const MemoryOffer& offer, const std::vector<uint64_t>& chunk_bytes = {},
             uint64_t offset = kRecord) {
    std::memcpy(served.trainer.at(kRecord), &offer, sizeof(offer));
    std::memcpy(served.trainer.at(kRecord + sizeof(offer)), chunk_bytes.data(),
                chunk_bytes.size() * sizeof(uint64_t));
    BoardOffer& board = served.trainer.view().offer(0);
    board.offer_offset = offset;
    board.state = static_cast<uint32_t>(SubgroupRequestState::asked);
    const size_t before = served.events.offers.size();
    const auto is_answered = [&] {
      return board.state.load() == static_cast<uint32_t>(SubgroupRequestState::answered);
    };
    served.trainer.ring();
    EXPECT_TRUE(
        await(loop, [&] { return is_answered() || served.events.offers.size() != before; }));
    if (!is_answered()) served.board->answer_offer(1, Status());
    return {code_of(board.failure.code), board.failure.message};
  }

  static MemoryOffer chunks(uint32_t count, uint64_t bytes) {
    MemoryOffer offer{};
    offer.kind = static_cast<uint32_t>(OfferKind::chunks);
    offer.number = 1;
    offer.chunks = count;
    offer.bytes = bytes;
    return offer;
  }

  static bool is_same_file(int a, int b) {
    struct stat of_a {
    }, of_b{};
    return fstat(a, &of_a) == 0 && fstat(b, &of_b) == 0 && of_a.st_ino == of_b.st_ino;
  }

  Loop loop;
  Served served{loop};
};

TEST_F(OfferTest, ChunksComeWithTheirDescriptorsInOrder) {
  const std::vector<Fd> sent = send_descriptors(2);
  EXPECT_EQ(ask(chunks(2, 300), {100, 200}).to_string(), "OK");
  ASSERT_EQ(served.events.offers.size(), 1u);
  const OfferedMemory& offer = served.events.offers[0];
  EXPECT_EQ(offer.chunk_bytes, (std::vector<uint64_t>{100, 200}));
  ASSERT_EQ(offer.descriptors.size(), 2u);
  for (size_t i = 0; i < 2; ++i)
    EXPECT_TRUE(is_same_file(offer.descriptors[i].get(), sent[i].get()));
}

// Descriptors of an offer that was refused must not be taken for those of the next one.
TEST_F(OfferTest, DescriptorsOfARefusedOfferServeNoOther) {
  const std::vector<Fd> lost = send_descriptors(3);
  EXPECT_THAT(ask(chunks(5, 5), {1, 1, 1, 1, 1}).message(),
              HasSubstr("an offer of 5 chunks came with 3 descriptors"));
  const std::vector<Fd> sent = send_descriptors(2);
  EXPECT_EQ(ask(chunks(2, 2), {1, 1}).to_string(), "OK");
  ASSERT_EQ(served.events.offers.size(), 1u);
  EXPECT_TRUE(is_same_file(served.events.offers[0].descriptors[0].get(), sent[0].get()));
  send_descriptors(3);
  EXPECT_THAT(ask(chunks(2, 2), {1, 1}).message(), HasSubstr("came with 3 descriptors"));
}

TEST_F(OfferTest, WhatIsNoOfferIsRefused) {
  const MemoryOffer ipc{};
  const uint64_t end = served.trainer.bytes();
  for (const uint64_t offset : {uint64_t{0}, kRecord + 1, end - 8, end, ~uint64_t{0}})
    EXPECT_THAT(ask(ipc, {}, offset).message(), HasSubstr("lies outside the segment")) << offset;
  MemoryOffer unknown{};
  unknown.kind = 77;
  EXPECT_THAT(ask(unknown).message(), HasSubstr("unknown kind of offer 77"));
  for (const uint32_t count : {0u, kOfferedChunksMax + 1, ~0u})
    EXPECT_THAT(ask(chunks(count, 1)).message(), HasSubstr("an offer has from 1 to"));
  send_descriptors(2);
  EXPECT_THAT(ask(chunks(2, 301), {100, 200}).message(), HasSubstr("smaller than the memory"));
  send_descriptors(2);
  EXPECT_THAT(ask(chunks(2, 1), {~uint64_t{0}, 2}).message(), HasSubstr("too large"));
  MemoryOffer pinned{};
  for (const auto& [offset, bytes] : std::vector<std::pair<uint64_t, uint64_t>>{
           {kRecord, 0}, {kRecord + 8, 4096}, {kRecord, 100}, {end, 4096}, {0, 4096}}) {
    pinned.offset = offset;
    pinned.bytes = bytes;
    for (const OfferKind kind : {OfferKind::words, OfferKind::staging}) {
      pinned.kind = static_cast<uint32_t>(kind);
      EXPECT_THAT(ask(pinned).message(), HasSubstr("the segment is offered in whole pages"))
          << offset;
    }
  }
  EXPECT_TRUE(served.events.offers.empty());
  EXPECT_EQ(served.events.ends, 0);
  EXPECT_EQ(ask(ipc).to_string(), "OK");
}

TEST_F(OfferTest, BytesWithoutDescriptorsEndTheSession) {
  EXPECT_EQ(write(served.trainer.socket(), "x", 1), 1);
  ASSERT_TRUE(await(loop, [&] { return served.events.ends > 0; }));
  EXPECT_THAT(served.events.why.message(), HasSubstr("broke the protocol"));
}

}  // namespace
}  // namespace tutti
