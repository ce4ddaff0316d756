// The arithmetic of the local phase: a local strategy is an order of association, evaluated block
// by block as a sequence of folds over memory.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "daemon/base/strategy.h"
#include "daemon/kernel/kernel.h"
#include "proto/board.h"

namespace tutti {

// A sequence of folds; the result of the last one is the result of all. Each of the at most
// kLocalRanksMax contributions, and each result but the last, is a term of exactly one fold.
// Allocates nothing.
class Folds {
 public:
  size_t size() const { return count_; }
  bool empty() const { return count_ == 0; }
  // The terms of a fold, combined strictly in this order: t >= 0 is the t-th contribution, t < 0
  // the result of fold number ~t (bitwise not: -1 is fold 0, -2 is fold 1).
  std::span<const int16_t> operator[](size_t fold) const {
    const size_t from = fold == 0 ? 0 : ends_[fold - 1];
    return {terms_.data() + from, ends_[fold] - from};
  }

  void clear() { count_ = 0; }
  // Adds a fold without terms.
  void append();
  // Adds a term to the last fold.
  void append_term(int term) { terms_[ends_[count_ - 1]++] = static_cast<int16_t>(term); }

 private:
  std::array<int16_t, 2 * kLocalRanksMax> terms_;  // NOLINT: filled as far as it is used.
  std::array<uint16_t, kLocalRanksMax> ends_;      // NOLINT
  size_t count_ = 0;
};

// The folds of `contributions` (1 to kLocalRanksMax) values under a local strategy. They give the
// same bits as a reduce under that strategy over hosts of one rank each:
//   centralized  ((x0 op x1) op x2) ...
//   tree:K       each member of the K-ary heap folds its own and its children's values, in order
//   ring         the chain, as tree:1: x0 op (x1 op (x2 ...)), folded from the last to the first,
//                which gives the same bits, since every op gives the same for (a, b) and (b, a),
//                but for the zero that min and max choose of +0 and -0
// So bits do not depend on how many hosts there are; a ring rotates over hosts only. Automatic is
// centralized.
Folds local_folds(const Strategy& local, int contributions);

// Elements of every contribution that are folded in one go; fewer where scratch is smaller.
inline constexpr uint64_t kFoldBlock = 4096;

// A fold: target = ((contributions, associated as `folds` says) op carry) / divisor, into every
// target, of which there are at most kLocalRanksMax. With `carry_first`, of one fold, the carry is
// its first term. Where there is one fold, a target may be exactly one of the contributions, or the
// carry; with more folds, each element of every contribution is read before that element of any
// target is written.
struct FoldWork {
  const Folds& folds;
  std::span<const std::byte* const> contributions;
  std::span<const Target> targets;
  Dtype dtype = Dtype::f32;  // Of the contributions.
  Op op = Op::sum;
  uint64_t count = 0;
  uint32_t divisor = 1;
  bool past_cache = false;
  std::span<std::byte> scratch;  // For inner results; see scratch_bytes().
  uint64_t block = kFoldBlock;   // Most elements of every contribution that are folded in one go.
  std::span<const double> factors = {};   // Of the contributions; empty: none.
  Operand carry = {nullptr, Dtype::f32};  // What another host has folded; null: nothing.
  bool carry_first = false;               // Not with factors.
};

// What a fold reads: the contributions and the carry.
constexpr uint64_t read_bytes(const FoldWork& work) {
  const size_t carry = work.carry.data == nullptr ? 0 : size_of(work.carry.dtype);
  return work.count * (work.contributions.size() * size_of(work.dtype) + carry);
}

constexpr size_t scratch_bytes(size_t folds, Dtype dtype) {
  return (folds - 1) * kFoldBlock * size_of(accumulator_of(dtype));
}

// The factors of a fold's terms; inner results have none.
inline void copy_factors(const FoldWork& work, size_t fold, std::span<double> to) {
  size_t t = 0;
  for (const int term : work.folds[fold])
    to[t++] = term < 0 ? 1 : work.factors[static_cast<size_t>(term)];
}

// Calls `pass` with each FoldJob in order. Returns false once `pass` does.
template <class Pass>
bool run_folds(const FoldWork& work, Pass pass) {
  const Dtype inner = accumulator_of(work.dtype);
  const size_t element = size_of(work.dtype);
  const size_t inner_folds = work.folds.size() - 1;
  const uint64_t block =
      inner_folds == 0 ? work.count
                       : std::min(work.block, work.scratch.size() / (inner_folds * size_of(inner)));
  const auto inner_result = [&](size_t fold) {
    return work.scratch.data() + fold * block * size_of(inner);
  };
  std::array<Operand, kLocalRanksMax + 1> sources;  // NOLINT: filled as far as it is used.
  std::array<Target, kLocalRanksMax> targets;       // NOLINT
  std::array<double, kLocalRanksMax + 1> factors;   // NOLINT
  const size_t target_count = work.targets.size();
  std::copy(work.targets.begin(), work.targets.end(), targets.begin());
  for (uint64_t first = 0; first < work.count; first += block) {
    const uint64_t count = std::min(block, work.count - first);
    const Operand carry = {
        static_cast<const std::byte*>(work.carry.data) + first * size_of(work.carry.dtype),
        work.carry.dtype};
    for (size_t i = 0; i < work.folds.size(); ++i) {
      const bool last = i + 1 == work.folds.size();
      const bool has_carry = last && work.carry.data != nullptr;
      size_t source_count = 0;
      if (has_carry && work.carry_first) sources[source_count++] = carry;
      for (const int term : work.folds[i]) {
        const int fold = ~term;
        sources[source_count++] =
            term < 0 ? Operand{inner_result(static_cast<size_t>(fold)), inner}
                     : Operand{work.contributions[static_cast<size_t>(term)] + first * element,
                               work.dtype};
      }
      if (!work.factors.empty()) copy_factors(work, i, factors);
      if (has_carry && !work.carry_first) {
        factors[source_count] = 1;
        sources[source_count++] = carry;
      }
      const Target within{inner_result(i), inner};
      for (size_t t = 0; last && t < target_count; ++t)
        targets[t].data =
            static_cast<std::byte*>(work.targets[t].data) + first * size_of(work.targets[t].dtype);
      if (!pass(FoldJob{last ? targets.data() : &within, last ? target_count : 1, sources.data(),
                        source_count, count, work.op, last ? work.divisor : 1,
                        last && work.past_cache, work.factors.empty() ? nullptr : factors.data()}))
        return false;
    }
  }
  return true;
}

}  // namespace tutti
