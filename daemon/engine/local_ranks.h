// The ranks of a host that take part in an operation: what each contributes to a range, where its
// result goes, and in which order contributions are folded.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/engine/engine.h"
#include "daemon/engine/geometry.h"

namespace tutti {

// Both references must outlive it.
class LocalRanks {
 public:
  LocalRanks(const Operation& operation, const Geometry& geometry);

  // The parts of the range, in order, that are contiguous in the tensors of every rank: one, if
  // there are no lists. The addresses below are for such parts.
  std::vector<Range> pieces(int chunk, const Range& range) const;
  // In folding order.
  const std::vector<const RankBuffers*>& all() const { return ranks_; }
  const Folds& folds() const { return operation_.execution->folds; }
  // Whether the plan has no other host.
  bool are_alone() const { return operation_.execution->plan.hosts.size() == 1; }
  // What the results are divided by.
  uint32_t divisor() const;
  // Into `all`, in place of what it holds.
  void inputs(int chunk, const Range& range, std::vector<const std::byte*>& all) const;
  std::vector<const std::byte*> inputs(int chunk, const Range& range) const {
    std::vector<const std::byte*> all;
    inputs(chunk, range, all);
    return all;
  }
  // What inputs() are multiplied by, one for each; empty: nothing.
  std::vector<double> factors(int chunk, const Range& range) const;
  // Output addresses of the ranks that want the chunk. As for inputs().
  void outputs(int chunk, const Range& range, std::vector<std::byte*>& all) const;
  std::vector<std::byte*> outputs(int chunk, const Range& range) const {
    std::vector<std::byte*> all;
    outputs(chunk, range, all);
    return all;
  }
  // As outputs(), of one rank; null: it does not want the chunk.
  std::byte* output(const RankBuffers& rank, int chunk, const Range& range) const;

 private:
  const ListedSides* listed(const RankBuffers& rank, uint64_t offset) const;
  const std::byte* input(const RankBuffers& rank, int chunk, const Range& range) const;

  const Operation& operation_;
  const Geometry& geometry_;
  std::vector<const RankBuffers*> ranks_;
};

}  // namespace tutti
