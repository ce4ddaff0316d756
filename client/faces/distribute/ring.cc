#include "client/faces/distribute/ring.h"

#include <algorithm>
#include <ranges>

namespace tutti::distribute {
namespace {

using Point = std::array<int, 2>;  // Column, row.

// The cycle through a grid of even sizes, without its first point (0,0).
std::vector<Point> cycle_behind_origin(int columns, int rows) {
  std::vector<Point> cycle;
  for (int row = 0; row < rows; ++row)
    for (int step = 1; step < columns; ++step)
      cycle.push_back({row % 2 == 0 ? step : columns - step, row});
  for (int row = rows - 1; row > 0; --row) cycle.push_back({0, row});
  return cycle;
}

std::vector<Chip> row_by_row(const Chip& sizes) {
  std::vector<Chip> chips;
  for (int z = 0; z < sizes[2]; ++z)
    for (int y = 0; y < sizes[1]; ++y)
      for (int x = 0; x < sizes[0]; ++x) chips.push_back({x, y, z});
  return chips;
}

std::vector<Chip> flat_ring(const Chip& sizes, size_t first_axis, size_t second_axis) {
  std::vector<Chip> chips = {{0, 0, 0}};
  for (const Point& point : cycle_behind_origin(sizes[first_axis], sizes[second_axis])) {
    Chip chip = {0, 0, 0};
    chip[first_axis] = point[0];
    chip[second_axis] = point[1];
    chips.push_back(chip);
  }
  return chips;
}

std::vector<Chip> layered_ring(const Chip& sizes) {
  std::vector<Chip> chips = {{0, 0, 0}};
  std::vector<Point> cycle = cycle_behind_origin(sizes[0], sizes[1]);
  for (int z = 0; z < sizes[2]; ++z) {
    for (const Point& point : cycle) chips.push_back({point[0], point[1], z});
    std::ranges::reverse(cycle);
  }
  for (int z = sizes[2] - 1; z > 0; --z) chips.push_back({0, 0, z});
  return chips;
}

}  // namespace

std::vector<Chip> ring_of(const Chip& sizes) {
  const auto extends = [](int size) { return size > 1; };
  const auto extended = std::ranges::count_if(sizes, extends);
  const auto odd = [](int size) { return size > 1 && size % 2 != 0; };
  if (extended <= 1 || std::ranges::any_of(sizes, odd)) return row_by_row(sizes);
  if (extended == 3) return layered_ring(sizes);
  return flat_ring(sizes, extends(sizes[0]) ? 0 : 1, extends(sizes[2]) ? 2 : 1);
}

}  // namespace tutti::distribute
