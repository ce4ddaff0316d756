// Ours against TensorFlow's, bit by bit, over the cases that record_tensorflow.py has recorded.
#include <fstream>
#include <nlohmann/json.hpp>

#include "client/faces/base/base.h"
#include "tests/cross_device/values.h"

namespace tutti::cross_device {
namespace {

using Json = nlohmann::json;
using Bits = std::vector<uint64_t>;

const Json& cases(const std::string& section) {
  static const Json table = Json::parse(std::ifstream(TUTTI_RECORDED "/tensorflow.json"));
  return table.at(section);
}

Dtype dtype_of(const Json& recorded) {
  const auto name = recorded.value("dtype", "float32");
  return name == "float32" ? Dtype::f32 : name == "float64" ? Dtype::f64 : Dtype::i64;
}

// Numbers given as their bits; both sides are little-endian.
Tensor tensor_of_bits(Dtype dtype, const Json& recorded, Shape shape) {
  Tensor tensor = Tensor::allocate(dtype, std::move(shape));
  const auto bits = recorded.get<Bits>();
  EXPECT_EQ(bits.size(), tensor.count());
  for (size_t i = 0; i < bits.size(); ++i)
    std::memcpy(tensor.data() + i * size_of(dtype), &bits[i], size_of(dtype));
  return tensor;
}

Bits bits_of(const Tensor& tensor) {
  Bits bits(tensor.count());
  for (size_t i = 0; i < bits.size(); ++i)
    std::memcpy(&bits[i], tensor.data() + i * size_of(tensor.dtype()), size_of(tensor.dtype()));
  return bits;
}

ReduceOp op_of(const Json& recorded) {
  return *parse_reduce_op(recorded.at("op").get<std::string>());
}

PerReplica tensors_of(const Json& recorded, const Json& by_replica, const Shape& shape) {
  std::vector<Value> values;
  for (const Json& bits : by_replica)
    values.emplace_back(tensor_of_bits(dtype_of(recorded), bits, shape));
  return PerReplica(std::move(values));
}

TEST(TensorFlow, HierarchicalCopy) {
  ASSERT_EQ(cases("hierarchical_copy").size(), 20u);
  for (const Json& one : cases("hierarchical_copy")) {
    const auto ops = *HierarchicalCopyAllReduce::create(one.at("num_packs").get<int64_t>());
    std::vector<CrossDeviceOps::Pair> pairs;
    for (size_t i = 0; i < one.at("shapes").size(); ++i) {
      const PerReplica value =
          tensors_of(one, one.at("values")[i], one.at("shapes")[i].get<Shape>());
      pairs.emplace_back(value, Destinations(value));
    }
    const auto results = *ops.batch_reduce(op_of(one), pairs);
    for (size_t i = 0; i < results.size(); ++i)
      for (const Component& component : results[i].components)
        EXPECT_EQ(bits_of(dense(component.value)), one.at("results")[i].get<Bits>())
            << one.at("replicas") << " replicas, " << one.at("op") << " of " << one.at("dtype");
  }
}

TEST(TensorFlow, ReductionToOneDevice) {
  ASSERT_EQ(cases("to_one_device").size(), 18u);
  for (const Json& one : cases("to_one_device")) {
    const PerReplica value = tensors_of(one, one.at("values"), {5});
    const auto result = *ReductionToOneDevice::create()->reduce(op_of(one), value,
                                                                Destinations(devices({"CPU:0"})));
    EXPECT_EQ(bits_of(dense(result.components[0].value)), one.at("result").get<Bits>())
        << one.at("replicas") << " replicas, " << one.at("op") << " of " << one.at("dtype");
  }
}

IndexedSlices slices_of(const Json& indices, const Json& values) {
  const auto rows = static_cast<int64_t>(indices.size());
  return {tensor_of_bits(Dtype::f32, values, {rows, 2}),
          tensor_of_bits(Dtype::i64, indices, {rows}), Shape{6, 2}};
}

TEST(TensorFlow, Sparse) {
  ASSERT_EQ(cases("sparse").size(), 8u);
  for (const Json& one : cases("sparse")) {
    std::vector<Value> values;
    for (size_t i = 0; i < one.at("values").size(); ++i)
      values.emplace_back(slices_of(one.at("indices")[i], one.at("values")[i]));
    const PerReplica value(std::move(values));
    const auto result =
        *HierarchicalCopyAllReduce::create()->reduce(op_of(one), value, Destinations(value));
    const auto& slices = std::get<IndexedSlices>(result.components[0].value);
    EXPECT_EQ(bits_of(slices.indices), one.at("result").at("indices").get<Bits>());
    EXPECT_EQ(bits_of(slices.values), one.at("result").at("values").get<Bits>());
  }
}

TEST(TensorFlow, PackSizes) {
  ASSERT_EQ(cases("pack_sizes").size(), 40u);
  for (const Json& one : cases("pack_sizes"))
    EXPECT_EQ(pack_sizes(one.at("total"), one.at("num_packs")),
              one.at("sizes").get<std::vector<size_t>>());
}

TEST(TensorFlow, PacksByBytes) {
  ASSERT_EQ(cases("packs_by_bytes").size(), 40u);
  for (const Json& one : cases("packs_by_bytes")) {
    const auto sizes = one.at("sizes").get<std::vector<size_t>>();
    std::vector<std::vector<size_t>> packs;
    for (const Pack& pack : pack_by_bytes(sizes, sizeof(float), one.at("bytes_per_pack"))) {
      packs.emplace_back();
      for (const Piece& piece : pack) packs.back().push_back(piece.count);
    }
    EXPECT_EQ(packs, one.at("packs").get<std::vector<std::vector<size_t>>>()) << one;
  }
}

CommunicationOptions options_of(const Json& recorded) {
  CommunicationOptions options{.bytes_per_pack = recorded.at("bytes_per_pack")};
  if (!recorded.at("timeout_seconds").is_null())
    options.timeout_seconds = recorded.at("timeout_seconds").get<double>();
  options.implementation = *parse_implementation(recorded.at("implementation").get<std::string>());
  return options;
}

TEST(TensorFlow, MergeOfOptions) {
  ASSERT_EQ(cases("merge").size(), 20u);
  for (const Json& one : cases("merge"))
    EXPECT_EQ(options_of(one.at("own")).merge(options_of(one.at("other"))),
              options_of(one.at("merged")))
        << one;
}

}  // namespace
}  // namespace tutti::cross_device
