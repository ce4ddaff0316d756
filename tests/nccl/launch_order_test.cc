// Operations launch in the order in which they were added, whatever becomes ready first.
#include "daemon/nccl/launch_order.h"

#include <gtest/gtest.h>

#include <vector>

namespace tutti::nccl {
namespace {

using Began = std::vector<int>;

class LaunchOrderTest : public ::testing::Test {
 protected:
  LaunchOrder::Ticket add(int name) {
    return order_.add([this, name] { began_.push_back(name); });
  }
  LaunchOrder order_{2};
  Began began_;
};

TEST_F(LaunchOrderTest, WhatIsReadyFirstWaitsForWhatWasAddedFirst) {
  const auto one = add(1);
  const auto two = add(2);
  order_.set_ready(two);
  EXPECT_EQ(began_, Began());
  order_.set_ready(one);
  EXPECT_EQ(began_, Began{1});
  order_.pass(one);
  EXPECT_EQ(began_, (Began{1, 2}));
}

TEST_F(LaunchOrderTest, WhatNeverBeginsMakesWay) {
  const auto one = add(1);
  const auto two = add(2);
  order_.set_ready(two);
  order_.leave(one);
  EXPECT_EQ(began_, Began{2});
}

// When all end, one after the other, those behind must not begin in between.
TEST_F(LaunchOrderTest, NothingBeginsOnceItIsClosed) {
  const auto one = add(1);
  const auto two = add(2);
  order_.set_ready(one);
  order_.set_ready(two);
  order_.close();
  order_.leave(one);
  order_.leave(two);
  EXPECT_EQ(began_, Began{1});
}

TEST_F(LaunchOrderTest, WhatEndsInTheMiddleMakesWay) {
  const auto one = add(1);
  const auto two = add(2);
  order_.set_ready(one);
  order_.set_ready(two);
  EXPECT_EQ(began_, Began{1});
  order_.leave(one);
  EXPECT_EQ(began_, (Began{1, 2}));
}

TEST_F(LaunchOrderTest, OnlySoManyAreUnderWayAtOnce) {
  std::vector<LaunchOrder::Ticket> tickets;
  for (int name = 0; name < 4; ++name) tickets.push_back(add(name));
  for (const auto ticket : tickets) order_.set_ready(ticket);
  order_.pass(tickets[0]);
  order_.pass(tickets[1]);
  EXPECT_EQ(began_, (Began{0, 1}));
  order_.leave(tickets[1]);
  EXPECT_EQ(began_, (Began{0, 1, 2}));
  order_.pass(tickets[2]);
  order_.leave(tickets[0]);
  EXPECT_EQ(began_, (Began{0, 1, 2, 3}));
}

TEST_F(LaunchOrderTest, OneThatPassesAtOnceLetsTheNextBegin) {
  LaunchOrder::Ticket first = 0;
  first = order_.add([&] {
    began_.push_back(1);
    order_.pass(first);
  });
  const auto two = add(2);
  order_.set_ready(two);
  order_.set_ready(first);
  EXPECT_EQ(began_, (Began{1, 2}));
}

TEST_F(LaunchOrderTest, WhatLeftBeforeItWasReadyNeverBegins) {
  const auto one = add(1);
  order_.leave(one);
  order_.set_ready(one);
  EXPECT_EQ(began_, Began());
}

}  // namespace
}  // namespace tutti::nccl
