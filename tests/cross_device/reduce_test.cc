// Reductions and copies of values that are all in this process.
#include <cmath>
#include <limits>

#include "tests/cross_device/values.h"

namespace tutti::cross_device {
namespace {

HierarchicalCopyAllReduce hierarchical_copy(std::optional<int64_t> num_packs = 1) {
  return *HierarchicalCopyAllReduce::create(num_packs);
}
ReductionToOneDevice to_one() { return *ReductionToOneDevice::create(); }

Numbers powers(size_t count) {
  Numbers numbers;
  for (size_t i = 0; i < count; ++i) numbers.push_back(std::ldexp(1, static_cast<int>(i)));
  return numbers;
}

TEST(Create, NumPacksIsAboveZero) {
  for (const int64_t wrong : {0, -1}) {
    const Status status = HierarchicalCopyAllReduce::create(wrong).status();
    EXPECT_TRUE(fails(status, Code::invalid_argument,
                      "num_packs > 0, but " + std::to_string(wrong) + " is specified"));
  }
  for (const int64_t right : {1, 8}) EXPECT_TRUE(HierarchicalCopyAllReduce::create(right).ok());
  EXPECT_TRUE(HierarchicalCopyAllReduce::create(std::nullopt).ok());
}

TEST(Create, ReduceToDeviceIsADevice) {
  EXPECT_TRUE(ReductionToOneDevice::create("GPU:1").ok());
  EXPECT_TRUE(
      fails(ReductionToOneDevice::create("there").status(), Code::invalid_argument, "'there'"));
}

// Each of: where the value is, elsewhere, and on one device alone.
std::vector<Destinations> every_destination(const PerReplica& value) {
  return {Destinations(value), Destinations(devices({"CPU:5", "CPU:6"})),
          Destinations(devices({"CPU:0"}))};
}

void expect_every_pairing(const CrossDeviceOps& ops) {
  const PerReplica one = per_replica({0, 1});
  const PerReplica two = per_replica({1, 2});
  for (const Destinations& first : every_destination(one))
    for (const Destinations& second : every_destination(two)) {
      const auto sums = ops.batch_reduce(ReduceOp::sum, {{one, first}, {two, second}});
      const auto means = ops.batch_reduce(ReduceOp::mean, {{one, first}, {two, second}});
      EXPECT_TRUE(all_have((*sums)[0], {1}));
      EXPECT_TRUE(all_have((*sums)[1], {3}));
      EXPECT_TRUE(all_have((*means)[0], {0.5}));
      EXPECT_TRUE(all_have((*means)[1], {1.5}));
      EXPECT_EQ((*sums)[0].components.size(), first.devices.size());
      EXPECT_EQ((*sums)[1].components.size(), second.devices.size());
      EXPECT_TRUE(all_have(*ops.reduce(ReduceOp::mean, two, first), {1.5}));
    }
}

TEST(Reduce, EveryPairingOfDestinations) {
  expect_every_pairing(hierarchical_copy(8));
  expect_every_pairing(hierarchical_copy(std::nullopt));
  expect_every_pairing(to_one());
}

TEST(Reduce, EightReplicasOfThreeTensors) {
  for (const int64_t num_packs : {1, 8}) {
    std::vector<CrossDeviceOps::Pair> pairs;
    for (const int64_t size : {1, 7, 1000}) {
      std::vector<Value> values;
      for (const double power : powers(8))
        values.emplace_back(
            tensor_of(Dtype::f32, {size}, Numbers(static_cast<size_t>(size), power)));
      const PerReplica value(std::move(values));
      pairs.emplace_back(value, Destinations(value));
    }
    const auto sums = *hierarchical_copy(num_packs).batch_reduce(ReduceOp::sum, pairs);
    const auto means = *hierarchical_copy(num_packs).batch_reduce(ReduceOp::mean, pairs);
    for (size_t i = 0; i < 3; ++i) {
      const size_t size = dense(sums[i].components[0].value).count();
      EXPECT_EQ(sums[i].components.size(), 8u);
      EXPECT_TRUE(all_have(sums[i], Numbers(size, 255)));
      EXPECT_TRUE(all_have(means[i], Numbers(size, 31.875)));
    }
  }
}

// TensorFlow leaves out the last of an odd number of devices.
TEST(Reduce, OddNumbersOfReplicas) {
  for (const size_t count : {1u, 2u, 3u, 5u, 7u, 9u, 17u}) {
    const PerReplica value = per_replica(powers(count), Dtype::f64);
    const double sum = std::ldexp(1, static_cast<int>(count)) - 1;
    const auto ops = hierarchical_copy();
    EXPECT_TRUE(all_have(*ops.reduce(ReduceOp::sum, value, Destinations(value)), {sum}));
    EXPECT_TRUE(all_have(*ops.reduce(ReduceOp::mean, value, Destinations(value)),
                         {sum / static_cast<double>(count)}));
  }
}

Numbers sum_by(const CrossDeviceOps& ops, const PerReplica& value) {
  const auto result = ops.reduce(ReduceOp::sum, value, Destinations(value));
  return numbers_of(dense(result->components[0].value));
}

TEST(Order, IsThatOfTheGroups) {
  const PerReplica value = per_replica({1e8, 1, -1e8, 1});
  EXPECT_EQ(sum_by(hierarchical_copy(), value), Numbers{0});  // (a + b) + (c + d)
  EXPECT_EQ(sum_by(to_one(), value), Numbers{1});             // ((a + b) + c) + d
}

TEST(Order, GroupsAreTheHosts) {
  PerReplica value = per_replica({1e8, 1, -1e8, 1});
  const auto at = devices({"/task:0/cpu:0", "/task:1/cpu:0", "/task:0/cpu:1", "/task:1/cpu:1"});
  for (size_t i = 0; i < 4; ++i) value.components[i].device = at[i];
  EXPECT_EQ(sum_by(hierarchical_copy(), value), Numbers{2});  // (a + c) + (b + d)
}

TEST(Order, OddGroupsAreTheLargerHalfFirst) {
  const PerReplica value = per_replica({1e8, -1e8, 1, 1, 1e8});
  // ((a + b) + c) + (d + e); in halves of 2 and 3 it would be 1e8 + 2, which is no f32.
  EXPECT_EQ(sum_by(hierarchical_copy(), value), Numbers{1e8});
  const PerReplica other = per_replica({1, 1e8, -1e8, 1, 1});
  EXPECT_EQ(sum_by(hierarchical_copy(), other), Numbers{2});
}

TEST(Order, LargeTensorsHaveNoSeams) {
  constexpr size_t kCount = 100'003;
  std::vector<Value> values;
  Numbers expected(kCount, 0);
  for (int replica = 0; replica < 6; ++replica) {
    Numbers numbers;
    for (size_t i = 0; i < kCount; ++i) {
      numbers.push_back(static_cast<double>((i * 7 + static_cast<size_t>(replica) * 13) % 101));
      expected[i] += numbers[i];
    }
    values.emplace_back(floats(numbers));
  }
  const PerReplica value(std::move(values));
  EXPECT_EQ(sum_by(hierarchical_copy(3), value), expected);
  EXPECT_EQ(sum_by(to_one(), value), expected);
}

TEST(Dtypes, ABatchMayMixThem) {
  const PerReplica single = per_replica({1, 2});
  const PerReplica half = per_replica({3, 4}, Dtype::f16);
  const auto results = *hierarchical_copy().batch_reduce(
      ReduceOp::sum, {{single, Destinations(single)}, {half, Destinations(half)}});
  EXPECT_TRUE(all_have(results[0], {3}));
  EXPECT_TRUE(all_have(results[1], {7}));
  EXPECT_EQ(dense(results[1].components[0].value).dtype(), Dtype::f16);
}

TEST(Dtypes, OfOneValueMayNotDiffer) {
  const PerReplica mixed({floats({1}), tensor_of(Dtype::f64, {1}, {1})});
  const auto result = to_one().reduce(ReduceOp::sum, mixed, Destinations(mixed));
  EXPECT_TRUE(
      fails(result.status(), Code::invalid_argument, "replica 0 has f32[1], replica 1 has f64[1]"));
}

TEST(Dtypes, Integers) {
  const PerReplica value = per_replica({1, 2}, Dtype::i32);
  const auto ops = hierarchical_copy();
  EXPECT_TRUE(all_have(*ops.reduce(ReduceOp::sum, value, Destinations(value)), {3}));
  EXPECT_TRUE(fails(ops.reduce(ReduceOp::mean, value, Destinations(value)).status(),
                    Code::invalid_argument, "MEAN needs a floating dtype"));
  const PerReplica edge = per_replica({2147483647, 1}, Dtype::i32);
  EXPECT_TRUE(all_have(*ops.reduce(ReduceOp::sum, edge, Destinations(edge)), {-2147483648.0}));
  const PerReplica alone = per_replica({7}, Dtype::i32);
  EXPECT_TRUE(all_have(*ops.reduce(ReduceOp::mean, alone, Destinations(alone)), {7}));
}

TEST(Dtypes, BoolsAreRefused) {
  const PerReplica value = per_replica({1, 0}, Dtype::boolean);
  EXPECT_TRUE(fails(to_one().reduce(ReduceOp::sum, value, Destinations(value)).status(),
                    Code::invalid_argument, "bool"));
}

TEST(Dtypes, HalfFloatsAreSummedInSingles) {
  for (const auto& [numbers, op, expected] : std::vector<std::tuple<Numbers, ReduceOp, double>>{
           {{1024, 1024, 1024, 1024}, ReduceOp::sum, 4096},
           {{60000, 60000}, ReduceOp::mean, 60000},
           {{60000, 60000, 60000, 60000}, ReduceOp::mean, 60000},
           {{2048, 1, 1, 1}, ReduceOp::sum, 2052}}) {  // 2051 rounds to even.
    const PerReplica value = per_replica(numbers, Dtype::f16);
    EXPECT_TRUE(all_have(*hierarchical_copy().reduce(op, value, Destinations(value)), {expected}));
    EXPECT_TRUE(all_have(*to_one().reduce(op, value, Destinations(value)), {expected}));
  }
}

TEST(Shapes, ThatDifferAreQuoted) {
  const PerReplica wrong({floats({1, 2}), floats({1, 2, 3})});
  const auto ops = hierarchical_copy();
  EXPECT_TRUE(fails(ops.reduce(ReduceOp::sum, wrong, Destinations(wrong)).status(),
                    Code::invalid_argument, "f32[2], replica 1 has f32[3]"));
  const PerReplica turned(
      {tensor_of(Dtype::f32, {1, 2}, {1, 2}), tensor_of(Dtype::f32, {2, 1}, {1, 2})});
  EXPECT_TRUE(fails(ops.reduce(ReduceOp::sum, turned, Destinations(turned)).status(),
                    Code::invalid_argument, "[1,2], replica 1 has f32[2,1]"));
}

TEST(Shapes, AreKept) {
  const std::vector<std::pair<Shape, size_t>> shapes = {
      {{2, 3}, 6}, {{4}, 4}, {{}, 1}, {{0, 5}, 0}};
  std::vector<CrossDeviceOps::Pair> pairs;
  for (const auto& [shape, count] : shapes) {
    const PerReplica value({tensor_of(Dtype::f32, shape, Numbers(count, 1)),
                            tensor_of(Dtype::f32, shape, Numbers(count, 2))});
    pairs.emplace_back(value, Destinations(value));
  }
  const auto sums = *hierarchical_copy(3).batch_reduce(ReduceOp::sum, pairs);
  for (size_t i = 0; i < shapes.size(); ++i) {
    EXPECT_EQ(dense(sums[i].components[1].value).shape(), shapes[i].first);
    EXPECT_TRUE(all_have(sums[i], Numbers(shapes[i].second, 3)));
  }
}

TEST(Shapes, OfTensorsWithoutElements) {
  const PerReplica value({floats({}), floats({})});
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean}) {
    const auto result = hierarchical_copy().reduce(op, value, Destinations(value));
    EXPECT_EQ(dense(result->components[1].value).shape(), Shape{0});
  }
}

