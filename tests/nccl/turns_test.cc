// Operations launch in the order in which they were added, whatever becomes ready first.
#include "daemon/nccl/turns.h"

#include <gtest/gtest.h>

#include <vector>

namespace tutti::nccl {
namespace {

using Began = std::vector<int>;

class TurnsTest : public ::testing::Test {
 protected:
  Turns::Ticket add(int name) {
    return turns_.add([this, name] { began_.push_back(name); });
  }
  Turns turns_{2};
  Began began_;
};

TEST_F(TurnsTest, WhatIsReadyFirstWaitsForWhatWasAddedFirst) {
  const auto one = add(1);
  const auto two = add(2);
  turns_.set_ready(two);
  EXPECT_EQ(began_, Began());
  turns_.set_ready(one);
  EXPECT_EQ(began_, Began{1});
  turns_.pass(one);
  EXPECT_EQ(began_, (Began{1, 2}));
}

TEST_F(TurnsTest, WhatNeverBeginsMakesWay) {
  const auto one = add(1);
  const auto two = add(2);
  turns_.set_ready(two);
  turns_.leave(one);
  EXPECT_EQ(began_, Began{2});
}

// When all end, one after the other, those behind must not begin in between.
TEST_F(TurnsTest, NothingBeginsOnceTheyAreClosed) {
  const auto one = add(1);
  const auto two = add(2);
  turns_.set_ready(one);
  turns_.set_ready(two);
  turns_.close();
  turns_.leave(one);
  turns_.leave(two);
  EXPECT_EQ(began_, Began{1});
}

TEST_F(TurnsTest, WhatEndsInTheMiddleMakesWay) {
  const auto one = add(1);
  const auto two = add(2);
  turns_.set_ready(one);
  turns_.set_ready(two);
  EXPECT_EQ(began_, Began{1});
  turns_.leave(one);
  EXPECT_EQ(began_, (Began{1, 2}));
}

TEST_F(TurnsTest, OnlySoManyAreUnderWayAtOnce) {
  std::vector<Turns::Ticket> tickets;
  for (int name = 0; name < 4; ++name) tickets.push_back(add(name));
  for (const auto ticket : tickets) turns_.set_ready(ticket);
  turns_.pass(tickets[0]);
  turns_.pass(tickets[1]);
  EXPECT_EQ(began_, (Began{0, 1}));
  turns_.leave(tickets[1]);
  EXPECT_EQ(began_, (Began{0, 1, 2}));
  turns_.pass(tickets[2]);
  turns_.leave(tickets[0]);
  EXPECT_EQ(began_, (Began{0, 1, 2, 3}));
}

TEST_F(TurnsTest, OneThatPassesAtOnceLetsTheNextBegin) {
  Turns::Ticket first = 0;
  first = turns_.add([&] {
    began_.push_back(1);
    turns_.pass(first);
  });
  const auto two = add(2);
  turns_.set_ready(two);
  turns_.set_ready(first);
  EXPECT_EQ(began_, (Began{1, 2}));
}

TEST_F(TurnsTest, WhatLeftBeforeItWasReadyNeverBegins) {
  const auto one = add(1);
  turns_.leave(one);
  turns_.set_ready(one);
  EXPECT_EQ(began_, Began());
}

}  // namespace
}  // namespace tutti::nccl
