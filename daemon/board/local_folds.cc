#include "daemon/board/local_folds.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace tutti {
namespace {

int arity_of(const Strategy& local, int contributions) {
  const int widest = std::max(1, contributions - 1);
  if (local.kind == StrategyKind::ring) return 1;
  if (local.kind == StrategyKind::tree)
    return static_cast<int>(std::min(local.arity, static_cast<uint32_t>(widest)));
  return widest;
}

}  // namespace

void Folds::append() {
  require(count_ < kLocalRanksMax, "a host has more ranks than a board has room for");
  ends_[count_] = count_ == 0 ? 0 : ends_[count_ - 1];
  ++count_;
}

// Folds the heap's members from the last to the first, so that children precede their parents. An
// only child's fold is the last one made, and is extended: (its value) op x, which has the same
// bits as x op (its value).
Folds local_folds(const Strategy& local, int contributions) {
  const int n = contributions, k = arity_of(local, n);
  require(n >= 1 && n <= static_cast<int>(kLocalRanksMax), "a host has as many ranks as a board");
  Folds folds;
  std::array<int, kLocalRanksMax>
      value;  // By member, as a term: a leaf's contribution, else a result.
  std::iota(value.begin(), value.end(), 0);
  for (int i = n - 1; i >= 0; --i) {
    const int64_t first = int64_t{k} * i + 1;
    if (first >= n) continue;
    const int last = static_cast<int>(std::min<int64_t>(n - 1, first + k - 1));
    if (first == last && value[first] < 0) {
      folds.append_term(i);
      value[i] = value[first];
      continue;
    }
    folds.append();
    folds.append_term(i);
    for (int child = static_cast<int>(first); child <= last; ++child)
      folds.append_term(value[child]);
    value[i] = ~static_cast<int>(folds.size() - 1);
  }
  if (folds.empty()) {
    folds.append();
    folds.append_term(0);
  }
  return folds;
}

}  // namespace tutti
