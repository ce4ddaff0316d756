// Batches of replicas.
#include "client/faces/distribute/input_context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti::distribute {
namespace {

using testing::HasSubstr;

void expect_refused(const Result<int64_t>& batch, const std::string& text) {
  EXPECT_EQ(batch.status().code(), Code::invalid_argument);
  EXPECT_THAT(batch.status().message(), HasSubstr(text));
}

TEST(InputContext, DividesTheGlobalBatch) {
  const InputContext context = {.num_replicas_in_sync = 4};
  EXPECT_EQ(*context.get_per_replica_batch_size(8), 2);
  EXPECT_EQ(*context.get_per_replica_batch_size(0), 0);
  EXPECT_EQ(*InputContext{}.get_per_replica_batch_size(7), 7);
  EXPECT_EQ(*get_per_replica_batch_size(int64_t{1} << 40, 2), int64_t{1} << 39);
}

TEST(InputContext, RefusesWhatDoesNotDivide) {
  const InputContext context = {.num_replicas_in_sync = 4};
  expect_refused(context.get_per_replica_batch_size(10),
                 "global_batch_size=10 is not divisible by num_replicas_in_sync=4");
  expect_refused(context.get_per_replica_batch_size(-4),
                 "global_batch_size=-4 must not be negative");
  expect_refused(get_per_replica_batch_size(8, 0), "num_replicas_in_sync=0 must be at least 1");
  expect_refused(get_per_replica_batch_size(8, -2), "num_replicas_in_sync=-2 must be at least 1");
}

TEST(Rows, AreSharedOutInOrder) {
  const auto rows = [](int64_t rows, int replica) { return *rows_of_replica(rows, {replica, 4}); };
  EXPECT_EQ(rows(8, 0), (Rows{0, 2}));
  EXPECT_EQ(rows(8, 3), (Rows{6, 8}));
  EXPECT_EQ(rows(10, 2), (Rows{6, 9}));
  EXPECT_EQ(rows(10, 3), (Rows{9, 10}));
  EXPECT_EQ(rows(2, 1), (Rows{1, 2}));
  EXPECT_EQ(rows(2, 2), (Rows{2, 2}));
  EXPECT_EQ(rows(0, 3), (Rows{0, 0}));
  EXPECT_EQ(rows(5, 3), (Rows{5, 5}));
}

TEST(Rows, OfWhatDoesNotExistAreRefused) {
  for (const auto& [rows, replica] : {std::pair(-1, 0), {8, -1}, {8, 4}})
    EXPECT_EQ(rows_of_replica(rows, {replica, 4}).status().code(), Code::invalid_argument);
}

}  // namespace
}  // namespace tutti::distribute
