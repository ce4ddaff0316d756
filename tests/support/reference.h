// What every rank gives to a collective and what it gets, element by element: small whole numbers,
// which every dtype holds, in; float64 arithmetic beside.
#pragma once

#include <numeric>
#include <random>
#include <vector>

#include "tests/support/values.h"

namespace tutti::testing {

// What rank `rank` holds at `index`: 0..3, or 1..2 for products. Bitwise, 0 or a number that all
// ranks share, so that the same results say which bools are true.
inline double contribution(Op op, int rank, size_t index) {
  if (is_bitwise(op)) return static_cast<double>((index * 37 >> rank % 6 & 1) * (1 + index % 100));
  const size_t mixed = index * 7 + static_cast<size_t>(rank) * 5 + index / 11;
  return op == Op::prod ? 1 + static_cast<double>(mixed % 16 == 0) : static_cast<double>(mixed % 4);
}

// What rank `rank` holds at `index` for a collective that only moves it: 0..100, which tells ranks
// and places apart.
inline double moved(int rank, size_t index) {
  return static_cast<double>((index * 7 + static_cast<size_t>(rank) * 29 + index / 11) % 101);
}

// How the dtype holds a result: f32 rounds a mean, and of truths every reduction says whether that
// of small numbers is 0.
inline double held(Dtype dtype, double value) {
  if (dtype == Dtype::boolean) return value != 0;
  return dtype == Dtype::f32 ? static_cast<float>(value) : value;
}

// The exact result over `world` ranks.
inline double expected(Op op, int world, size_t index) {
  double result = contribution(op, 0, index);
  for (int rank = 1; rank < world; ++rank)
    result = combined(op, result, contribution(op, rank, index));
  return op == Op::mean ? result / world : result;
}

using Counts = std::vector<size_t>;

// A collective of `count` elements a block; or with a count for each rank, or, an all_to_all, one
// for each pair of ranks: row by row, what rank 0 sends to rank 0, 1, ...
struct Reference {
  Collective collective = Collective::all_reduce;
  int ranks = 1;
  Op op = Op::sum;
  size_t count = 0;
  int root = 0;
  Counts counts = {};
  size_t first = 0;  // Of what a rank contributes, where this tensor begins.

  bool is_exchange() const { return collective == Collective::all_to_all; }
  // Elements of the block that one rank has for another.
  size_t block(int from, int to) const {
    if (counts.empty()) return count;
    if (is_exchange()) return counts[static_cast<size_t>(from * ranks + to)];
    return counts[static_cast<size_t>(collective == Collective::reduce_scatter ? to : from)];
  }
  // What a rank of an all_to_all has for each rank, and gets from each.
  Counts sent(int rank) const {
    Counts row;
    for (int to = 0; to < ranks; ++to) row.push_back(block(rank, to));
    return row;
  }
  Counts received(int rank) const {
    Counts column;
    for (int from = 0; from < ranks; ++from) column.push_back(block(from, rank));
    return column;
  }
  static size_t sum(const Counts& some) {
    return std::accumulate(some.begin(), some.end(), size_t{0});
  }
  // Elements before the rank's block where all ranks' blocks lie, as many as in its own one.
  size_t before(int rank) const {
    size_t all = 0;
    for (int other = 0; other < rank; ++other) all += block(other, other);
    return all;
  }

  size_t inputs(int rank) const {
    if (collective == Collective::barrier) return 0;
    const bool from_root = collective == Collective::broadcast || collective == Collective::scatter;
    if (from_root && rank != root) return 0;
    return has_input_blocks(collective) ? sum(sent(rank)) : block(rank, rank);
  }
  size_t outputs(int rank) const {
    if (collective == Collective::barrier) return 0;
    const bool to_root = collective == Collective::reduce || collective == Collective::gather;
    if (to_root && rank != root) return 0;
    return has_output_blocks(collective) ? sum(received(rank)) : block(rank, rank);
  }
  double reduced(size_t i) const { return expected(op, ranks, first + i); }
  double input(int rank, size_t i) const {
    return reduces(collective) ? contribution(op, rank, first + i) : moved(rank, first + i);
  }
  double output(int rank, size_t i) const {
    if (collective == Collective::broadcast) return input(root, i);
    if (collective == Collective::scatter) return input(root, before(rank) + i);
    if (collective == Collective::reduce_scatter) return reduced(before(rank) + i);
    if (!has_output_blocks(collective)) return reduced(i);
    int from = 0;
    for (; i >= block(from, rank); ++from) i -= block(from, rank);
    for (int to = 0; is_exchange() && to < rank; ++to) i += block(from, to);
    return input(from, i);
  }
};

// All that a rank gives, for a premultiplied sum divided by its factor.
inline Bytes inputs_of(const Reference& reference, Dtype dtype, int rank, double factor = 1) {
  const size_t count = reference.inputs(rank);
  Bytes tensor(count * size_of(dtype));
  for (size_t i = 0; i < count; ++i) put(tensor, dtype, i, reference.input(rank, i) / factor);
  return tensor;
}

// Counts of every kind: none, few, `large`, and zeros among them.
inline std::vector<Reference> uneven_cases(int ranks, size_t large) {
  std::vector<Reference> cases;
  std::mt19937 random(static_cast<unsigned>(ranks));
  for (const Collective collective :
       {Collective::all_gather, Collective::reduce_scatter, Collective::all_to_all}) {
    const auto size =
        static_cast<size_t>(collective == Collective::all_to_all ? ranks * ranks : ranks);
    Counts ascending(size), one_large(size, 0), few(size), mixed(size);
    std::iota(ascending.begin(), ascending.end(), size_t{0});
    one_large[size / 2] = large;
    for (size_t i = 0; i < size; ++i) {
      few[i] = random() % 3;
      mixed[i] = random() % 3 == 0 ? 0 : random() % large;
    }
    for (const Counts& counts :
         {Counts(size, 0), Counts(size, 7), ascending, one_large, few, mixed})
      cases.push_back({.collective = collective, .ranks = ranks, .counts = counts});
  }
  return cases;
}

}  // namespace tutti::testing
