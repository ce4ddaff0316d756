// What a task is in its cluster: its rank, who is chief, who leads. Pure; the rules are those of
// tensorflow/python/distribute/multi_worker_util.py.
#pragma once

#include <string>

#include "client/faces/distribute/cluster_spec.h"

namespace tutti::distribute {

// OK where `task` can be a task of `spec`. INVALID_ARGUMENT: a job of `spec`, or `task.type`, is
// not one of chief, worker, evaluator and ps; the type is not in `spec` (an evaluator need not be);
// more than one chief or evaluator; the id is negative, not below the number of tasks, or missing.
Status validate_task(const ClusterSpec& spec, const Task& task);

// Whether the task is a chief, an evaluator (which has a cluster of its own), or worker 0 of a
// cluster without chief. Errors as validate_task().
Result<bool> is_chief(const ClusterSpec& spec, const Task& task);

// The number of tasks that train together: chief and workers, or 1 for an evaluator.
// INVALID_ARGUMENT for ps, and as validate_task().
Result<int> worker_count(const ClusterSpec& spec, const std::string& task_type);

// The task's number among those: the chief is 0, workers follow. INVALID_ARGUMENT for ps, and as
// validate_task().
Result<int> id_in_cluster(const ClusterSpec& spec, const Task& task);

// The task that leads collectives: the chief, else worker 0. Not known for an empty `spec` and for
// an evaluator, which is alone. INVALID_ARGUMENT without chief and worker, and as validate_task().
Result<Task> collective_leader(const ClusterSpec& spec, const Task& task);

// All of it at once.
struct Placement {
  int rank = 0;
  int world_size = 1;
  bool is_chief = true;
  std::string leader;  // Its address; empty if alone or not known.
  bool operator==(const Placement&) const = default;
};

// Without jobs: rank 0 of 1. INVALID_ARGUMENT: jobs without both parts of `task`, a ps, and as
// validate_task().
Result<Placement> place(const ClusterSpec& spec, const Task& task);

}  // namespace tutti::distribute
