// The mean of the towers' gradients: average_gradients.h.
#include "client/faces/average_gradients/average_gradients.h"

#include "client/faces/average_gradients/clip.h"
#include "client/faces/average_gradients/group_average.h"
#include "client/faces/average_gradients/local_gradients.h"
#include "client/faces/average_gradients/mean.h"
#include "client/faces/base/base.h"

namespace tutti::average_gradients {
namespace {

using Values = std::vector<std::optional<Value>>;

Values average_here(const std::vector<LocalGradients>& local, int64_t towers,
                    const Options& options) {
  Values means;
  for (const LocalGradients& gradients : local) {
    std::optional<Value>& mean = means.emplace_back();
    if (!gradients.plan) continue;
    std::vector<Value> values(gradients.plan->dense.begin(), gradients.plan->dense.end());
    if (gradients.plan->sparse) values = {*gradients.plan->sparse};
    mean = mean_of(values, gradients.plan->dtype(), divisor_of(options, gradients.present, towers),
                   options);
  }
  return means;
}

Result<Values> average(Result<std::vector<LocalGradients>> local, int64_t towers,
                       const Options& options, tutti_group* group) {
  if (group != nullptr) return average_in_group(group, std::move(local), towers, options);
  if (!local.ok()) return local.status();
  return average_here(*local, towers, options);
}

}  // namespace

Result<NonePolicy> parse_none_policy(const std::string& text) {
  if (text == "error") return NonePolicy::error;
  if (text == "skip") return NonePolicy::skip;
  if (text == "zeros") return NonePolicy::zeros;
  return invalid_argument("'" + text + "' is no policy for None; give error, skip or zeros");
}

Result<Values> average_gradients(const std::vector<Tower>& towers, const Options& options,
                                 tutti_group* group) {
  const PlainArithmetic plain;
  const auto count = static_cast<int64_t>(towers.size());
  const bool is_alone = count == 1 && (group == nullptr || tutti_world_size(group) == 1);
  auto local = no_throw([&] { return gather_local(towers, options, is_alone); });
  Result<Values> means = average(std::move(local), count, options, group);
  if (means.ok() && options.clip_global_norm)
    clip_by_global_norm(*means, *options.clip_global_norm);
  return means;
}

}  // namespace tutti::average_gradients
