// Exchange: every host sends every other one its blocks directly, under every strategy. A host
// begins with the one after it, so that no host is sent to by all at once.
//
// COST. With m members and s(p) ranks at p, R in all: 1 round; p sends and receives s(p) (R -
// s(p)).
#include <numeric>

#include "daemon/schedule/strategies.h"

namespace tutti {
namespace {

int ranks_of(const Shares& shares) {
  return std::accumulate(shares.begin(), shares.end(), 0, [](int sum, const auto& share) {
    return sum + static_cast<int>(share.size());
  });
}

// A step for each block that goes from `senders` to `receivers`.
void pair_steps(StepKind kind, int peer, const std::vector<int>& senders,
                const std::vector<int>& receivers, int ranks, Steps& out) {
  for (const int sender : senders)
    for (const int receiver : receivers) out.push_back({kind, peer, sender * ranks + receiver});
}

void exchange_steps(const Level& level, int self, const Shares& shares, Steps& out) {
  const int members = size_of(level);
  const int ranks = ranks_of(shares);
  for (int distance = 1; distance < members; ++distance) {
    const int to = (self + distance) % members;
    pair_steps(StepKind::send, level.members[to], shares[self], shares[to], ranks, out);
  }
  for (int distance = 1; distance < members; ++distance) {
    const int from = (self + members - distance) % members;
    pair_steps(StepKind::recv, level.members[from], shares[from], shares[self], ranks, out);
  }
}

void exchange_cost(const Level&, const Sizes& sizes, Tally& tally) {
  const int ranks = std::accumulate(sizes.begin(), sizes.end(), 0);
  for (size_t p = 0; p < sizes.size(); ++p) {
    tally.clock[p] = sizes.size() > 1 ? 1 : 0;
    tally.sent[p] += sizes[p] * (ranks - sizes[p]);
    tally.received[p] += sizes[p] * (ranks - sizes[p]);
  }
}

}  // namespace

Form exchange_form() { return {exchange_steps, exchange_cost}; }

}  // namespace tutti
