// Collectives whose blocks have counts of their own, computed in the plainest way.
#pragma once

#include <numeric>
#include <random>
#include <vector>

#include "tests/support/values.h"

namespace tutti::testing {

using Counts = std::vector<size_t>;
using Values = std::vector<double>;

// An all_gather or reduce_scatter with a count for each rank, or an all_to_all with one for each
// pair of ranks: row by row, what rank 0 sends to rank 0, 1, ...
struct Uneven {
  Collective collective = Collective::all_gather;
  int ranks = 1;
  Counts counts;
  Op op = Op::sum;

  bool is_exchange() const { return collective == Collective::all_to_all; }
  size_t count(int from, int to) const {
    return counts[static_cast<size_t>(is_exchange() ? from * ranks + to : from)];
  }
  // Elements that the rank sends to each rank, and gets from each.
  Counts sent(int rank) const {
    Counts row;
    for (int to = 0; to < ranks; ++to) row.push_back(count(rank, to));
    return row;
  }
  Counts received(int rank) const {
    Counts column;
    for (int from = 0; from < ranks; ++from) column.push_back(count(from, rank));
    return column;
  }
  static size_t sum(const Counts& some) {
    return std::accumulate(some.begin(), some.end(), size_t{0});
  }

  Values input(int rank) const {
    size_t size = sum(counts);
    if (collective == Collective::all_gather) size = counts[static_cast<size_t>(rank)];
    if (is_exchange()) size = sum(sent(rank));
    Values values(size);
    for (size_t i = 0; i < size; ++i) values[i] = contribution(op, rank, i);
    return values;
  }
  Values output(int rank) const {
    Values all;
    if (collective == Collective::reduce_scatter) {
      size_t first = 0;
      for (int before = 0; before < rank; ++before) first += counts[static_cast<size_t>(before)];
      for (size_t i = 0; i < counts[static_cast<size_t>(rank)]; ++i)
        all.push_back(expected(op, ranks, first + i));
      return all;
    }
    for (int from = 0; from < ranks; ++from) {
      const Values theirs = input(from);
      size_t first = 0;
      for (int before = 0; is_exchange() && before < rank; ++before) first += count(from, before);
      const size_t size = count(from, rank);
      all.insert(all.end(), theirs.begin() + static_cast<long>(first),
                 theirs.begin() + static_cast<long>(first + size));
    }
    return all;
  }
};

inline constexpr Collective kUnevenCollectives[] = {
    Collective::all_gather, Collective::reduce_scatter, Collective::all_to_all};

// Counts of every kind: none, few, `large`, and zeros among them.
inline std::vector<Uneven> uneven_cases(int ranks, size_t large) {
  std::vector<Uneven> cases;
  std::mt19937 random(static_cast<unsigned>(ranks));
  for (const Collective collective : kUnevenCollectives) {
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
      cases.push_back({collective, ranks, counts});
  }
  return cases;
}

}  // namespace tutti::testing
