#include "client/faces/distribute/replica_grid.h"

#include <algorithm>

#include "client/faces/distribute/ring.h"

namespace tutti::distribute {
namespace {

using CoreAssignment = DeviceAssignment::CoreAssignment;

// The core first, then x, y, z.
constexpr std::array<size_t, kMeshRank> kCoreFirst = {3, 0, 1, 2};

int64_t product(const Coordinates& sizes) {
  int64_t product = 1;
  for (const int size : sizes) product *= size;
  return product;
}

Coordinates multiply(const Coordinates& a, const Coordinates& b) {
  return {a[0] * b[0], a[1] * b[1], a[2] * b[2], a[3] * b[3]};
}

// The smallest number whose power reaches `number`.
int64_t root_above(int64_t number, size_t exponent) {
  const auto reaches = [&](int64_t base) {
    int64_t power = 1;
    for (size_t i = 0; i < exponent && power < number; ++i) power *= base;
    return power >= number;
  };
  int64_t root = 1;
  while (!reaches(root)) ++root;
  return root;
}

// Four positive numbers no larger than the mesh.
Result<Coordinates> read_sizes(const std::string& argument,
                               const std::optional<std::vector<int>>& given,
                               const Coordinates& mesh) {
  Coordinates sizes = {1, 1, 1, 1};
  if (!given) return sizes;
  if (given->size() != kMeshRank)
    return invalid_argument(argument + " has " + std::to_string(given->size()) +
                            " numbers; it must have 4, x, y, z and core");
  std::ranges::copy(*given, sizes.begin());
  if (std::ranges::any_of(sizes, [](int size) { return size < 1; }))
    return invalid_argument(argument + "=" + to_string(sizes) +
                            " must be positive; use 1 for an "
                            "axis along which there is nothing to do");
  for (size_t axis = 0; axis < kMeshRank; ++axis)
    if (sizes[axis] > mesh[axis])
      return invalid_argument(argument + "=" + to_string(sizes) +
                              " does not fit in mesh_shape=" + to_string(mesh) + "; lower it");
  return sizes;
}

// A checked request.
struct Packing {
  Coordinates shape, stride;
  Coordinates block = {};   // shape * stride.
  Coordinates limits = {};  // Replicas that fit along each axis.
  int replicas = 1;
};

Status validate_replicas(const Packing& packing, const Coordinates& mesh) {
  const int64_t most = product(packing.limits);
  if (packing.replicas >= 1 && packing.replicas <= most) return {};
  return invalid_argument("num_replicas=" + std::to_string(packing.replicas) + ", but 1 to " +
                          std::to_string(most) +
                          " replicas of computation_shape=" + to_string(packing.shape) +
                          " with computation_stride=" + to_string(packing.stride) +
                          " fit in mesh_shape=" + to_string(mesh));
}

Result<Packing> read_packing(const BuildOptions& options, const Coordinates& mesh) {
  const Result<Coordinates> shape =
      read_sizes("computation_shape", options.computation_shape, mesh);
  if (!shape.ok()) return shape.status();
  const Result<Coordinates> stride =
      read_sizes("computation_stride", options.computation_stride, mesh);
  if (!stride.ok()) return stride.status();
  Packing packing = {*shape, *stride, {}, {}, options.num_replicas};
  for (size_t axis = 0; axis < kMeshRank; ++axis) {
    const int64_t side = int64_t{(*shape)[axis]} * (*stride)[axis];
    if (side > mesh[axis])
      return invalid_argument("computation_shape=" + to_string(*shape) +
                              " with computation_stride=" + to_string(*stride) +
                              " does not fit in mesh_shape=" + to_string(mesh) +
                              "; lower one of them");
    packing.block[axis] = static_cast<int>(side);
    packing.limits[axis] = mesh[axis] / packing.block[axis] * (*stride)[axis];
  }
  if (Status status = validate_replicas(packing, mesh); !status.ok()) return status;
  return packing;
}

// The ring of a replica's chips, each with its cores, within the ring of the replicas.
CoreAssignment assign_ring(const Packing& packing, const Coordinates& grid) {
  const Coordinates& shape = packing.shape;
  const std::vector<Chip> inner = ring_of({shape[0], shape[1], shape[2]});
  CoreAssignment assignment;
  for (const Chip& outer : ring_of({grid[0], grid[1], grid[2]})) {
    std::vector<Coordinates>& cores = assignment.emplace_back();
    for (const Chip& chip : inner)
      for (int core = 0; core < shape[3]; ++core)
        cores.push_back({outer[0] * shape[0] + chip[0], outer[1] * shape[1] + chip[1],
                         outer[2] * shape[2] + chip[2], core});
  }
  return assignment;
}

// All points of a block of these sizes, the last axis fastest.
std::vector<Coordinates> points_of(const Coordinates& sizes) {
  std::vector<Coordinates> points;
  for (int x = 0; x < sizes[0]; ++x)
    for (int y = 0; y < sizes[1]; ++y)
      for (int z = 0; z < sizes[2]; ++z)
        for (int core = 0; core < sizes[3]; ++core) points.push_back({x, y, z, core});
  return points;
}

// The first core of a replica.
Coordinates origin_of(int replica, const Packing& packing, const Coordinates& grid) {
  Coordinates origin = {};
  for (const size_t axis : kCoreFirst) {
    const int place = replica % grid[axis];
    replica /= grid[axis];
    const int stride = packing.stride[axis];
    origin[axis] = place / stride * packing.block[axis] + place % stride;
  }
  return origin;
}

CoreAssignment assign_mesh(const Packing& packing, const Coordinates& grid) {
  const std::vector<Coordinates> points = points_of(packing.shape);
  CoreAssignment assignment;
  for (int replica = 0; replica < packing.replicas; ++replica) {
    const Coordinates origin = origin_of(replica, packing, grid);
    std::vector<Coordinates>& cores = assignment.emplace_back();
    for (const Coordinates& point : points) {
      const Coordinates offset = multiply(point, packing.stride);
      cores.push_back({origin[0] + offset[0], origin[1] + offset[1], origin[2] + offset[2],
                       origin[3] + offset[3]});
    }
  }
  return assignment;
}

Result<CoreAssignment> assign_present(const Topology& topology, const Packing& packing) {
  if (product(packing.stride) != 1)
    return invalid_argument("computation_stride=" + to_string(packing.stride) +
                            " must be all 1: the mesh has missing devices");
  const int64_t per_replica = product(packing.shape);
  const std::vector<Coordinates>& devices = topology.devices();
  if (packing.replicas * per_replica > static_cast<int64_t>(devices.size()))
    return invalid_argument("num_replicas=" + std::to_string(packing.replicas) + " want " +
                            std::to_string(packing.replicas * per_replica) + " devices, but " +
                            std::to_string(devices.size()) + " are not missing; lower it");
  CoreAssignment assignment;
  for (auto next = devices.begin(); assignment.size() < static_cast<size_t>(packing.replicas);
       next += per_replica)
    assignment.emplace_back(next, next + per_replica);
  return assignment;
}

}  // namespace

Coordinates replica_grid(int64_t replicas, const Coordinates& limits) {
  std::array<size_t, kMeshRank> order = kCoreFirst;
  std::ranges::stable_sort(order, {}, [&](size_t axis) { return limits[axis]; });
  Coordinates grid = {};
  for (size_t i = 0; i < kMeshRank; ++i) {
    const int64_t cube_side = root_above(replicas, kMeshRank - i);
    const int64_t side = std::min<int64_t>(cube_side, limits[order[i]]);
    grid[order[i]] = static_cast<int>(side);
    replicas = (replicas + side - 1) / side;
  }
  return grid;
}

Result<CoreAssignment> assign_cores(const Topology& topology, const BuildOptions& options) {
  const Coordinates& mesh = topology.mesh_shape();
  const Result<Packing> packing = read_packing(options, mesh);
  if (!packing.ok()) return packing.status();
  if (!topology.missing_devices().empty()) return assign_present(topology, *packing);
  const bool ring_possible = packing->shape[3] == mesh[3] && product(packing->stride) == 1 &&
                             packing->replicas == product(packing->limits);
  if (options.device_order_mode == DeviceOrderMode::ring && !ring_possible)
    return invalid_argument(
        "device_order_mode=ring needs replicas of whole chips, computation_stride of 1 and as many "
        "replicas as fit; use automatic");
  const Coordinates grid = replica_grid(packing->replicas, packing->limits);
  const bool ring = ring_possible && options.device_order_mode != DeviceOrderMode::mesh;
  return ring ? assign_ring(*packing, grid) : assign_mesh(*packing, grid);
}

}  // namespace tutti::distribute
