#include "client/distribute/reduce_op.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

namespace tutti::distribute {
namespace {

constexpr std::array<std::string_view, 2> kReduceOps = {"SUM", "MEAN"};
constexpr std::array<std::string_view, 4> kAggregations = {"NONE", "SUM", "MEAN",
                                                           "ONLY_FIRST_REPLICA"};
constexpr std::array<std::string_view, 4> kSynchronizations = {"AUTO", "NONE", "ON_WRITE",
                                                               "ON_READ"};

template <class Enum, size_t N>
Result<Enum> parse(const std::array<std::string_view, N>& names, const std::string& argument,
                   const std::string& name) {
  std::string upper = name;
  std::ranges::transform(upper, upper.begin(), [](unsigned char c) { return std::toupper(c); });
  const auto* found = std::ranges::find(names, upper);
  if (found != names.end()) return static_cast<Enum>(found - names.begin());
  std::string list;
  for (const std::string_view known : names)
    list += (list.empty() ? "" : ", ") + std::string(known);
  return invalid_argument(argument + " '" + name + "' is none of " + list);
}

}  // namespace

std::string to_string(ReduceOp op) { return std::string(kReduceOps[static_cast<size_t>(op)]); }

std::string to_string(Aggregation aggregation) {
  return std::string(kAggregations[static_cast<size_t>(aggregation)]);
}

Result<ReduceOp> parse_reduce_op(const std::string& name) {
  return parse<ReduceOp>(kReduceOps, "reduce_op", name);
}

Result<Aggregation> parse_aggregation(const std::string& name) {
  return parse<Aggregation>(kAggregations, "aggregation", name);
}

Result<Synchronization> parse_synchronization(const std::string& name) {
  return parse<Synchronization>(kSynchronizations, "synchronization", name);
}

Result<ReduceOp> reduce_op_of(Aggregation aggregation) {
  if (aggregation == Aggregation::sum) return ReduceOp::sum;
  if (aggregation == Aggregation::mean) return ReduceOp::mean;
  return invalid_argument("aggregation " + to_string(aggregation) +
                          " does not reduce; only SUM and MEAN do");
}

}  // namespace tutti::distribute
