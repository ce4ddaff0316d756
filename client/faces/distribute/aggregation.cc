#include "client/faces/distribute/aggregation.h"

#include <array>
#include <string_view>

namespace tutti::distribute {
namespace {

constexpr std::array<std::string_view, 4> kAggregations = {"NONE", "SUM", "MEAN",
                                                           "ONLY_FIRST_REPLICA"};
constexpr std::array<std::string_view, 4> kSynchronizations = {"AUTO", "NONE", "ON_WRITE",
                                                               "ON_READ"};

}  // namespace

std::string to_string(Aggregation aggregation) {
  return std::string(kAggregations[static_cast<size_t>(aggregation)]);
}

Result<Aggregation> parse_aggregation(const std::string& name) {
  const Result<size_t> found = find_name(kAggregations, "aggregation", name);
  if (!found.ok()) return found.status();
  return static_cast<Aggregation>(*found);
}

Result<Synchronization> parse_synchronization(const std::string& name) {
  const Result<size_t> found = find_name(kSynchronizations, "synchronization", name);
  if (!found.ok()) return found.status();
  return static_cast<Synchronization>(*found);
}

Result<ReduceOp> reduce_op_of(Aggregation aggregation) {
  if (aggregation == Aggregation::sum) return ReduceOp::sum;
  if (aggregation == Aggregation::mean) return ReduceOp::mean;
  return invalid_argument("aggregation " + to_string(aggregation) +
                          " does not reduce; only SUM and MEAN do");
}

}  // namespace tutti::distribute
