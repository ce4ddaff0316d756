#include "daemon/base/fair_queue.h"

#include <gtest/gtest.h>

#include <memory>

namespace tutti {
namespace {

TEST(FairQueue, KeepsTheOrder) {
  FairQueue<int> queue;
  EXPECT_EQ(queue.oldest(), nullptr);
  EXPECT_EQ(queue.pop(), std::nullopt);
  for (const int item : {1, 2, 3}) queue.push("a", item);
  EXPECT_EQ(queue.remove_if([](int item) { return item == 2; }), 2);
  EXPECT_EQ(queue.remove_if([](int item) { return item == 2; }), std::nullopt);
  EXPECT_EQ(*queue.oldest(), 1);
  EXPECT_EQ(queue.pop(), 1);
  EXPECT_EQ(queue.pop(), 3);
  EXPECT_EQ(queue.size(), 0u);
}

TEST(FairQueue, TheOldestOfTheSourceThatHasMostMakesRoom) {
  FairQueue<int> queue;
  queue.push("honest", 1);
  for (const int item : {2, 3, 4}) queue.push("flood", item);
  EXPECT_EQ(queue.pop_beyond(4), std::nullopt);
  EXPECT_EQ(queue.pop_beyond(3), 2);
  EXPECT_EQ(queue.pop_beyond(2), 3);
  EXPECT_EQ(queue.pop_beyond(1), 1) << "of equals the oldest";
  EXPECT_EQ(queue.pop_beyond(0), 4);
  EXPECT_EQ(queue.pop_beyond(0), std::nullopt);
}

TEST(FairQueue, ForgetsWhatIsRemovedOfASource) {
  FairQueue<int> queue;
  for (const int item : {1, 2, 3}) queue.push("a", item);
  for (const int item : {4, 5}) queue.push("b", item);
  queue.pop();
  queue.pop();
  EXPECT_EQ(queue.pop_beyond(2), 4);
}

TEST(FairQueue, TakesItemsThatOnlyMove) {
  FairQueue<std::unique_ptr<int>> queue;
  queue.push("a", std::make_unique<int>(7));
  EXPECT_EQ(**queue.pop_beyond(0), 7);
}

}  // namespace
}  // namespace tutti
