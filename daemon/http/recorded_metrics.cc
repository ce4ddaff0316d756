#include "daemon/http/recorded_metrics.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace tutti {
namespace {

using prometheus::MetricType;

constexpr double kNsPerSecond = 1e9;
constexpr const char* kSizeNames[kSizeClasses] = {"4KiB", "256KiB", "16MiB", "more"};

prometheus::ClientMetric::Histogram histogram_of(const trace::Totals& totals) {
  prometheus::ClientMetric::Histogram histogram;
  for (uint32_t bucket = 0; bucket < kDurationBuckets; ++bucket) {
    histogram.sample_count += totals.durations[bucket];
    const bool is_last = bucket + 1 == kDurationBuckets;
    histogram.bucket.push_back(
        {histogram.sample_count,
         is_last ? std::numeric_limits<double>::infinity()
                 : static_cast<double>(duration_bound_ns(bucket)) / kNsPerSecond});
  }
  histogram.sample_sum = static_cast<double>(totals.duration_ns) / kNsPerSecond;
  return histogram;
}

// Only what has been used: all collectives and sizes would be hundreds of series a rank.
void add_totals(Families& families, const trace::Rank& rank, const Labels& labels) {
  for (size_t collective = 0; collective < kCollectives; ++collective)
    for (size_t size = 0; size < kSizeClasses; ++size) {
      const trace::Totals& totals = rank.totals[collective][size];
      if (std::accumulate(totals.durations.begin(), totals.durations.end(), uint64_t{0}) == 0)
        continue;
      const Labels of = with(with(labels, "collective", std::string(kCollectiveNames[collective])),
                             "size", kSizeNames[size]);
      families.add("tutti_operation_duration_seconds",
                   "From a rank's call until it took note of the end, of operations that ended OK; "
                   "by the most bytes of its tensors.",
                   of, histogram_of(totals));
      families.add("tutti_collective_bytes_total", MetricType::Counter,
                   "Bytes of the tensors of a rank's operations that ended OK, by collective.", of,
                   static_cast<double>(totals.bytes));
    }
}

void add_failures(Families& families, const trace::Rank& rank, const Labels& labels) {
  for (uint32_t code = 1; code < kCodes; ++code)
    if (rank.ended[code] != 0)
      families.add("tutti_operation_failures_total", MetricType::Counter,
                   "Operations of a rank that ended with an error, by code.",
                   with(labels, "code", std::string(name_of(code_of(static_cast<int>(code))))),
                   static_cast<double>(rank.ended[code]));
}

// The counts of all ranks, without their operations.
trace::Rank sum_of(const trace::Trace& trace) {
  trace::Rank sum;
  for (const trace::Rank& rank : trace.ranks) {
    for (uint32_t code = 0; code < kCodes; ++code) sum.ended[code] += rank.ended[code];
    for (size_t collective = 0; collective < kCollectives; ++collective)
      for (size_t size = 0; size < kSizeClasses; ++size) {
        const trace::Totals& more = rank.totals[collective][size];
        trace::Totals& totals = sum.totals[collective][size];
        totals.bytes += more.bytes;
        totals.duration_ns += more.duration_ns;
        for (uint32_t bucket = 0; bucket < kDurationBuckets; ++bucket)
          totals.durations[bucket] += more.durations[bucket];
      }
  }
  return sum;
}

}  // namespace

std::map<uint32_t, double> lateness_of(const trace::Trace& trace) {
  std::map<std::pair<uint32_t, uint64_t>, std::vector<std::pair<uint32_t, uint64_t>>> calls;
  for (const trace::Rank& rank : trace.ranks)
    for (const trace::Operation& operation : rank.operations)
      calls[{operation.group, operation.number}].emplace_back(rank.rank, operation.begun_ns);
  std::map<uint32_t, std::vector<uint64_t>> late;
  for (const auto& [operation, ranks] : calls) {
    if (ranks.size() < 2) continue;
    const uint64_t first =
        std::ranges::min_element(ranks, {}, [](auto& call) { return call.second; })->second;
    for (const auto& [rank, begun] : ranks) late[rank].push_back(begun - first);
  }
  std::map<uint32_t, double> medians;
  for (auto& [rank, times] : late) {
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::ranges::nth_element(times, middle);
    medians[rank] = static_cast<double>(*middle) / kNsPerSecond;
  }
  return medians;
}

void add_recorded(Families& families, const trace::Trace& trace, const Labels& job, bool per_rank) {
  const auto labels_of = [&](uint32_t rank) {
    return per_rank ? with(job, "rank", std::to_string(rank)) : job;
  };
  const std::vector<trace::Rank> ranks =
      per_rank ? trace.ranks : std::vector<trace::Rank>{sum_of(trace)};
  for (const trace::Rank& rank : ranks) {
    add_totals(families, rank, labels_of(rank.rank));
    add_failures(families, rank, labels_of(rank.rank));
  }
  std::map<uint32_t, double> late = lateness_of(trace);
  const auto latest = std::ranges::max_element(late, {}, [](auto& entry) { return entry.second; });
  if (!per_rank && latest != late.end()) late = {*latest};
  for (const auto& [rank, seconds] : late)
    families.add("tutti_rank_lateness_seconds", MetricType::Gauge,
                 "How much later than the first rank of its node a rank called; the median of its "
                 "last operations.",
                 labels_of(rank), seconds);
}

}  // namespace tutti
