#include "client/faces/distribute/cluster_group.h"

#include <optional>

#include "client/faces/base/base.h"
#include "client/faces/distribute/tf_config_resolver.h"

namespace tutti::distribute {
namespace {

// A name that all tasks of a cluster derive, and no other cluster does.
std::string job_of(const ClusterSpec& spec) {
  std::string text;
  for (const auto& [job, tasks] : spec.jobs()) {
    text += job + "\n";
    for (const auto& [index, address] : tasks) text += std::to_string(index) + " " + address + "\n";
  }
  return faces::job_name("tf-", text);
}

// What to join; nothing where this process is alone.
struct Target {
  std::string job;
  int rank = -1;
  int world_size = -1;
};

Result<std::optional<Target>> target_of(const ClusterOptions& options) {
  std::shared_ptr<const Resolver> resolver = options.resolver;
  if (resolver == nullptr && options.variables("TF_CONFIG"))
    resolver = std::make_shared<TfConfigResolver>(ResolverOptions{.variables = options.variables});
  if (resolver == nullptr) {
    if (!options.variables("TUTTI_WORLD_SIZE")) return std::optional<Target>();
    return std::optional<Target>({options.job, -1, -1});
  }
  const Result<ClusterSpec> spec = resolver->cluster_spec();
  if (!spec.ok()) return spec.status();
  const Result<Placement> placement = resolver->placement();
  if (!placement.ok()) return placement.status();
  if (placement->world_size == 1) return std::optional<Target>();
  const std::string job =
      options.job.empty() && !options.variables("TUTTI_JOB") ? job_of(*spec) : options.job;
  return std::optional<Target>({job, placement->rank, placement->world_size});
}

Status validate_given(tutti_group* group, const Target& target) {
  const int rank = tutti_rank(group);
  const int size = tutti_world_size(group);
  if ((target.rank < 0 || target.rank == rank) &&
      (target.world_size < 0 || target.world_size == size))
    return {};
  return invalid_argument("group is rank " + std::to_string(rank) + " of " + std::to_string(size) +
                          ", but the resolver says rank " + std::to_string(target.rank) + " of " +
                          std::to_string(target.world_size) + "; pass only one of them");
}

}  // namespace

Result<ClusterGroup> ClusterGroup::create(const ClusterOptions& options) {
  ClusterGroup made;
  made.group_ = options.group;
  if (options.group != nullptr && options.resolver == nullptr) return made;
  const Result<std::optional<Target>> target = target_of(options);
  if (!target.ok()) return target.status();
  if (options.group != nullptr) {
    const Target wanted = target->value_or(Target{"", 0, 1});
    if (Status status = validate_given(options.group, wanted); !status.ok()) return status;
    return made;
  }
  if (!target->has_value()) return made;
  const Target& join = **target;
  tutti_join_options given = tutti_join_defaults();
  given.job = join.job.empty() ? nullptr : join.job.c_str();
  given.rank = join.rank;
  given.world_size = join.world_size;
  given.timeout_ms = options.timeout_ms;
  if (Status status = faces::status_of(tutti_join(&given, &made.group_)); !status.ok())
    return status;
  made.owned_.reset(made.group_);
  return made;
}

}  // namespace tutti::distribute
