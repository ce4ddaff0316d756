// Where blocks lie: equal ones, and ones with counts of their own.
#include "daemon/base/block_sizes.h"

#include <gtest/gtest.h>

#include <vector>

namespace tutti {
namespace {

TEST(BlockSizes, OfEqualBlocks) {
  const BlockSizes gather({Collective::all_gather, 0, 3}, 10);
  EXPECT_EQ(gather.input_elements(1), 10u);
  EXPECT_EQ(gather.output_elements(1), 30u);
  EXPECT_EQ(gather.first_in_input(2), 0u);
  EXPECT_EQ(gather.first_in_output(2), 20u);
  const BlockSizes exchange({Collective::all_to_all, 0, 3}, 10);
  EXPECT_EQ(exchange.first_in_input(1 * 3 + 2), 20u) << "from rank 1 to rank 2";
  EXPECT_EQ(exchange.first_in_output(1 * 3 + 2), 10u);
  EXPECT_EQ(exchange.output_elements(0), 30u);
}

TEST(BlockSizes, OfAGatherAndAScatterAtTheRootAlone) {
  const BlockSizes gather({Collective::gather, 2, 3}, 10);
  EXPECT_EQ(gather.output_elements(2), 30u);
  EXPECT_EQ(gather.output_elements(0), 0u);
  const BlockSizes scatter({Collective::scatter, 2, 3}, 10);
  EXPECT_EQ(scatter.input_elements(2), 30u);
  EXPECT_EQ(scatter.input_elements(0), 0u);
  EXPECT_EQ(scatter.output_elements(0), 10u);
}

TEST(BlockSizes, OfCountsByRank) {
  const std::vector<uint64_t> counts = {4, 0, 5};
  const BlockSizes gather({Collective::all_gather, 0, 3}, counts);
  EXPECT_EQ(gather.largest(), 5u);
  EXPECT_EQ(gather.input_elements(1), 0u);
  EXPECT_EQ(gather.output_elements(1), 9u);
  EXPECT_EQ(gather.first_in_output(2), 4u);
  EXPECT_EQ(gather.first_in_input(2), 0u);
  const BlockSizes scatter({Collective::reduce_scatter, 0, 3}, counts);
  EXPECT_EQ(scatter.input_elements(1), 9u);
  EXPECT_EQ(scatter.output_elements(2), 5u);
  EXPECT_EQ(scatter.first_in_input(2), 4u);
  EXPECT_EQ(scatter.first_in_output(2), 0u);
}

TEST(BlockSizes, OfCountsByPairOfRanks) {
  const std::vector<uint64_t> counts = {1, 2, 3,  //
                                        4, 5, 6,  //
                                        7, 8, 9};
  const BlockSizes exchange({Collective::all_to_all, 0, 3}, counts);
  EXPECT_EQ(exchange.input_elements(1), 15u);
  EXPECT_EQ(exchange.output_elements(1), 15u);
  EXPECT_EQ(exchange.output_elements(2), 18u);
  EXPECT_EQ(exchange.first_in_input(1 * 3 + 0), 0u);
  EXPECT_EQ(exchange.first_in_input(1 * 3 + 2), 9u);
  EXPECT_EQ(exchange.first_in_output(2 * 3 + 1), 7u);
}

TEST(BlockSizes, SumsDoNotWrapAround) {
  const std::vector<uint64_t> counts = {~uint64_t{0}, 2, ~uint64_t{0}};
  const BlockSizes gather({Collective::all_gather, 0, 3}, counts);
  EXPECT_GT(gather.output_elements(0), kElementsMax);
  EXPECT_GT(BlockSizes({Collective::all_gather, 0, 3}, ~uint64_t{0} / 2).output_elements(0),
            kElementsMax);
}

}  // namespace
}  // namespace tutti
