// The gradients of this process's towers: local_gradients.h.
#include "client/faces/average_gradients/local_gradients.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "client/faces/average_gradients/clip.h"

namespace tutti::average_gradients {
namespace {

using cross_device::Destinations;
using cross_device::PerReplica;

Status check_norm(const std::optional<double>& norm, const std::string& name) {
  if (!norm || (*norm > 0 && std::isfinite(*norm))) return {};
  return invalid_argument(name + " must be a finite number above 0, but " + text_of(*norm) +
                          " is specified");
}

Status check_options(const Options& options) {
  const Status before = check_norm(options.clip_norm, "clip_norm");
  if (!before.ok()) return before;
  const Status after = check_norm(options.clip_global_norm, "clip_global_norm");
  if (!after.ok()) return after;
  return check_timeout(options.timeout_seconds);
}

// The number of variables that all towers have.
Result<size_t> count_variables(const std::vector<Tower>& towers, bool strict) {
  if (towers.empty()) return size_t{0};
  size_t least = towers[0].size();
  for (size_t i = 1; i < towers.size(); ++i) {
    if (strict && towers[i].size() != towers[0].size())
      return invalid_argument("the towers have different numbers of gradients: tower 0 has " +
                              std::to_string(towers[0].size()) + ", tower " + std::to_string(i) +
                              " has " + std::to_string(towers[i].size()) +
                              "; strict=False leaves out those that are too many");
    least = std::min(least, towers[i].size());
  }
  return least;
}

Status refuse_none(const std::string& label, size_t tower) {
  return invalid_argument("the gradient of " + label + " is None in tower " +
                          std::to_string(tower) +
                          "; give all, or choose none='skip' or none='zeros'");
}

Status about(const std::string& label, const Status& status) {
  return invalid_argument(label + ": " + status.message());
}

Status check_dtype(const Value& value, const Options& options, bool is_alone) {
  const Dtype dtype = elements_of(value).dtype();
  const bool clips = options.clip_norm || options.clip_global_norm;
  if (is_floating(dtype) || (is_alone && !clips)) return {};
  return invalid_argument("gradients of " + std::string(name_of(dtype)) +
                          " have no mean; convert them to a floating dtype first");
}

Value clipped(const Value& value, const Options& options) {
  if (!options.clip_norm) return value;
  return scale_to(value, *options.clip_norm, norm_of({&value}));
}

Status add(LocalGradients& gradients, std::vector<Value> values) {
  gradients.present = static_cast<int64_t>(values.size());
  if (values.empty()) return {};
  const PerReplica value(std::move(values));
  auto plan = plan_reduction(ReduceOp::sum, value, Destinations(value), {});
  if (!plan.ok()) return about(gradients.label, plan.status());
  gradients.plan = *std::move(plan);
  return {};
}

Result<LocalGradients> gather_one(const std::vector<Tower>& towers, size_t index,
                                  const Options& options, bool is_alone) {
  LocalGradients gradients;
  gradients.variable = towers[0][index].variable;
  gradients.label = label_of(gradients.variable, index);
  std::vector<Value> values;
  for (size_t tower = 0; tower < towers.size(); ++tower) {
    const std::optional<Value>& value = towers[tower][index].value;
    if (!value && options.none == NonePolicy::error) return refuse_none(gradients.label, tower);
    if (!value) continue;
    const Status checked = check_dtype(*value, options, is_alone);
    if (!checked.ok()) return about(gradients.label, checked);
    values.push_back(clipped(*value, options));
  }
  const Status added = add(gradients, std::move(values));
  if (!added.ok()) return added;
  return gradients;
}

}  // namespace

std::string label_of(const std::string& variable, size_t index) {
  return variable.empty() ? "variable " + std::to_string(index) : "variable '" + variable + "'";
}

std::string text_of(double number) {
  std::array<char, 32> text;
  const auto written = std::to_chars(text.begin(), text.end(), number);
  return {text.begin(), written.ptr};
}

std::optional<Value> LocalGradients::form() const {
  if (!plan) return {};
  return plan->sparse ? Value(*plan->sparse) : Value(plan->dense[0]);
}

Result<std::vector<LocalGradients>> gather_local(const std::vector<Tower>& towers,
                                                 const Options& options, bool is_alone) {
  if (const Status checked = check_options(options); !checked.ok()) return checked;
  const Result<size_t> count = count_variables(towers, options.strict);
  if (!count.ok()) return count.status();
  std::vector<LocalGradients> all;
  for (size_t i = 0; i < *count; ++i) {
    Result<LocalGradients> gradients = gather_one(towers, i, options, is_alone);
    if (!gradients.ok()) return gradients.status();
    all.push_back(*std::move(gradients));
  }
  return all;
}

}  // namespace tutti::average_gradients
