// Indexed slices in one process: sums, means, copies, and mixtures with dense values.
#include "client/faces/cross_device/sparse.h"

#include "tests/cross_device/values.h"

namespace tutti::cross_device {
namespace {

HierarchicalCopyAllReduce ops() { return *HierarchicalCopyAllReduce::create(); }

PerReplica example() {
  return PerReplica(
      {slices({1}, {1, 2}, 2, Shape{5, 2}), slices({1, 3}, {3, 4, 5, 6}, 2, Shape{5, 2})});
}

const IndexedSlices& sparse(const Mirrored& result, size_t at = 0) {
  return std::get<IndexedSlices>(result.components[at].value);
}

TEST(Sparse, SumKeepsTheRowsOfAll) {
  const PerReplica value = example();
  const auto sum = *ops().reduce(ReduceOp::sum, value, Destinations(value));
  ASSERT_EQ(sum.components.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(numbers_of(sparse(sum, i).indices), (Numbers{1, 1, 3}));
    EXPECT_EQ(numbers_of(sparse(sum, i).values), (Numbers{1, 2, 3, 4, 5, 6}));
    EXPECT_EQ(sparse(sum, i).values.shape(), (Shape{3, 2}));
    EXPECT_EQ(sparse(sum, i).dense_shape, (Shape{5, 2}));
  }
  EXPECT_NE(sparse(sum, 0).values.data(), sparse(sum, 1).values.data());
  EXPECT_NE(sparse(sum, 0).indices.data(), sparse(sum, 1).indices.data());
}

TEST(Sparse, MeanHalvesTheValues) {
  const PerReplica value = example();
  const auto mean = *ops().reduce(ReduceOp::mean, value, Destinations(value));
  EXPECT_EQ(numbers_of(sparse(mean).indices), (Numbers{1, 1, 3}));
  EXPECT_EQ(numbers_of(sparse(mean).values), (Numbers{0.5, 1, 1.5, 2, 2.5, 3}));
}

TEST(Sparse, ReplicasMayHaveNoRows) {
  const PerReplica value({slices({}, {}, 2, Shape{5, 2}), slices({4, 0}, {1, 2, 3, 4}, 2)});
  const auto sum = *ops().reduce(ReduceOp::sum, value, Destinations(value));
  EXPECT_EQ(numbers_of(sparse(sum).indices), (Numbers{4, 0}));
  EXPECT_EQ(numbers_of(sparse(sum).values), (Numbers{1, 2, 3, 4}));
  EXPECT_EQ(sparse(sum).dense_shape, (Shape{5, 2}));
}

TEST(Sparse, BatchesKeepTheirOrder) {
  const PerReplica slices_of = example();
  const PerReplica tensors = per_replica({1, 2});
  const auto results = *ops().batch_reduce(
      ReduceOp::sum, {{slices_of, Destinations(slices_of)}, {tensors, Destinations(tensors)}});
  EXPECT_EQ(sparse(results[0]).indices.count(), 3u);
  EXPECT_TRUE(all_have(results[1], {3}));
}

TEST(Sparse, DensifyAddsRowsThatOccurTwice) {
  const Tensor dense =
      *densify(concatenate({slices({1}, {1, 2}, 2, Shape{5, 2}), slices({1, 3}, {3, 4, 5, 6}, 2)}));
  EXPECT_EQ(numbers_of(dense), (Numbers{0, 0, 4, 6, 0, 0, 5, 6, 0, 0}));
}

TEST(Sparse, DensifyRoundsOnce) {  // 2048 + 1 is 2048 in f16.
  const IndexedSlices rows{tensor_of(Dtype::f16, {4, 1}, {2048, 1, 3, 1}),
                           tensor_of(Dtype::i32, {4}, {1, 1, 0, 1}), Shape{2, 1}};
  EXPECT_EQ(numbers_of(*densify(rows)), (Numbers{3, 2050}));
}

TEST(Sparse, ADenseComponentMakesAllDense) {
  const PerReplica value({slices({1, 1}, {1, 2, 3, 4}, 2, Shape{3, 2}),
                          tensor_of(Dtype::f32, {3, 2}, {10, 10, 10, 10, 10, 10})});
  const auto sum = *ops().reduce(ReduceOp::sum, value, Destinations(value));
  EXPECT_TRUE(all_have(sum, {10, 10, 14, 16, 10, 10}));
}

TEST(Sparse, WrongSlicesAreRefused) {
  const Tensor dense = tensor_of(Dtype::f32, {3, 2}, Numbers(6, 0));
  const IndexedSlices good = slices({1}, {1, 2}, 2, Shape{3, 2});
  const auto refusal = [&](const Value& wrong, const Value& other) {
    const PerReplica value({wrong, other});
    return ops().reduce(ReduceOp::sum, value, Destinations(value)).status();
  };
  const auto refused = [&](const Value& wrong, const Value& other, const std::string& part) {
    EXPECT_TRUE(fails(refusal(wrong, other), Code::invalid_argument, part));
  };
  refused(slices({3}, {1, 2}, 2, Shape{3, 2}), dense, "index 3 is outside");
  refused(slices({-1}, {1, 2}, 2, Shape{3, 2}), dense, "index -1 is outside");
  refused(slices({1}, {1, 2}, 2), dense, "dense_shape");
  refused(slices({1}, {1, 2}, 2, Shape{3, 3}), good, "no rows of dense_shape [3,3]");
  refused(slices({1}, {1, 2, 3}, 3, Shape{3, 3}), good, "replica 1 has sparse f32[rows,2]");
  refused(IndexedSlices{floats({1, 2}), tensor_of(Dtype::i64, {1}, {0}), {}}, good,
          "one index for each row");
  refused(IndexedSlices{floats({1}), floats({0}), {}}, good, "i32 or i64");
  refused(good, slices({1}, {1, 2}, 2, Shape{4, 2}), "of [4,2]");
}

TEST(Sparse, BroadcastCopies) {
  const auto copies =
      *ops().broadcast(slices({2}, {1, 2}, 2), Destinations(devices({"a:0", "a:1"})));
  EXPECT_EQ(numbers_of(sparse(copies, 1).indices), Numbers{2});
  EXPECT_NE(sparse(copies, 0).values.data(), sparse(copies, 1).values.data());
}

}  // namespace
}  // namespace tutti::cross_device
