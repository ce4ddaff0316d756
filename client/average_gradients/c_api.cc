// The C ABI of average_gradients: c_api.h.
#include "client/average_gradients/c_api.h"

#include "client/average_gradients/average_gradients.h"
#include "client/cross_device/c_values.h"
#include "client/frameworks/last_error.h"
#include "client/frameworks/require_given.h"

namespace tutti::average_gradients {
namespace {

using cross_device::Component;
using cross_device::Mirrored;
using frameworks::require_given;

std::optional<double> number_at(const double* number) {
  return number == nullptr ? std::nullopt : std::optional<double>(*number);
}

Result<Options> options_of(const tutti_average_options& given) {
  const Result<NonePolicy> none = parse_none_policy(cross_device::text_of(given.none));
  if (!none.ok()) return none.status();
  return Options{.none = *none,
                 .strict = given.strict != 0,
                 .sum_duplicates = given.sum_duplicates != 0,
                 .clip_norm = number_at(given.clip_norm),
                 .clip_global_norm = number_at(given.clip_global_norm),
                 .compare_variables = given.compare_variables != 0,
                 .timeout_seconds = number_at(given.timeout_seconds),
                 .strategy = cross_device::text_of(given.strategy)};
}

Result<Gradient> gradient_of(const tutti_gradient& given) {
  Gradient gradient{{}, cross_device::text_of(given.variable)};
  if (given.value == nullptr) return gradient;
  Result<Value> value = cross_device::value_of(*given.value);
  if (!value.ok()) return value.status();
  gradient.value = *std::move(value);
  return gradient;
}

Result<std::vector<Tower>> towers_of(const tutti_gradient* gradients, const size_t* lengths,
                                     size_t count) {
  std::vector<Tower> towers(count);
  for (size_t i = 0; i < count; ++i)
    for (size_t at = 0; at < lengths[i]; ++at) {
      if (gradients == nullptr) return require_given({{"gradients", gradients}});
      Result<Gradient> gradient = gradient_of(*gradients++);
      if (!gradient.ok()) return gradient.status();
      towers[i].push_back(*std::move(gradient));
    }
  return towers;
}

std::vector<Mirrored> results_of(std::vector<std::optional<Value>> means) {
  std::vector<Mirrored> results;
  for (std::optional<Value>& mean : means) {
    Mirrored& result = results.emplace_back();
    if (mean) result.components.push_back(Component{*std::move(mean), {}});
  }
  return results;
}

struct Arguments {
  std::vector<Tower> towers;
  Options options;
};

Result<Arguments> arguments_of(const tutti_gradient* gradients, const size_t* lengths, size_t count,
                               const tutti_average_options* given, tutti_mirrored** results) {
  const size_t none = 0;
  const Status pointers = require_given(
      {{"options", given}, {"results", results}, {"lengths", count == 0 ? &none : lengths}});
  if (!pointers.ok()) return pointers;
  Result<Options> options = options_of(*given);
  if (!options.ok()) return options.status();
  Result<std::vector<Tower>> towers = towers_of(gradients, lengths, count);
  if (!towers.ok()) return towers.status();
  return Arguments{*std::move(towers), *std::move(options)};
}

Status run(const Result<Arguments>& arguments, tutti_group* group, tutti_mirrored** results) {
  if (!arguments.ok()) return refuse(arguments.status(), group);
  Result<std::vector<std::optional<Value>>> means =
      average_gradients(arguments->towers, arguments->options, group);
  if (!means.ok()) return means.status();
  *results = new tutti_mirrored(results_of(*std::move(means)));
  return {};
}

}  // namespace
}  // namespace tutti::average_gradients

tutti_code tutti_average_gradients(const tutti_gradient* gradients, const size_t* lengths,
                                   size_t towers, const tutti_average_options* options,
                                   tutti_group* group, tutti_mirrored** results) {
  return tutti::frameworks::guarded([&] {
    const auto arguments = tutti::frameworks::no_throw([&] {
      return tutti::average_gradients::arguments_of(gradients, lengths, towers, options, results);
    });
    return tutti::average_gradients::run(arguments, group, results);
  });
}

tutti_code tutti_average_gradients_refuse(tutti_group* group, const char* message) {
  return tutti::frameworks::guarded([&] {
    const std::string why = tutti::cross_device::text_of(message);
    return tutti::average_gradients::refuse(tutti::invalid_argument(why), group);
  });
}
