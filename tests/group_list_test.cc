// Lists of tensors that come as several calls: all ranks agree about them, or none of them runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "daemon/group/gate.h"
#include "tests/tensors.h"

namespace tutti {
namespace {

using testing::Bytes;
using testing::Cluster;
using ::testing::ElementsAre;
using testing::Tensors;

Signature all_reduce_of(uint64_t count) {
  return {Collective::all_reduce, Dtype::f32, Op::sum, count, 0, {}};
}

class GateTest : public ::testing::Test {
 protected:
  Gate::Way admit(uint64_t layout, uint32_t following) {
    Call call;
    call.signature.layout = layout;
    call.following = following;
    return gate_.admit(call, now_);
  }
  std::vector<Gate::Way> admit_what_waited() {
    std::vector<Gate::Way> ways;
    for (Call& call : gate_.take(now_)) ways.push_back(gate_.admit(call, now_));
    return ways;
  }
  using Way = Gate::Way;

  Gate gate_;
  TimePoint now_{};
};

TEST_F(GateTest, SingleTensorsAndShortListsPass) {
  for (int i = 0; i < 3; ++i) EXPECT_EQ(admit(0, 0), Way::pass);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(admit(77, 0), Way::pass);
}

TEST_F(GateTest, WhatFollowsAnOpenedListWaitsAndPasses) {
  EXPECT_EQ(admit(77, 2), Way::open);
  gate_.shut(5);
  EXPECT_TRUE(gate_.waits_for(5));
  EXPECT_FALSE(gate_.waits_for(4));
  for (const uint32_t following : {1u, 0u}) EXPECT_EQ(admit(77, following), Way::wait);
  EXPECT_EQ(admit(0, 0), Way::wait);
  EXPECT_EQ(admit(77, 2), Way::wait);
  EXPECT_EQ(admit(77, 1), Way::wait);
  gate_.settle({});
  EXPECT_FALSE(gate_.waits_for(5));
  EXPECT_THAT(admit_what_waited(),
              ElementsAre(Way::pass, Way::pass, Way::pass, Way::open, Way::wait));
}

TEST_F(GateTest, TheWaitCountsToTheDeadline) {
  EXPECT_EQ(admit(77, 2), Way::open);
  EXPECT_EQ(admit(77, 1), Way::wait);
  now_ += Millis(300);
  Call call;
  call.waited_ms = 50;
  EXPECT_EQ(gate_.admit(call, now_), Way::wait);
  gate_.settle({});
  std::vector<uint32_t> waited;
  for (const Call& taken : gate_.take(now_ + Millis(200))) waited.push_back(taken.waited_ms);
  EXPECT_THAT(waited, ElementsAre(500, 250));
}

TEST_F(GateTest, TheRestOfARefusedListIsRefusedAndNoMore) {
  EXPECT_EQ(admit(77, 2), Way::open);
  gate_.settle(failed_precondition("they differ"));
  EXPECT_EQ(admit(77, 1), Way::refuse);
  EXPECT_EQ(gate_.refusal().message(), "they differ");
  EXPECT_EQ(admit(77, 0), Way::refuse);
  EXPECT_EQ(admit(0, 0), Way::pass);
  EXPECT_EQ(admit(77, 2), Way::open);
  gate_.settle(failed_precondition("again"));
  EXPECT_EQ(admit(77, 2), Way::open);  // The same list anew, though some of it never came.
}

// The calls of a list that is cut into so many.
std::vector<Call> list_of(uint32_t parts, uint64_t layout, Bytes& x) {
  std::vector<Call> calls(parts);
  for (uint32_t i = 0; i < parts; ++i) {
    calls[i].signature = all_reduce_of(10);
    calls[i].signature.layout = layout;
    calls[i].following = parts - 1 - i;
    calls[i].in = calls[i].out = x.data();
  }
  return calls;
}

TEST(ListTest, ListsCutIntoDifferentNumbersOfCallsFailAndTheGroupGoesOn) {
  for (const std::vector<int>& shape : {std::vector<int>{2, 2}, {4}}) {
    Cluster cluster(shape);
    std::vector<Bytes> tensors(4, Bytes(40));
    std::vector<std::future<Status>> ends;
    for (int rank = 0; rank < 4; ++rank)
      for (const Call& call :
           list_of(rank == 2 ? 5 : 3, rank == 2 ? 55 : 33, tensors[size_t(rank)]))
        ends.push_back(cluster.submit(rank, call));
    std::set<std::string> messages;
    for (auto& end : ends) {
      const Status status = end.get();
      EXPECT_EQ(status.code(), Code::failed_precondition);
      messages.insert(status.message());
    }
    EXPECT_EQ(messages.size(), 1u) << "all calls fail as the first";
    Tensors after(cluster, all_reduce_of(100));
    after.run_and_check();
  }
}

TEST(ListTest, ListsThatAgreeRunWhole) {
  Cluster cluster({2, 2});
  std::vector<Bytes> tensors(4, Bytes(40));
  std::vector<std::future<Status>> ends;
  for (int round = 0; round < 20; ++round)
    for (int rank = 0; rank < 4; ++rank)
      for (const Call& call : list_of(4, 44, tensors[size_t(rank)]))
        ends.push_back(cluster.submit(rank, call));
  for (auto& end : ends) EXPECT_TRUE(end.get().ok());
}

// Rank 1 comes late to what failed for rank 0, in the same turn: rank 0 is told of it twice.
TEST(ListTest, AVerdictThatIsToldTwiceSettlesOneListOnly) {
  Cluster cluster({2});
  std::vector<Bytes> tensors(2, Bytes(40));
  std::vector<std::future<Status>> first, second;
  const auto submit = [&](int rank, Call call, std::vector<std::future<Status>>& ends) {
    auto done = std::make_shared<std::promise<Status>>();
    ends.push_back(done->get_future());
    call.done = [done](const Status& status) { done->set_value(status); };
    cluster.hosts[0]->world->submit(rank, 0, std::move(call));
  };
  cluster.hosts[0]->run([&] {
    for (const int rank : {0, 1}) {
      for (Call& call : list_of(3, 33, tensors[size_t(rank)])) {
        if (rank == 0 && call.following == 2) call.invalid = invalid_argument("refused");
        submit(rank, call, first);
      }
      for (const Call& call : list_of(3, 44, tensors[size_t(rank)])) submit(rank, call, second);
    }
  });
  for (auto& end : first) EXPECT_EQ(end.get().message(), "refused");
  for (auto& end : second) {
    const Status status = end.get();
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
}

TEST(ListTest, WhatWaitsBehindAListEndsWithItsRankAndWithTheEpoch) {
  Cluster cluster({1, 1});
  Bytes x(40);
  std::vector<std::future<Status>> ends;
  for (const int rank : {0, 1})
    for (const Call& call : list_of(3, 33 + uint64_t(rank == 1), x))
      if (rank == 0 || call.following < 2) ends.push_back(cluster.submit(rank, call));
  cluster.hosts[0]->run([&] { cluster.hosts[0]->world->leave(0, unavailable("it died")); });
  cluster.hosts[1]->run([&] { cluster.hosts[1]->world->abort(aborted("over")); });
  for (auto& end : ends) EXPECT_FALSE(end.get().ok());
}

}  // namespace
}  // namespace tutti
