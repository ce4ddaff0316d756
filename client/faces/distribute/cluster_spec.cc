#include "client/faces/distribute/cluster_spec.h"

#include <utility>

namespace tutti::distribute {
namespace {

std::string names_of(const ClusterSpec::Jobs& jobs) {
  std::string names;
  for (const auto& [job, tasks] : jobs) names += (names.empty() ? "" : ", ") + job;
  return names.empty() ? "no jobs" : names;
}

}  // namespace

Result<ClusterSpec> ClusterSpec::create(Jobs jobs) {
  for (const auto& [job, tasks] : jobs) {
    if (job.empty()) return invalid_argument("cluster_spec: a job without a name; name it");
    if (!tasks.empty() && tasks.begin()->first < 0)
      return invalid_argument("cluster_spec: index " + std::to_string(tasks.begin()->first) +
                              " of job '" + job + "' is negative; tasks count from 0");
  }
  return ClusterSpec(std::move(jobs));
}

Result<ClusterSpec> ClusterSpec::create(
    const std::map<std::string, std::vector<std::string>>& addresses) {
  Jobs jobs;
  for (const auto& [job, listed] : addresses) {
    Tasks& tasks = jobs[job];
    for (const std::string& address : listed)
      tasks.emplace(static_cast<int>(tasks.size()), address);
  }
  return create(std::move(jobs));
}

int ClusterSpec::num_tasks(const std::string& job) const {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? 0 : static_cast<int>(found->second.size());
}

Result<std::string> ClusterSpec::task_address(const std::string& job, int index) const {
  const auto found = jobs_.find(job);
  if (found == jobs_.end())
    return invalid_argument("task_type '" + job + "' is not in cluster_spec, which has " +
                            names_of(jobs_));
  const auto task = found->second.find(index);
  if (task == found->second.end())
    return invalid_argument("task_id " + std::to_string(index) + " is not in job '" + job +
                            "', which has " + std::to_string(found->second.size()) + " tasks");
  if (task->second.empty())
    return failed_precondition("the address of " + job + " " + std::to_string(index) +
                               " is not known: the launcher does not tell it; list the addresses "
                               "in TF_CONFIG or a SimpleResolver");
  return task->second;
}

std::string endpoint(const std::string& host, int port) {
  const bool ipv6 = host.find(':') != std::string::npos && !host.starts_with('[');
  return (ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

bool is_dense(const ClusterSpec::Tasks& tasks) {
  return tasks.empty() ||
         (tasks.begin()->first == 0 && tasks.rbegin()->first == static_cast<int>(tasks.size()) - 1);
}

}  // namespace tutti::distribute
