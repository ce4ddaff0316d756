// The local phase as arithmetic: folds over memory, block by block. It needs nothing but a kernel,
// so it serves the worker and the client's library alike.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "daemon/kernel/kernel.h"

namespace tutti {

// One pass over several values, strictly in this order.
struct Fold {
  // t >= 0: the t-th contribution; else the result of fold number ~t.
  std::vector<int> terms;
  bool operator==(const Fold&) const = default;
};

// What run_folds() works on. A target may be exactly one of the contributions where there is one
// fold; with more folds, each contribution is read before that element of any target is written.
struct FoldWork {
  std::span<const Fold> folds;
  std::span<const std::byte* const> contributions;
  std::span<const Target> targets;
  Dtype dtype = Dtype::f32;  // Of the contributions.
  Op op = Op::sum;
  uint64_t count = 0;
  uint32_t divisor = 1;
  bool past_cache = false;
  std::byte* scratch = nullptr;  // For inner results; see scratch_bytes().
};

// So many elements of every contribution are folded before the next ones are looked at.
inline constexpr uint64_t kFoldBlock = 4096;

constexpr size_t scratch_bytes(size_t folds, Dtype dtype) {
  return (folds - 1) * kFoldBlock * size_of(accumulator_of(dtype));
}

// `pass` makes one FoldJob and says whether to go on; false: it did not.
template <class Pass>
bool run_folds(const FoldWork& work, Pass pass) {
  const Dtype inner = accumulator_of(work.dtype);
  const size_t element = size_of(work.dtype);
  const uint64_t block = work.folds.size() == 1 ? work.count : kFoldBlock;
  const auto inner_result = [&](size_t fold) {
    return work.scratch + fold * kFoldBlock * size_of(inner);
  };
  std::vector<Operand> sources;
  std::vector<Target> targets(work.targets.begin(), work.targets.end());
  for (uint64_t first = 0; first < work.count; first += block) {
    const uint64_t count = std::min(block, work.count - first);
    for (size_t i = 0; i < work.folds.size(); ++i) {
      sources.clear();
      for (const int term : work.folds[i].terms)
        sources.push_back(
            term < 0 ? Operand{inner_result(static_cast<size_t>(~term)), inner}
                     : Operand{work.contributions[static_cast<size_t>(term)] + first * element,
                               work.dtype});
      const bool last = i + 1 == work.folds.size();
      const Target within{inner_result(i), inner};
      for (size_t t = 0; last && t < targets.size(); ++t)
        targets[t].data =
            static_cast<std::byte*>(work.targets[t].data) + first * size_of(work.targets[t].dtype);
      if (!pass(FoldJob{last ? targets.data() : &within, last ? targets.size() : 1, sources.data(),
                        sources.size(), count, work.op, last ? work.divisor : 1,
                        last && work.past_cache}))
        return false;
    }
  }
  return true;
}

}  // namespace tutti
