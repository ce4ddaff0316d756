// The rules of DeviceAssignment, one by one; tensorflow_test.cc has random cases.
#include "client/faces/distribute/device_assignment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/faces/distribute/replica_grid.h"

namespace tutti::distribute {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Cores = std::vector<Coordinates>;

// All points of the mesh, the core fastest, dealt to `tasks` tasks.
Topology full(const std::vector<int>& mesh, int tasks = 1) {
  std::vector<std::vector<int>> points;
  for (int x = 0; x < mesh[0]; ++x)
    for (int y = 0; y < mesh[1]; ++y)
      for (int z = 0; z < mesh[2]; ++z)
        for (int core = 0; core < mesh[3]; ++core) points.push_back({x, y, z, core});
  std::vector<std::vector<std::vector<int>>> devices(static_cast<size_t>(tasks));
  const size_t each = points.size() / devices.size();
  for (size_t i = 0; i < each * devices.size(); ++i) devices[i / each].push_back(points[i]);
  return *Topology::create(mesh, devices, "TPU");
}

DeviceAssignment build(const Topology& topology, const BuildOptions& options) {
  Result<DeviceAssignment> built = DeviceAssignment::build(topology, options);
  EXPECT_TRUE(built.ok()) << built.status().to_string();
  return *std::move(built);
}

// The first core of each replica.
Cores first_cores(const DeviceAssignment& assignment) {
  Cores first;
  for (const Cores& replica : assignment.core_assignment()) first.push_back(replica.at(0));
  return first;
}

Status refusal(const Topology& topology, const BuildOptions& options) {
  return DeviceAssignment::build(topology, options).status();
}

void expect_refused(const BuildOptions& options, const std::string& text,
                    const std::vector<int>& mesh = {2, 2, 1, 2}) {
  const Status status = refusal(full(mesh), options);
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_THAT(status.message(), HasSubstr(text));
}

TEST(Build, WholeChipsFormARing) {
  const DeviceAssignment made =
      build(full({2, 2, 1, 2}), {.computation_shape = {{1, 1, 1, 2}}, .num_replicas = 4});
  EXPECT_THAT(made.core_assignment(),
              ElementsAre(Cores{{0, 0, 0, 0}, {0, 0, 0, 1}}, Cores{{1, 0, 0, 0}, {1, 0, 0, 1}},
                          Cores{{1, 1, 0, 0}, {1, 1, 0, 1}}, Cores{{0, 1, 0, 0}, {0, 1, 0, 1}}));
}

TEST(Build, SingleCoresPreferOneChip) {
  const DeviceAssignment made = build(full({2, 2, 1, 2}), {.num_replicas = 4});
  EXPECT_EQ(first_cores(made), (Cores{{0, 0, 0, 0}, {0, 0, 0, 1}, {1, 0, 0, 0}, {1, 0, 0, 1}}));
  EXPECT_EQ(made.num_cores_per_replica(), 1);
}

TEST(Build, CoresOfOneChipAreDivided) {
  const DeviceAssignment made =
      build(full({1, 1, 1, 8}), {.computation_shape = {{1, 1, 1, 2}}, .num_replicas = 4});
  EXPECT_EQ(first_cores(made), (Cores{{0, 0, 0, 0}, {0, 0, 0, 2}, {0, 0, 0, 4}, {0, 0, 0, 6}}));
  EXPECT_EQ(made.core_assignment()[1][1], (Coordinates{0, 0, 0, 3}));
}

TEST(Build, AFlatMeshIsWalkedAsASnake) {
  const DeviceAssignment made = build(full({4, 2, 1, 1}), {.num_replicas = 8});
  EXPECT_EQ(first_cores(made), (Cores{{0, 0, 0, 0},
                                      {1, 0, 0, 0},
                                      {2, 0, 0, 0},
                                      {3, 0, 0, 0},
                                      {3, 1, 0, 0},
                                      {2, 1, 0, 0},
                                      {1, 1, 0, 0},
                                      {0, 1, 0, 0}}));
}

TEST(Build, MeshOrderOnRequest) {
  const DeviceAssignment made =
      build(full({2, 2, 1, 1}), {.num_replicas = 4, .device_order_mode = DeviceOrderMode::mesh});
  EXPECT_EQ(first_cores(made), (Cores{{0, 0, 0, 0}, {1, 0, 0, 0}, {0, 1, 0, 0}, {1, 1, 0, 0}}));
}

TEST(Build, WithStridesReplicasInterleave) {
  const DeviceAssignment made = build(full({4, 1, 1, 1}), {.computation_shape = {{2, 1, 1, 1}},
                                                           .computation_stride = {{2, 1, 1, 1}},
                                                           .num_replicas = 2});
  EXPECT_THAT(made.core_assignment(),
              ElementsAre(Cores{{0, 0, 0, 0}, {2, 0, 0, 0}}, Cores{{1, 0, 0, 0}, {3, 0, 0, 0}}));
}

TEST(Build, ByDefaultOneReplicaOfOneCore) {
  EXPECT_THAT(build(full({2, 2, 1, 2}), {}).core_assignment(), ElementsAre(Cores{{0, 0, 0, 0}}));
}

TEST(Build, RefusesShapesAndStridesThatAreNotFourPositiveNumbers) {
  expect_refused({.computation_shape = {{1, 1, 1}}}, "computation_shape has 3 numbers");
  expect_refused({.computation_shape = {{}}}, "computation_shape has 0 numbers");
  expect_refused({.computation_stride = {{1, 1, 1, 1, 1}}}, "computation_stride has 5 numbers");
  expect_refused({.computation_shape = {{1, 0, 1, 1}}}, "computation_shape=(1,0,1,1)");
  expect_refused({.computation_stride = {{1, 1, -1, 1}}}, "computation_stride=(1,1,-1,1)");
}

TEST(Build, RefusesABlockThatDoesNotFit) {
  expect_refused({.computation_shape = {{3, 1, 1, 1}}}, "does not fit in mesh_shape=(2,2,1,2)");
  expect_refused({.computation_shape = {{2, 1, 1, 1}}, .computation_stride = {{2, 1, 1, 1}}},
                 "with computation_stride=(2,1,1,1) does not fit");
  // The product is beyond an int.
  expect_refused(
      {.computation_shape = {{1 << 20, 1, 1, 1}}, .computation_stride = {{1 << 20, 1, 1, 1}}},
      "does not fit", {1 << 20, 1, 1, 1});
}

TEST(Build, RefusesMoreReplicasThanFit) {
  const BuildOptions five = {.computation_shape = {{1, 1, 1, 2}}, .num_replicas = 5};
  expect_refused(five, "num_replicas=5, but 1 to 4 replicas");
  expect_refused({.num_replicas = 0}, "num_replicas=0");
  expect_refused({.num_replicas = -1}, "num_replicas=-1");
}

TEST(Build, RefusesARingThatIsNotPossible) {
  const auto ring = DeviceOrderMode::ring;
  const std::string text = "device_order_mode=ring needs";
  expect_refused({.num_replicas = 8, .device_order_mode = ring}, text);  // Half chips.
  expect_refused(
      {.computation_shape = {{1, 1, 1, 2}}, .num_replicas = 3, .device_order_mode = ring}, text);
  expect_refused({.computation_shape = {{1, 1, 1, 2}},
                  .computation_stride = {{2, 1, 1, 1}},
                  .num_replicas = 4,
                  .device_order_mode = ring},
                 text);
}

// A mesh of 4 chips of which (1,0,0) is missing; task 0 has the last chip.
Topology degraded() {
  return *Topology::create({2, 2, 1, 1}, {{{1, 1, 0, 0}}, {{0, 0, 0, 0}}, {{0, 1, 0, 0}}});
}

TEST(Build, WithMissingDevicesGoesByTask) {
  const DeviceAssignment made = build(degraded(), {.num_replicas = 3});
  EXPECT_EQ(first_cores(made), (Cores{{1, 1, 0, 0}, {0, 0, 0, 0}, {0, 1, 0, 0}}));
  const DeviceAssignment wide =
      build(degraded(), {.computation_shape = {{2, 1, 1, 1}},
                         .device_order_mode = DeviceOrderMode::ring});  // The mode is ignored.
  EXPECT_THAT(wide.core_assignment(), ElementsAre(Cores{{1, 1, 0, 0}, {0, 0, 0, 0}}));
}

TEST(Build, WithMissingDevicesRefusesStridesAndTooMany) {
  const Status stride = refusal(degraded(), {.computation_stride = {{2, 1, 1, 1}}});
  EXPECT_EQ(stride.code(), Code::invalid_argument);
  EXPECT_THAT(stride.message(), HasSubstr("computation_stride=(2,1,1,1) must be all 1"));
  const Status many = refusal(degraded(), {.num_replicas = 4});
  EXPECT_EQ(many.code(), Code::invalid_argument);
  EXPECT_THAT(many.message(), HasSubstr("num_replicas=4 want 4 devices, but 3 are not missing"));
}

TEST(ReplicaGrid, IsAsCubicAsTheLimitsAllow) {
  EXPECT_EQ(replica_grid(4, {2, 2, 1, 2}), (Coordinates{2, 1, 1, 2}));
  EXPECT_EQ(replica_grid(8, {4, 4, 4, 1}), (Coordinates{2, 2, 2, 1}));
  EXPECT_EQ(replica_grid(64, {4, 4, 4, 4}), (Coordinates{3, 3, 3, 3}));  // 3 * 3 * 3 * 3 >= 64.
  EXPECT_EQ(replica_grid(1, {9, 9, 9, 9}), (Coordinates{1, 1, 1, 1}));
  EXPECT_EQ(replica_grid(16, {1, 1, 16, 1}), (Coordinates{1, 1, 16, 1}));
}

TEST(DeviceAssignment, FindsDevicesAndReplicas) {
  const DeviceAssignment made =
      build(full({4, 1, 1, 2}, 2), {.computation_shape = {{1, 1, 1, 2}}, .num_replicas = 4});
  EXPECT_EQ(*made.coordinates(2, 1), (Coordinates{2, 0, 0, 1}));
  EXPECT_EQ(*made.device_ordinal(3, 1), 3);
  EXPECT_EQ(*made.device_name(3, 0, "worker"), "/job:worker/task:1/device:TPU:2");
  EXPECT_EQ(*made.device_name(), "/task:0/device:TPU:0");
  EXPECT_EQ(*made.host_name(2, 0, "worker"), "/job:worker/task:1/device:CPU:0");
  EXPECT_THAT(*made.lookup_replicas(1, 0), ElementsAre(2, 3));
  EXPECT_EQ(made.lookup_replicas(2, 0).status().code(), Code::invalid_argument);
  EXPECT_EQ(made.lookup_replicas(0, 2).status().code(), Code::invalid_argument);
}

TEST(DeviceAssignment, RefusesIndicesBeyondTheEnd) {
  const DeviceAssignment made = build(full({2, 1, 1, 1}), {.num_replicas = 2});
  for (const auto& [replica, core] : {std::pair(2, 0), {-1, 0}, {0, 1}, {0, -1}}) {
    EXPECT_EQ(made.coordinates(replica, core).status().code(), Code::out_of_range);
    EXPECT_EQ(made.device_ordinal(replica, core).status().code(), Code::out_of_range);
    EXPECT_EQ(made.device_name(replica, core).status().code(), Code::out_of_range);
    EXPECT_EQ(made.host_name(replica, core).status().code(), Code::out_of_range);
  }
}

void expect_no_assignment(const DeviceAssignment::CoreAssignment& cores, const std::string& text) {
  const Status status = DeviceAssignment::create(degraded(), cores).status();
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_THAT(status.message(), HasSubstr(text));
}

TEST(DeviceAssignment, RefusesAnAssignmentThatTheTopologyCannotHave) {
  expect_no_assignment({}, "core_assignment is empty");
  expect_no_assignment({{}}, "core_assignment is empty");
  expect_no_assignment({{{0, 0, 0, 0}}, {}}, "replica 1 has 0 cores, replica 0 has 1");
  expect_no_assignment({{{0, 0, 0, 1}}},
                       "replica 0, core 0: coordinates (0,0,0,1) are not in mesh");
  expect_no_assignment({{{-1, 0, 0, 0}}}, "(-1,0,0,0) are not in mesh");
  expect_no_assignment({{{0, 0, 0, 0}, {1, 0, 0, 0}}},
                       "core 1: coordinates (1,0,0,0) have no device");
}

TEST(DeviceAssignment, ReplicasMayShareADevice) {
  const auto shared = DeviceAssignment::create(degraded(), {{{0, 0, 0, 0}}, {{0, 0, 0, 0}}});
  ASSERT_TRUE(shared.ok());
  EXPECT_THAT(*shared->lookup_replicas(1, 0), ElementsAre(0, 1));
}

}  // namespace
}  // namespace tutti::distribute
