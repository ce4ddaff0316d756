// A closed walk through a 3-dimensional grid of chips.
#pragma once

#include <array>
#include <vector>

namespace tutti::distribute {

using Chip = std::array<int, 3>;  // x, y, z.

// Every chip of a grid of these sizes once, from (0,0,0) on; sizes are at least 1.
//
// A grid that extends along one axis only is walked along it. If every size above 1 is even, each
// chip is next to the one before it and the last is next to the first: a snake through rows of
// columns 1 to n-1, back along column 0; in three dimensions one snake per layer, joined in the
// corner, back along the edge x = y = 0. Any other grid is walked row by row, x fastest. The order
// is that of TensorFlow's device assignment.
std::vector<Chip> ring_of(const Chip& sizes);

}  // namespace tutti::distribute
