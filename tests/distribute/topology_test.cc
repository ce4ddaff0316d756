// Topologies: what is accepted, where devices are, and rings through them.
#include "client/faces/distribute/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "client/faces/distribute/ring.h"

namespace tutti::distribute {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Devices = std::vector<std::vector<std::vector<int>>>;

Topology make(const std::vector<int>& mesh, const Devices& devices) {
  Result<Topology> topology = Topology::create(mesh, devices);
  EXPECT_TRUE(topology.ok()) << topology.status().to_string();
  return *std::move(topology);
}

TEST(Topology, MapsCoordinatesToDevicesAndBack) {
  const Topology topology = make({2, 1, 1, 2}, {{{1, 0, 0, 1}, {0, 0, 0, 0}}});
  EXPECT_EQ(topology.num_tasks(), 1);
  EXPECT_EQ(topology.devices_per_task(), 2);
  EXPECT_EQ(*topology.device_at({1, 0, 0, 1}), (DeviceId{0, 0}));
  EXPECT_EQ(*topology.coordinates({0, 1}), (Coordinates{0, 0, 0, 0}));
  EXPECT_THAT(topology.missing_devices(),
              ElementsAre(Coordinates{0, 0, 0, 1}, Coordinates{1, 0, 0, 0}));
}

TEST(Topology, RefusesPlacesWithoutADevice) {
  const Topology topology = make({2, 1, 1, 1}, {{{0, 0, 0, 0}}});
  EXPECT_THAT(topology.device_at({1, 0, 0, 0}).status().message(), HasSubstr("have no device"));
  for (const Coordinates& outside : {Coordinates{2, 0, 0, 0}, {0, 0, 0, -1}})
    EXPECT_THAT(topology.device_at(outside).status().message(), HasSubstr("not in mesh_shape"));
  for (const DeviceId absent : {DeviceId{1, 0}, {0, 1}, {-1, 0}, {0, -1}})
    EXPECT_EQ(topology.coordinates(absent).status().code(), Code::out_of_range);
}

void expect_refused(const std::vector<int>& mesh, const Devices& devices, const std::string& text) {
  const Status status = Topology::create(mesh, devices).status();
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_THAT(status.message(), HasSubstr(text));
}

TEST(Topology, RefusesMeshesThatAreNotFourPositiveSizes) {
  const Devices one = {{{0, 0, 0, 0}}};
  expect_refused({1, 1, 1}, one, "mesh_shape=(1,1,1) must have 4 positive sizes");
  expect_refused({1, 1, 1, 1, 1}, one, "must have 4 positive sizes");
  expect_refused({1, 1, 0, 1}, one, "must have 4 positive sizes");
  expect_refused({1, 1, 1, -2}, one, "must have 4 positive sizes");
  expect_refused({1 << 20, 1 << 20, 1 << 20, 1 << 20}, one, "positions; use a smaller mesh");
}

TEST(Topology, RefusesDevicesThatDoNotFit) {
  expect_refused({1, 1, 1, 1}, {}, "no device");
  expect_refused({1, 1, 1, 1}, {{}}, "no device");
  expect_refused({2, 1, 1, 1}, {{{0, 0, 0, 0}}, {}}, "task 1 has 0 devices, task 0 has 1");
  expect_refused({1, 1, 1, 1}, {{{0, 0, 0}}}, "task 0, device 0: (0,0,0) must have 4 numbers");
  expect_refused({1, 1, 1, 1}, {{{0, 0, 1, 0}}}, "(0,0,1,0) is not in mesh_shape=(1,1,1,1)");
  expect_refused({1, 1, 1, 1}, {{{0, 0, 0, -1}}}, "is not in mesh_shape");
  expect_refused({2, 1, 1, 1}, {{{0, 0, 0, 0}}, {{0, 0, 0, 0}}},
                 "task 1, device 0: (0,0,0,0) has a device already, of task 0");
}

TEST(Topology, NamesDevices) {
  const Topology topology = make({1, 1, 1, 1}, {{{0, 0, 0, 0}}});
  EXPECT_EQ(topology.device_name({3, 2}, "worker"), "/job:worker/task:3/device:GPU:2");
  EXPECT_EQ(topology.device_name({3, 2}), "/task:3/device:GPU:2");
  EXPECT_EQ(Topology::host_name(3, "worker"), "/job:worker/task:3/device:CPU:0");
  EXPECT_EQ(Topology::host_name(3), "/task:3/device:CPU:0");
}

TEST(OrderByTask, SortsByTaskThenDevice) {
  EXPECT_THAT(order_by_task({{0, 0}, {0, 2}, {1, 0}, {1, 2}, {1, 6}, {1, 4}, {0, 6}, {0, 4}}),
              ElementsAre(0, 1, 7, 6, 2, 3, 5, 4));
}

std::set<DeviceId> set_of(const std::vector<DeviceId>& tour) { return {tour.begin(), tour.end()}; }

TEST(RingOrder, OfTwoHostsCrossesTwice) {
  const Topology nodes =
      make({2, 1, 1, 4}, {{{0, 0, 0, 0}, {0, 0, 0, 1}, {0, 0, 0, 2}, {0, 0, 0, 3}},
                          {{1, 0, 0, 0}, {1, 0, 0, 1}, {1, 0, 0, 2}, {1, 0, 0, 3}}});
  EXPECT_THAT(nodes.ring_order(),
              ElementsAre(DeviceId{0, 0}, DeviceId{0, 1}, DeviceId{0, 2}, DeviceId{0, 3},
                          DeviceId{1, 0}, DeviceId{1, 1}, DeviceId{1, 2}, DeviceId{1, 3}));
  EXPECT_EQ(count_task_changes(nodes.ring_order()), 2);
  // Hosts as halves of a 4 x 2 mesh: the snake itself crosses twice, and neighbours are adjacent.
  const Topology halves =
      make({4, 2, 1, 1}, {{{0, 0, 0, 0}, {1, 0, 0, 0}, {0, 1, 0, 0}, {1, 1, 0, 0}},
                          {{2, 0, 0, 0}, {3, 0, 0, 0}, {2, 1, 0, 0}, {3, 1, 0, 0}}});
  EXPECT_THAT(halves.ring_order(),
              ElementsAre(DeviceId{0, 0}, DeviceId{0, 1}, DeviceId{1, 0}, DeviceId{1, 1},
                          DeviceId{1, 3}, DeviceId{1, 2}, DeviceId{0, 3}, DeviceId{0, 2}));
  EXPECT_EQ(count_task_changes(halves.ring_order()), 2);
}

TEST(RingOrder, PutsScatteredTasksTogether) {
  const Topology topology = make(
      {1, 1, 1, 6},
      {{{0, 0, 0, 2}, {0, 0, 0, 5}}, {{0, 0, 0, 0}, {0, 0, 0, 3}}, {{0, 0, 0, 1}, {0, 0, 0, 4}}});
  EXPECT_THAT(topology.ring_order(), ElementsAre(DeviceId{1, 0}, DeviceId{1, 1}, DeviceId{2, 0},
                                                 DeviceId{2, 1}, DeviceId{0, 0}, DeviceId{0, 1}));
}

TEST(RingOrder, LeavesOutMissingDevices) {
  const Topology topology = make({2, 2, 1, 1}, {{{0, 0, 0, 0}}, {{0, 1, 0, 0}}, {{1, 1, 0, 0}}});
  EXPECT_THAT(topology.ring_order(), ElementsAre(DeviceId{0, 0}, DeviceId{2, 0}, DeviceId{1, 0}));
  EXPECT_EQ(count_task_changes(topology.ring_order()), 3);
  EXPECT_EQ(count_task_changes(make({1, 1, 1, 1}, {{{0, 0, 0, 0}}}).ring_order()), 0);
}

int distance(const Chip& a, const Chip& b) {
  return std::abs(a[0] - b[0]) + std::abs(a[1] - b[1]) + std::abs(a[2] - b[2]);
}

TEST(Ring, VisitsEachChipOnceAndOnlyNeighbours) {
  for (const Chip& sizes : {Chip{2, 2, 1},
                            {4, 6, 1},
                            {4, 1, 2},
                            {1, 6, 4},
                            {2, 2, 2},
                            {4, 4, 4},
                            {2, 6, 4},
                            {8, 2, 2}}) {
    const std::vector<Chip> ring = ring_of(sizes);
    EXPECT_EQ(std::set<Chip>(ring.begin(), ring.end()).size(), ring.size());
    EXPECT_EQ(ring.size(), static_cast<size_t>(sizes[0] * sizes[1] * sizes[2]));
    for (size_t i = 0; i < ring.size(); ++i)
      EXPECT_EQ(distance(ring[i], ring[(i + 1) % ring.size()]), 1) << testing::PrintToString(ring);
  }
}

TEST(Ring, OfOddSizesGoesRowByRow) {
  EXPECT_THAT(ring_of({2, 3, 1}), ElementsAre(Chip{0, 0, 0}, Chip{1, 0, 0}, Chip{0, 1, 0},
                                              Chip{1, 1, 0}, Chip{0, 2, 0}, Chip{1, 2, 0}));
  EXPECT_THAT(ring_of({1, 1, 1}), ElementsAre(Chip{0, 0, 0}));
  EXPECT_THAT(ring_of({1, 3, 1}), ElementsAre(Chip{0, 0, 0}, Chip{0, 1, 0}, Chip{0, 2, 0}));
}

TEST(RingOrder, HasEveryDevice) {
  Devices devices(4);
  for (int i = 0; i < 64; ++i)
    devices[static_cast<size_t>(i * 7 % 4)].push_back({i / 16, i / 4 % 4, i / 2 % 2, i % 2});
  const Topology topology = make({4, 4, 2, 2}, devices);
  EXPECT_EQ(set_of(topology.ring_order()).size(), 64u);
  EXPECT_EQ(count_task_changes(topology.ring_order()), 4);
}

}  // namespace
}  // namespace tutti::distribute
