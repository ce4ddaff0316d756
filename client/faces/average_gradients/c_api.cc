// The C ABI of average_gradients: c_api.h.
#include "client/faces/average_gradients/c_api.h"

#include "client/faces/average_gradients/average_gradients.h"
#include "client/faces/frameworks/c_values.h"
#include "client/faces/frameworks/last_error.h"

namespace tutti::average_gradients {
namespace {

using namespace frameworks;

std::optional<double> number_at(const double* number) {
  return number == nullptr ? std::nullopt : std::optional<double>(*number);
}

Result<Options> options_of(const tutti_average_options& given) {
  const Result<NonePolicy> none = parse_none_policy(text_of(given.none));
  if (!none.ok()) return none.status();
  return Options{.none = *none,
                 .strict = given.strict != 0,
                 .sum_duplicates = given.sum_duplicates != 0,
                 .clip_norm = number_at(given.clip_norm),
                 .clip_global_norm = number_at(given.clip_global_norm),
                 .compare_variables = given.compare_variables != 0,
                 .timeout_seconds = number_at(given.timeout_seconds),
                 .strategy = text_of(given.strategy),
                 .reproducible = faces::choice_of(given.reproducible)};
}

Result<Gradient> gradient_of(const tutti_gradient& given) {
  Gradient gradient{{}, text_of(given.variable)};
  if (given.value == nullptr) return gradient;
  Result<Value> value = value_of(*given.value);
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

struct Arguments {
  std::vector<Tower> towers;
  Options options;
};

Result<Arguments> arguments_of(const tutti_gradient* gradients, const size_t* lengths, size_t count,
                               const tutti_average_options* given, tutti_results** results) {
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

Status run(const Result<Arguments>& arguments, tutti_group* group, tutti_results** results) {
  if (!arguments.ok()) return faces::refuse(group, arguments.status());
  Result<std::vector<std::optional<Value>>> means =
      average_gradients(arguments->towers, arguments->options, group);
  if (!means.ok()) return means.status();
  auto made = std::make_unique<tutti_results>();
  for (std::optional<Value>& mean : *means) {
    auto& components = made->values.emplace_back();
    if (mean) components.push_back({*std::move(mean), "/device:CPU:0"});
  }
  *results = made.release();
  return {};
}

}  // namespace
}  // namespace tutti::average_gradients

tutti_code tutti_average_gradients(const tutti_gradient* gradients, const size_t* lengths,
                                   size_t towers, const tutti_average_options* options,
                                   tutti_group* group, tutti_results** results) {
  return tutti::frameworks::guarded([&] {
    const auto arguments = tutti::no_throw([&] {
      return tutti::average_gradients::arguments_of(gradients, lengths, towers, options, results);
    });
    return tutti::average_gradients::run(arguments, group, results);
  });
}
