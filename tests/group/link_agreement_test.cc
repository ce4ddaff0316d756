// All hosts come to use NCCL, or none; and from one operation on, the same on all.
#include "daemon/group/link_agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/group/agreement.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;
using Next = LinkAgreement::Next;

class LinkAgreementTest : public ::testing::Test {
 protected:
  // Up to where all hosts are asked to begin.
  void begin() {
    EXPECT_EQ(*agreement_.on_offer(1, {{}, 22304}), Next::nothing);
    EXPECT_EQ(*agreement_.on_offer(0, {{}, 22304}), Next::nothing);
    EXPECT_EQ(*agreement_.on_offer(2, {{}, 22304}), Next::make_id);
    EXPECT_EQ(agreement_.on_id({}), Next::begin);
  }
  LinkAgreement agreement_{{"a", "b", "c"}};
};

TEST_F(LinkAgreementTest, ItIsAdoptedOnceAllHostsHaveMadeIt) {
  begin();
  EXPECT_EQ(*agreement_.on_made(2, {}), Next::nothing);
  EXPECT_EQ(*agreement_.on_made(0, {}), Next::nothing);
  EXPECT_EQ(*agreement_.on_made(1, {}), Next::adopt);
}

TEST_F(LinkAgreementTest, OneThatCannotIsNamedToAll) {
  EXPECT_EQ(*agreement_.on_offer(0, {{}, 22304}), Next::nothing);
  EXPECT_EQ(*agreement_.on_offer(1, {unavailable("there is no NCCL"), 0}), Next::refuse);
  EXPECT_EQ(agreement_.why(), "host b: there is no NCCL");
  EXPECT_EQ(*agreement_.on_offer(2, {{}, 22304}), Next::nothing);
}

TEST_F(LinkAgreementTest, VersionsThatDifferAreNamed) {
  EXPECT_EQ(*agreement_.on_offer(0, {{}, 22304}), Next::nothing);
  EXPECT_EQ(*agreement_.on_offer(2, {{}, 21803}), Next::refuse);
  EXPECT_EQ(agreement_.why(),
            "host a has NCCL 2.23.4, host c 2.18.3; install the same on all hosts");
}

TEST_F(LinkAgreementTest, AnIdThatIsNotMadeIsReported) {
  for (int host = 0; host < 3; ++host) ASSERT_TRUE(agreement_.on_offer(host, {{}, 22304}).ok());
  EXPECT_EQ(agreement_.on_id(unavailable("no id")), Next::refuse);
  EXPECT_EQ(agreement_.why(), "host a: no id");
}

TEST_F(LinkAgreementTest, OneThatDoesNotMakeItIsNamedOnce) {
  begin();
  EXPECT_EQ(*agreement_.on_made(0, {}), Next::nothing);
  EXPECT_EQ(*agreement_.on_made(1, deadline_exceeded("late")), Next::refuse);
  EXPECT_EQ(agreement_.why(), "host b: late");
  EXPECT_EQ(*agreement_.on_made(2, deadline_exceeded("late")), Next::nothing);
}

TEST_F(LinkAgreementTest, WhatIsSaidOutOfOrderIsRefused) {
  EXPECT_EQ(agreement_.on_made(0, {}).status().code(), Code::data_loss);
  ASSERT_TRUE(agreement_.on_offer(1, {{}, 22304}).ok());
  EXPECT_EQ(agreement_.on_offer(1, {{}, 22304}).status().code(), Code::data_loss);
  EXPECT_EQ(agreement_.on_id({}), Next::nothing);
}

// ---- From which operation on ----

using testing::AgreementTest;
using testing::all_reduce_of;

Signature on_gpus(uint64_t count, Dtype dtype = Dtype::f32, Op op = Op::sum) {
  Signature signature = all_reduce_of(count, dtype, op);
  signature.on_device = true;
  return signature;
}

TEST_F(AgreementTest, NcclIsInForceFromOneOperationOnEverywhere) {
  for (int i = 0; i < 5; ++i) call_all(on_gpus(4));
  for (int i = 0; i < 3; ++i)
    for (const int rank : {2, 3}) call(rank, on_gpus(4));  // Host b is ahead.
  leader_.use_nccl();
  run();
  for (int i = 0; i < 60; ++i) call_all(on_gpus(4));
  const uint64_t by_links = starts_[0].at(0);
  uint64_t by_nccl = 0;
  for (uint64_t number = 0; number < 65; ++number) {
    ASSERT_EQ(starts_[0].at(number), starts_[1].at(number)) << number;
    by_nccl += starts_[0].at(number) != by_links;
  }
  EXPECT_EQ(by_nccl, 65 - (8 + kFenceAhead));
}

// The agreement of an operation after the change, and of the same one before it.
TEST_F(AgreementTest, WhatNcclDoesNotDoGoesByLinks) {
  Signature listed = on_gpus(8);
  listed.layout = layout_of(std::vector<uint64_t>{4, 4});
  Signature gathered = on_gpus(8);
  gathered.collective = Collective::all_gather;
  const std::vector<std::pair<Signature, bool>> all = {
      {on_gpus(8), true},
      {on_gpus(8, Dtype::i32, Op::max), true},
      {all_reduce_of(8), false},
      {on_gpus(0), false},
      {on_gpus(8, Dtype::f32, Op::max), false},
      {on_gpus(8, Dtype::i16), false},
      {on_gpus(8, Dtype::u8, Op::bor), false},
      {on_gpus(8, Dtype::f32, Op::premul_sum), true},
      {listed, true},
      {gathered, false}};
  for (const auto& [signature, by_nccl] : all) call_all(signature);
  leader_.use_nccl();
  run();
  while (starts_[0].size() < all.size() + kFenceAhead) call_all(all_reduce_of(1));
  const uint64_t first = starts_[0].size();
  for (const auto& [signature, by_nccl] : all) call_all(signature);
  for (size_t i = 0; i < all.size(); ++i)
    EXPECT_EQ(starts_[0].at(first + i) != starts_[0].at(i), all[i].second)
        << to_string(all[i].first);
}

TEST_F(AgreementTest, SubgroupsGoByLinks) {
  leader_.use_nccl();
  run();
  while (starts_[0].size() < 2 * kFenceAhead) call_all(all_reduce_of(1));
  for (const int host : {0, 1}) ASSERT_TRUE(followers_[host]->make_group(77, {2, 0}).ok());
  run();
  followers_[0]->on_call(77, 1, {on_gpus(1), {}, now_ + Millis(9), 9}, now_);
  int started = 0;
  for (const Action& action : followers_[0]->take_actions()) {
    const Start* start = std::get_if<Start>(&action);
    started += start != nullptr;
    EXPECT_TRUE(start == nullptr || !start->by_nccl);
  }
  EXPECT_EQ(started, 1);
}

TEST_F(AgreementTest, HostsThatDifferInTheirLinkHaveOtherAgreements) {
  const Signature signature = on_gpus(4);
  EXPECT_NE(agreement_of(signature, {}, 1024, 1), agreement_of(signature, {}, 1024, 1, true));
}

}  // namespace
}  // namespace tutti
