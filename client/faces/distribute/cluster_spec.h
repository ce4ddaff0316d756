// The tasks of a cluster, by job, as tf.train.ClusterSpec has them. A value; connects to nothing.
//
// Errors of this folder, and the Python exception that tf.distribute raises in their place:
//   INVALID_ARGUMENT     ValueError    (and TypeError, where a text such as TF_CONFIG is at fault)
//   ALREADY_EXISTS       KeyError      two entries with the same key
//   OUT_OF_RANGE         IndexError    an index beyond the end of a table
//   FAILED_PRECONDITION  RuntimeError  the environment does not allow what was asked for
//   UNAVAILABLE          RuntimeError  the environment does not answer; try again later
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/status.h"

namespace tutti::distribute {

// More tasks are refused where a number names them: a slip of the keyboard must not use up the
// memory.
constexpr int kTasksMax = 1'000'000;

// Which task of a cluster: `id` counts from 0 within the job `type`. A part that is not known is
// empty (None in Python).
struct Task {
  std::string type;
  std::optional<int> id = std::nullopt;

  Task() = default;
  Task(std::string of, std::optional<int> number) : type(std::move(of)), id(number) {}
  bool known() const { return !type.empty() && id.has_value(); }
  bool operator==(const Task&) const = default;
};

class ClusterSpec {
 public:
  // Addresses, "host:port", by the task's index. Empty: the launcher does not tell the address.
  using Tasks = std::map<int, std::string>;
  using Jobs = std::map<std::string, Tasks>;

  ClusterSpec() = default;  // No jobs.
  // INVALID_ARGUMENT: a job without a name, a negative index.
  static Result<ClusterSpec> create(Jobs jobs);
  // Tasks counted from 0 in each job. INVALID_ARGUMENT: a job without a name.
  static Result<ClusterSpec> create(
      const std::map<std::string, std::vector<std::string>>& addresses);

  bool empty() const { return jobs_.empty(); }
  const Jobs& jobs() const { return jobs_; }  // Ascending by name.
  bool has(const std::string& job) const { return jobs_.contains(job); }
  // 0 for a job that is not there.
  int num_tasks(const std::string& job) const;
  // INVALID_ARGUMENT: no such job or task. FAILED_PRECONDITION: its address is not known.
  Result<std::string> task_address(const std::string& job, int index) const;
  bool operator==(const ClusterSpec&) const = default;

 private:
  explicit ClusterSpec(Jobs jobs) : jobs_(std::move(jobs)) {}
  Jobs jobs_;
};

// "host:port", with brackets around an IPv6 address that has none.
std::string endpoint(const std::string& host, int port);

// Whether the indices are 0, 1, 2 ... without a gap: such tasks are a list in Python, others a
// dict.
bool is_dense(const ClusterSpec::Tasks& tasks);

}  // namespace tutti::distribute
