#include "client/faces/distribute/union_resolver.h"

#include <algorithm>
#include <set>

namespace tutti::distribute {
namespace {

std::set<std::string> jobs_with_gaps(const std::vector<ClusterSpec>& specs) {
  std::set<std::string> sparse;
  for (const ClusterSpec& spec : specs)
    for (const auto& [job, tasks] : spec.jobs())
      if (!is_dense(tasks)) sparse.insert(job);
  return sparse;
}

void append(const ClusterSpec::Tasks& tasks, ClusterSpec::Tasks& to) {
  for (const auto& [index, address] : tasks) to.emplace(static_cast<int>(to.size()), address);
}

Status merge(const std::string& job, const ClusterSpec::Tasks& tasks, ClusterSpec::Tasks& to) {
  for (const auto& [index, address] : tasks)
    if (!to.emplace(index, address).second)
      return already_exists("task " + std::to_string(index) + " of job '" + job +
                            "' is in two resolvers; give it another index");
  return {};
}

}  // namespace

Result<UnionResolver> UnionResolver::create(Resolvers resolvers, ResolverOptions options) {
  if (resolvers.empty()) return invalid_argument("no resolvers are given; pass at least one");
  if (std::ranges::find(resolvers, nullptr) != resolvers.end())
    return invalid_argument("resolvers: one of them is null; pass resolvers only");
  return UnionResolver(std::move(resolvers), std::move(options));
}

Result<ClusterSpec> UnionResolver::cluster_spec() const {
  std::vector<ClusterSpec> specs;
  for (const auto& resolver : resolvers_) {
    Result<ClusterSpec> spec = resolver->cluster_spec();
    if (!spec.ok()) return spec.status();
    specs.push_back(*std::move(spec));
  }
  const std::set<std::string> sparse = jobs_with_gaps(specs);
  ClusterSpec::Jobs jobs;
  for (const ClusterSpec& spec : specs)
    for (const auto& [job, tasks] : spec.jobs()) {
      if (!sparse.contains(job))
        append(tasks, jobs[job]);
      else if (Status status = merge(job, tasks, jobs[job]); !status.ok())
        return status;
    }
  return ClusterSpec::create(std::move(jobs));
}

Result<Task> UnionResolver::task() const {
  const Result<Task> first = resolvers_[0]->task();
  if (!first.ok()) return first;
  return task_or(options().task, *first);
}

Result<std::string> UnionResolver::rpc_layer() const {
  if (!options().rpc_layer.empty()) return options().rpc_layer;
  return resolvers_[0]->rpc_layer();
}

Result<std::string> UnionResolver::find_master(const Task& task,
                                               const std::string& rpc_layer) const {
  if (!task.known()) return resolvers_[0]->master({}, rpc_layer);
  const Result<ClusterSpec> spec = cluster_spec();
  if (!spec.ok()) return spec.status();
  const Result<std::string> address = spec->task_address(task.type, *task.id);
  if (!address.ok()) return address;
  return format_master_url(*address, rpc_layer.empty() ? options().rpc_layer : rpc_layer);
}

}  // namespace tutti::distribute