TEST(Special, ANanSpreads) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const PerReplica value = per_replica({1, nan, std::numeric_limits<double>::infinity(), 2});
  const auto result = *hierarchical_copy().reduce(ReduceOp::mean, value, Destinations(value));
  const Tensor& first = dense(result.components[0].value);
  EXPECT_TRUE(std::isnan(numbers_of(first)[0]));
  for (const Component& component : result.components)
    EXPECT_EQ(std::memcmp(dense(component.value).data(), first.data(), first.bytes()), 0);
}

TEST(Arguments, OfABatchWithoutValues) {
  EXPECT_TRUE(hierarchical_copy().batch_reduce(ReduceOp::sum, {})->empty());
}

TEST(Arguments, ThatAreEmpty) {
  const PerReplica value = per_replica({1, 2});
  const Destinations nowhere(std::vector<DeviceName>{});
  EXPECT_TRUE(fails(to_one().reduce(ReduceOp::sum, value, nowhere).status(), Code::invalid_argument,
                    "destinations can not be empty"));
  EXPECT_TRUE(fails(to_one().broadcast(floats({1}), nowhere).status(), Code::invalid_argument,
                    "destinations can not be empty"));
  EXPECT_TRUE(fails(to_one().reduce(ReduceOp::sum, PerReplica(), Destinations(value)).status(),
                    Code::invalid_argument, "must be non-empty"));
}

