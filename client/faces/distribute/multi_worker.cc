#include "client/faces/distribute/multi_worker.h"

namespace tutti::distribute {
namespace {

bool is_task_type(const std::string& type) {
  return type == "chief" || type == "worker" || type == "evaluator" || type == "ps";
}

Status refuse_type(const std::string& where, const std::string& type) {
  return invalid_argument(where + " '" + type +
                          "' is unknown; the types are chief, worker, evaluator and ps");
}

Status validate_jobs(const ClusterSpec& spec) {
  for (const auto& [job, tasks] : spec.jobs())
    if (!is_task_type(job)) return refuse_type("cluster_spec: job", job);
  for (const char* single : {"chief", "evaluator"})
    if (const int tasks = spec.num_tasks(single); tasks > 1)
      return invalid_argument("cluster_spec has " + std::to_string(tasks) + " tasks of job '" +
                              single + "'; list at most one");
  return {};
}

Status validate_id(const ClusterSpec& spec, const Task& task) {
  const int tasks = spec.has(task.type) ? spec.num_tasks(task.type) : 1;  // 1: an evaluator.
  if (!task.id)
    return invalid_argument("no task_id is given; the job '" + task.type + "' has ids 0 to " +
                            std::to_string(tasks - 1));
  if (*task.id >= 0 && *task.id < tasks) return {};
  return invalid_argument("task_id " + std::to_string(*task.id) + " is out of range: the job '" +
                          task.type + "' has " + std::to_string(tasks) + " tasks");
}

Status refuse_ps(const std::string& type) {
  return invalid_argument("task_type '" + type +
                          "' takes no part in collectives; only chief, worker and evaluator do");
}

}  // namespace

Status validate_task(const ClusterSpec& spec, const Task& task) {
  if (!task.type.empty() && !is_task_type(task.type)) return refuse_type("task_type", task.type);
  if (Status status = validate_jobs(spec); !status.ok()) return status;
  if (task.type.empty()) return {};
  if (!spec.has(task.type) && task.type != "evaluator")
    return invalid_argument("task_type '" + task.type + "' is not a job of cluster_spec; add it");
  return validate_id(spec, task);
}

Result<bool> is_chief(const ClusterSpec& spec, const Task& task) {
  if (Status status = validate_task(spec, task); !status.ok()) return status;
  if (task.type == "chief" || task.type == "evaluator") return true;
  return !spec.has("chief") && task == Task{"worker", 0};
}

Result<int> worker_count(const ClusterSpec& spec, const std::string& task_type) {
  if (Status status = validate_task(spec, {task_type, 0}); !status.ok()) return status;
  if (task_type == "ps") return refuse_ps(task_type);
  if (task_type == "evaluator") return 1;
  return spec.num_tasks("chief") + spec.num_tasks("worker");
}

Result<int> id_in_cluster(const ClusterSpec& spec, const Task& task) {
  if (Status status = validate_task(spec, task); !status.ok()) return status;
  if (task.type == "chief" || task.type == "evaluator") return 0;
  if (task.type == "worker") return *task.id + spec.num_tasks("chief");
  return refuse_ps(task.type);
}

Result<Task> collective_leader(const ClusterSpec& spec, const Task& task) {
  if (spec.empty()) return Task{};
  if (Status status = validate_task(spec, task); !status.ok()) return status;
  if (task.type == "evaluator") return Task{};
  for (const char* type : {"chief", "worker"})
    if (spec.has(type)) return Task{type, 0};
  return invalid_argument("cluster_spec has neither chief nor worker to lead; add one");
}

Result<Placement> place(const ClusterSpec& spec, const Task& task) {
  if (spec.empty()) return Placement{};
  if (!task.known())
    return invalid_argument(
        "cluster_spec has jobs, but task_type or task_id is not given; set both");
  const Result<int> rank = id_in_cluster(spec, task);
  if (!rank.ok()) return rank.status();
  const Result<Task> leader = collective_leader(spec, task);
  if (!leader.ok()) return leader.status();
  Placement placement = {*rank, *worker_count(spec, task.type), *is_chief(spec, task), ""};
  if (!leader->known()) return placement;
  const Result<std::string> address = spec.task_address(leader->type, *leader->id);
  if (address.ok()) placement.leader = *address;
  return placement;
}

}  // namespace tutti::distribute
