#include "daemon/board/local_folds.h"

#include <algorithm>
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

// Members are folded from the last, so each finds its children's values made. An only child's fold
// is gone on with: (its value) op x, instead of x op (its value).
std::vector<Fold> local_folds(const Strategy& local, int contributions) {
  const int n = contributions, k = arity_of(local, n);
  std::vector<Fold> folds;
  std::vector<int> value(n);  // As a term: the contribution of a leaf, else a fold's result.
  std::iota(value.begin(), value.end(), 0);
  for (int i = n - 1; i >= 0; --i) {
    const int64_t first = int64_t{k} * i + 1;
    if (first >= n) continue;
    const int last = static_cast<int>(std::min<int64_t>(n - 1, first + k - 1));
    if (first == last && value[first] < 0) {
      folds[~value[first]].terms.push_back(i);
      value[i] = value[first];
      continue;
    }
    Fold fold{{i}};
    for (int child = static_cast<int>(first); child <= last; ++child)
      fold.terms.push_back(value[child]);
    folds.push_back(std::move(fold));
    value[i] = ~static_cast<int>(folds.size() - 1);
  }
  if (folds.empty()) folds.push_back({{0}});
  return folds;
}

}  // namespace tutti