TEST(Arguments, OptionsAreChecked) {
  const PerReplica value = per_replica({1, 2});
  const CommunicationOptions wrong{.bytes_per_pack = -1};
  EXPECT_TRUE(fails(to_one().reduce(ReduceOp::sum, value, Destinations(value), wrong).status(),
                    Code::invalid_argument, "bytes_per_pack"));
  EXPECT_FALSE(to_one().broadcast(floats({1}), Destinations(value), 0, wrong).ok());
  EXPECT_TRUE(fails(to_one().broadcast(floats({1}), Destinations(value), 1).status(),
                    Code::invalid_argument, "root 1"));
}

TEST(Arguments, InputsAreNotChanged) {
  const PerReplica value = per_replica({1, 2});
  const auto result = *to_one().reduce(ReduceOp::sum, value, Destinations(value));
  EXPECT_EQ(numbers_of(dense(value.components[0].value)), Numbers{1});
  EXPECT_NE(dense(result.components[0].value).data(), dense(value.components[0].value).data());
  const PerReplica alone = per_replica({5});
  const auto copy = *to_one().reduce(ReduceOp::sum, alone, Destinations(alone));
  EXPECT_NE(dense(copy.components[0].value).data(), dense(alone.components[0].value).data());
}

TEST(Broadcast, CopiesAreIndependent) {
  const Destinations four(devices({"CPU:0", "CPU:1", "CPU:2", "CPU:3"}));
  const Tensor three = tensor_of(Dtype::f32, {}, {3});
  const auto result = *hierarchical_copy().broadcast(three, four);
  ASSERT_EQ(result.components.size(), 4u);
  EXPECT_TRUE(all_have(result, {3}));
  const float changed = 4;
  std::memcpy(dense(result.components[0].value).data(), &changed, sizeof changed);
  EXPECT_EQ(numbers_of(dense(result.components[1].value)), Numbers{3});
  EXPECT_EQ(numbers_of(three), Numbers{3});
}

TEST(Broadcast, ADeviceThatIsListedTwiceGetsOneCopy) {
  const Destinations twice(devices({"CPU:0", "/device:CPU:0"}));
  EXPECT_EQ(to_one().broadcast(floats({1}), twice)->components.size(), 1u);
}

}  // namespace
}  // namespace tutti::cross_device
