// Strategies against TensorFlow's, over the random cases that record_strategy.py has recorded.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "client/faces/distribute/strategy.h"
#include "client/faces/distribute/variable.h"

namespace tutti::distribute {
namespace {

using Json = nlohmann::json;

const Json& strategy_cases(const std::string& section) {
  static const Json table = Json::parse(std::ifstream(TUTTI_RECORDED "/strategy.json"));
  return table.at(section);
}

std::unique_ptr<Strategy> four_replicas() {
  StrategyOptions options;
  options.local_replicas = 4;
  options.cluster.variables = environment_of({});
  return *Strategy::create(std::move(options));
}

Tensor tensor_of(const Json& recorded) {
  const auto values = recorded.at("values").get<std::vector<float>>();
  Tensor tensor = Tensor::allocate(Dtype::f32, recorded.at("shape").get<Shape>());
  std::memcpy(tensor.data(), values.data(), tensor.bytes());
  return tensor;
}

std::vector<Tensor> tensors_of(const Json& recorded) {
  std::vector<Tensor> tensors;
  for (const Json& tensor : recorded) tensors.push_back(tensor_of(tensor));
  return tensors;
}

std::vector<float> floats_of(const Tensor& tensor) {
  const auto* first = reinterpret_cast<const float*>(tensor.data());
  return {first, first + tensor.count()};
}

// The recorded tensor, or an error in place of an exception.
void expect_same_tensor(const Json& recorded, const Result<std::vector<Tensor>>& ours) {
  if (recorded.is_string()) {
    EXPECT_EQ(ours.status().code(), Code::invalid_argument) << ours.status().to_string();
    return;
  }
  ASSERT_TRUE(ours.ok()) << ours.status().to_string();
  EXPECT_EQ((*ours)[0].shape(), recorded.at("shape").get<Shape>());
  EXPECT_EQ(floats_of((*ours)[0]), floats_of(tensor_of(recorded)));
}

TEST(RecordedFromTensorflow, Reductions) {
  const auto strategy = four_replicas();
  for (const Json& of : strategy_cases("reduce")) {
    SCOPED_TRACE(of.dump());
    const std::vector<Tensor> inputs = tensors_of(of.at("inputs"));
    std::optional<std::vector<int64_t>> axes;
    if (!of.at("axes").is_null()) axes = of.at("axes").get<std::vector<int64_t>>();
    const ReduceOp op = *parse_reduce_op(of.at("op").get<std::string>());
    expect_same_tensor(of.at("result"), strategy->reduce(op, {inputs}, axes));
  }
}

TEST(RecordedFromTensorflow, Gathers) {
  const auto strategy = four_replicas();
  for (const Json& of : strategy_cases("gather")) {
    SCOPED_TRACE(of.dump());
    const std::vector<Tensor> inputs = tensors_of(of.at("inputs"));
    expect_same_tensor(of.at("result"), strategy->gather({inputs}, of.at("axis").get<int64_t>()));
  }
}

Update update_of(const std::string& name) {
  if (name == "assign") return Update::assign;
  return name == "assign_add" ? Update::assign_add : Update::assign_sub;
}

// One value: between the replicas; four: within them.
Status play(Strategy& strategy, Variable& variable, const Json& step) {
  const Update update = update_of(step.at("update").get<std::string>());
  const auto values = step.at("values").get<std::vector<float>>();
  const auto give = [&](size_t i) {
    const Tensor view = Tensor::view(Dtype::f32, {}, &values[i]);
    return variable.update(update, {&view, 1});
  };
  if (values.size() == 1) return give(0);
  return strategy.run([&](ReplicaContext& replica) { return give(replica.index()); });
}

// Between replicas TensorFlow assigns to such a variable as we do, but then reads its value to
// return it, which raises.
bool reads_in_vain(const VariableOptions& options, const Json& step) {
  return options.synchronization == Synchronization::on_read &&
         options.aggregation == Aggregation::none && step.at("values").size() == 1;
}

void play_variable(Strategy& strategy, const Json& of) {
  const VariableOptions options = {
      "v", *parse_synchronization(of.at("synchronization").get<std::string>()),
      *parse_aggregation(of.at("aggregation").get<std::string>())};
  const auto initial = of.at("initial").get<float>();
  const Tensor view = Tensor::view(Dtype::f32, {}, &initial);
  const auto variable = *Variable::create(strategy, view, options);
  for (const Json& step : of.at("updates")) {
    SCOPED_TRACE(step.dump());
    const Status status = play(strategy, *variable, step);
    if (!reads_in_vain(options, step)) {
      EXPECT_EQ(status.ok(), step.at("raised").is_null()) << status.to_string();
    }
    for (size_t i = 0; i < 4; ++i)
      EXPECT_EQ(floats_of(variable->copies()[i])[0], step.at("copies")[i].get<float>()) << i;
  }
  const Result<Tensor> value = variable->value();
  ASSERT_EQ(value.ok(), !of.at("value").is_string()) << value.status().to_string();
  if (value.ok()) {
    EXPECT_EQ(floats_of(*value)[0], of.at("value").get<float>());
  }
}

TEST(RecordedFromTensorflow, Variables) {
  const auto strategy = four_replicas();
  for (const Json& of : strategy_cases("variables")) {
    SCOPED_TRACE(of.dump());
    play_variable(*strategy, of);
  }
}

TEST(RecordedFromTensorflow, RowsOfGlobalBatches) {
  for (const Json& of : strategy_cases("rows")) {
    SCOPED_TRACE(of.dump());
    const auto rows = of.at("rows").get<int64_t>();
    const auto batch = of.at("batch").get<int64_t>();
    int64_t first = 0;
    for (const Json& shares : of.at("shares")) {
      const int64_t size = std::min(batch, rows - first);
      for (int replica = 0; replica < 4; ++replica) {
        std::vector<int64_t> ours;
        const Rows share = *rows_of_replica(size, {replica, 4});
        for (int64_t row = share.begin; row < share.end; ++row) ours.push_back(first + row);
        EXPECT_EQ(ours, shares[static_cast<size_t>(replica)].get<std::vector<int64_t>>());
      }
      first += size;
    }
    EXPECT_EQ(first, rows);
  }
}

}  // namespace
}  // namespace tutti::distribute
