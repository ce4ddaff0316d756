// Strategies of some replicas in different layouts: all in one process, and over real agents,
// workers and ranks. What a body checks must hold in each.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "client/faces/distribute/strategy.h"
#include "tests/support/test_mesh.h"

namespace tutti::distribute {

// A tensor that holds its values.
struct Values {
  std::vector<float> numbers;
  Shape shape;

  Values(std::vector<float> given) : Values(std::move(given), Shape()) {  // NOLINT: as a list.
    shape = {static_cast<int64_t>(numbers.size())};
  }
  Values(std::vector<float> given, Shape of) : numbers(std::move(given)), shape(std::move(of)) {}
  static Values scalar(float number) { return {{number}, {}}; }
  Tensor view() const { return Tensor::view(Dtype::f32, shape, numbers.data()); }
};

// The value of each replica, by id, from which each process takes those of its own. They must
// outlive the views.
inline PerReplica own_of(const Strategy& strategy, const std::vector<Values>&& all) = delete;
inline PerReplica own_of(const Strategy& strategy, const std::vector<Values>& all) {
  PerReplica own;
  for (const int id : strategy.replicas().local())
    own.push_back(all[static_cast<size_t>(id)].view());
  return own;
}

template <class T = float>
std::vector<T> numbers_of(const Tensor& view) {
  const T* first = reinterpret_cast<const T*>(view.data());
  return {first, first + view.count()};
}

inline std::string text_of(const Tensor& view) {
  std::string text = describe(view) + ":";
  for (const float number : numbers_of(view)) text += " " + std::to_string(number);
  return text;
}

// Ends the trainer unless `got` is the one tensor `want`.
inline void check_value(const Result<std::vector<Tensor>>& got, const Values& want,
                        const std::string& what) {
  testing::check(got.ok(), what + ": " + got.status().to_string());
  testing::check(text_of((*got)[0]) == text_of(want.view()),
                 what + " is " + text_of((*got)[0]) + ", not " + text_of(want.view()));
}

inline void check_fails(const Status& status, Code code, const std::string& part) {
  testing::check(
      status.code() == code && status.message().find(part) != std::string::npos,
      "'" + status.to_string() + "' is not " + std::string(name_of(code)) + " with '" + part + "'");
}

struct Layout {
  std::string name;
  std::vector<int> per_host;          // Ranks.
  std::vector<std::vector<int>> ids;  // Of the replicas of each rank; empty: one each.
};

inline std::unique_ptr<Strategy> make_strategy(StrategyOptions options) {
  options.cluster.variables = environment_of({});
  Result<std::unique_ptr<Strategy>> strategy = Strategy::create(std::move(options));
  testing::check(strategy.ok(), "Strategy: " + strategy.status().to_string());
  return *std::move(strategy);
}

// An assignment of these replicas to tasks, of a mesh with a row for each task.
inline DeviceAssignment assignment_of(const std::vector<std::vector<int>>& ids) {
  int replicas = 0;
  size_t most = 1;
  for (const std::vector<int>& task : ids) {
    replicas += static_cast<int>(task.size());
    most = std::max(most, task.size());
  }
  std::vector<std::vector<std::vector<int>>> devices;
  DeviceAssignment::CoreAssignment cores(static_cast<size_t>(replicas));
  for (size_t task = 0; task < ids.size(); ++task) {
    auto& row = devices.emplace_back();
    for (int device = 0; device < static_cast<int>(most); ++device)
      row.push_back({static_cast<int>(task), 0, 0, device});
    for (size_t i = 0; i < ids[task].size(); ++i)
      cores[static_cast<size_t>(ids[task][i])] = {
          {static_cast<int>(task), 0, 0, static_cast<int>(i)}};
  }
  Result<Topology> topology = Topology::create(
      {static_cast<int>(ids.size()), 1, 1, static_cast<int>(most)}, devices, "CPU");
  return *DeviceAssignment::create(*std::move(topology), std::move(cores));
}

// One mesh for the whole file; each test has its own job.
class Layouts : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { mesh_ = new testing::TestMesh(2); }
  static void TearDownTestSuite() { delete std::exchange(mesh_, nullptr); }

  using Body = std::function<void(Strategy&)>;

  static std::string run(const Layout& layout, const Body& body) {
    const std::string job =
        std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()) + "-" +
        layout.name;
    return mesh_->run(job, layout.per_host, [&](const testing::RankContext& context) {
      StrategyOptions options;
      std::optional<Group> group;
      if (context.world_size > 1) options.cluster.group = group.emplace(context.join()).get();
      if (!layout.ids.empty()) options.device_assignment = assignment_of(layout.ids);
      const std::unique_ptr<Strategy> strategy = make_strategy(options);
      body(*strategy);
    });
  }

  // Four replicas.
  static void expect_on_all(const Body& body) {
    const std::vector<Layout> layouts = {{"one", {1}, {{0, 1, 2, 3}}},
                                         {"each", {2, 2}, {}},
                                         {"pairs", {1, 1}, {{0, 2}, {1, 3}}},
                                         {"uneven", {2, 1}, {{1}, {0, 3}, {2}}}};
    for (const Layout& layout : layouts) EXPECT_EQ(run(layout, body), "") << layout.name;
  }
  // Two replicas.
  static void expect_on_pairs(const Body& body) {
    EXPECT_EQ(run({"one", {1}, {{0, 1}}}, body), "");
    EXPECT_EQ(run({"each", {1, 1}, {}}, body), "");
  }

  static testing::TestMesh* mesh_;
};

inline testing::TestMesh* Layouts::mesh_ = nullptr;

}  // namespace tutti::distribute
