#include "client/faces/base/reduce_op.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace tutti::faces {
namespace {

constexpr std::array<std::string_view, 2> kReduceOps = {"SUM", "MEAN"};

}  // namespace

Result<size_t> find_name(std::span<const std::string_view> names, const std::string& what,
                         std::string_view name) {
  std::string upper(name);
  std::ranges::transform(upper, upper.begin(), [](unsigned char c) { return std::toupper(c); });
  const auto found = std::ranges::find(names, upper);
  if (found != names.end()) return static_cast<size_t>(found - names.begin());
  std::string list;
  for (const std::string_view known : names)
    list += (list.empty() ? "" : ", ") + std::string(known);
  return invalid_argument(what + " '" + std::string(name) + "' is none of " + list);
}

std::string_view name_of(ReduceOp op) { return kReduceOps[static_cast<size_t>(op)]; }

Result<ReduceOp> parse_reduce_op(std::string_view name) {
  const Result<size_t> found = find_name(kReduceOps, "reduce_op", name);
  if (!found.ok()) return found.status();
  return static_cast<ReduceOp>(*found);
}

Status check_reducible(ReduceOp op, Dtype dtype) {
  if (dtype == Dtype::boolean)
    return invalid_argument(std::string(name_of(op)) +
                            " of bools, whose sum would be an OR; convert the value to integers");
  if (op == ReduceOp::sum || is_floating(dtype)) return {};
  return invalid_argument("MEAN needs a floating dtype, but the value is of " +
                          std::string(name_of(dtype)) + "; convert it, or use SUM");
}

}  // namespace tutti::faces
