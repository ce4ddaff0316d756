#include "client/operations/exchange.h"

#include <algorithm>
#include <string>
#include <vector>

#include "client/operations/submission.h"
#include "client/rank/options.h"

namespace tutti::client {
namespace {

// What all ranks told of their counts: for each rank its in_counts, then its out_counts.
class CountTable {
 public:
  explicit CountTable(size_t ranks) : ranks_(ranks), values_(ranks * ranks * 2) {}

  uint64_t* data() { return values_.data(); }
  uint64_t sent(size_t from, size_t to) const { return values_[from * 2 * ranks_ + to]; }
  uint64_t expected(size_t from, size_t to) const { return values_[(to * 2 + 1) * ranks_ + from]; }

  // FAILED_PRECONDITION: the first pair of ranks that disagree. The same on all ranks.
  Status check() const {
    for (size_t from = 0; from < ranks_; ++from)
      for (size_t to = 0; to < ranks_; ++to)
        if (sent(from, to) != expected(from, to))
          return failed_precondition("all_to_all: rank " + std::to_string(from) + " sends " +
                                     std::to_string(sent(from, to)) + " elements to rank " +
                                     std::to_string(to) + ", which expects " +
                                     std::to_string(expected(from, to)));
    return {};
  }

  // By block: see base/blocks.h.
  std::vector<uint64_t> counts() const {
    std::vector<uint64_t> counts;
    for (size_t from = 0; from < ranks_; ++from)
      for (size_t to = 0; to < ranks_; ++to) counts.push_back(sent(from, to));
    return counts;
  }

 private:
  size_t ranks_;
  std::vector<uint64_t> values_;
};

Status gather_counts(Group& group, const ExchangeArgs& args, const tutti_options* options,
                     CountTable& table) {
  const size_t ranks = group.ranks.size();
  std::vector<uint64_t> own(2 * ranks);
  constexpr size_t kLeast = offsetof(tutti_options, timeout_ms) + sizeof(int32_t);
  tutti_options given = tutti_defaults();
  const bool is_sound = read_sized(options, kLeast, "tutti_defaults()", given).ok();
  given = options_of_part(options);
  CollectiveArgs gather{TUTTI_ALL_GATHER, own.data(), table.data(), own.size(), TUTTI_U64,
                        TUTTI_SUM,        0};
  if (args.in_counts == nullptr || args.out_counts == nullptr) {
    gather.fault = "in_counts or out_counts is NULL; give the number of elements for each rank";
  } else {
    std::copy_n(args.in_counts, ranks, own.begin());
    std::copy_n(args.out_counts, ranks, own.begin() + static_cast<ptrdiff_t>(ranks));
  }
  return run(group, gather, is_sound ? &given : options, nullptr);
}

// The options, which are valid, with what is left of their timeout since `start`.
tutti_options remaining(const Group& group, const tutti_options* options, TimePoint start) {
  tutti_options given = tutti_defaults();
  static_cast<void>(read_sized(options, 0, "", given));
  given.size = sizeof(given);
  if (given.timeout_ms <= 0)
    given.timeout_ms = static_cast<int32_t>(group.connection->target().timeout_ms);
  const auto passed = std::chrono::duration_cast<Millis>(Clock::now() - start).count();
  given.timeout_ms = static_cast<int32_t>(std::max<int64_t>(1, given.timeout_ms - passed));
  return given;
}

}  // namespace

Status run(Group& group, const ExchangeArgs& args, const tutti_options* options,
           std::shared_ptr<PendingOp>* op, std::shared_ptr<Awaitable>* passing) {
  const TimePoint start = Clock::now();
  CountTable table(group.ranks.size());
  if (Status s = gather_counts(group, args, options, table); !s.ok()) return s;
  if (Status s = table.check(); !s.ok()) return s;
  const std::vector<uint64_t> counts = table.counts();
  const tutti_options left = remaining(group, options, start);
  return run(
      group,
      CollectiveArgs{TUTTI_ALL_TO_ALL, args.in, args.out, 0, args.dtype, TUTTI_SUM, 0, counts},
      &left, op, passing);
}

}  // namespace tutti::client
