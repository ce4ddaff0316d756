#include "client/faces/distribute/slurm_resolver.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>

#include "client/faces/distribute/slurm_grammar.h"

namespace tutti::distribute {
namespace {

constexpr const char* kLauncher = "a Slurm step (srun)";
constexpr int kPortMax = 65535;

struct Node {
  std::string name;
  int tasks = 0;
};
using Nodes = std::vector<Node>;

// A task by its rank. local_id counts the tasks of its node.
struct PlacedTask {
  std::string address;
  int local_id = 0;
};

Status refuse_negative(const char* argument, int number) {
  if (number >= 0) return {};
  return invalid_argument(std::string(argument) + "=" + std::to_string(number) +
                          " is negative; pass at least 0");
}

Result<std::vector<std::string>> read_hosts(const Environment& variables) {
  const Result<std::string> list = read_variable(variables, "SLURM_STEP_NODELIST", kLauncher);
  if (!list.ok()) return list.status();
  return expand_hostlist(*list);
}

Result<std::vector<int>> read_tasks(const SlurmOptions& options, size_t hosts) {
  if (options.tasks_per_node) return std::vector<int>(hosts, *options.tasks_per_node);
  const Result<std::string> list =
      read_variable(options.variables, "SLURM_STEP_TASKS_PER_NODE", kLauncher);
  if (!list.ok()) return list.status();
  const Result<std::vector<int>> tasks = expand_tasks_per_node(*list);
  if (!tasks.ok() || tasks->size() == hosts) return tasks;
  return failed_precondition(
      "SLURM_STEP_TASKS_PER_NODE='" + *list + "' is for " + std::to_string(tasks->size()) +
      " nodes, but SLURM_STEP_NODELIST has " + std::to_string(hosts) + "; pass tasks_by_node");
}

Result<Nodes> read_nodes(const SlurmOptions& options) {
  Nodes nodes;
  for (const auto& [name, tasks] : options.tasks_by_node) nodes.push_back({name, tasks});
  if (!nodes.empty()) return nodes;
  const Result<std::vector<std::string>> hosts = read_hosts(options.variables);
  if (!hosts.ok()) return hosts.status();
  const Result<std::vector<int>> tasks = read_tasks(options, hosts->size());
  if (!tasks.ok()) return tasks.status();
  for (size_t i = 0; i < hosts->size(); ++i) nodes.push_back({(*hosts)[i], (*tasks)[i]});
  if (options.node_order == NodeOrder::by_name) std::ranges::sort(nodes, {}, &Node::name);
  return nodes;
}

Status validate_nodes(const Nodes& nodes, int port_base) {
  std::set<std::string> seen;
  int most = 0;
  int64_t all = 0;
  for (const Node& node : nodes) {
    if (!seen.insert(node.name).second)
      return invalid_argument("node '" + node.name + "' is listed twice; list each node once");
    if (Status status = refuse_negative("tasks_per_node", node.tasks); !status.ok()) return status;
    most = std::max(most, node.tasks);
    all += node.tasks;
  }
  if (all == 0 || all > kTasksMax)
    return invalid_argument("the nodes have " + std::to_string(all) + " tasks, not 1 to " +
                            std::to_string(kTasksMax) + "; check tasks_per_node");
  if (port_base >= 1 && most - 1 <= kPortMax - port_base) return {};
  return invalid_argument("port_base=" + std::to_string(port_base) + " gives " +
                          std::to_string(most) + " tasks ports outside 1 to 65535; lower it");
}

int most_tasks(const Nodes& nodes) {
  return std::ranges::max_element(nodes, {}, &Node::tasks)->tasks;
}

int64_t all_tasks(const Nodes& nodes) {
  return std::accumulate(nodes.begin(), nodes.end(), int64_t{0},
                         [](int64_t sum, const Node& node) { return sum + node.tasks; });
}

std::vector<PlacedTask> place_tasks(const Nodes& nodes, int port_base) {
  std::vector<PlacedTask> placed;
  for (const Node& node : nodes)
    for (int i = 0; i < node.tasks; ++i)
      placed.push_back({node.name + ":" + std::to_string(port_base + i), i});
  return placed;
}

// GPUs of each task.
Result<int> gpus_per_task(const SlurmOptions& options, const Nodes& nodes) {
  const int per_node = options.gpus_per_node.value_or(count_gpus(options.variables));
  const int most = most_tasks(nodes);
  const int per_task = options.gpus_per_task.value_or(per_node / most);
  if (Status status = refuse_negative("gpus_per_node", per_node); !status.ok()) return status;
  if (Status status = refuse_negative("gpus_per_task", per_task); !status.ok()) return status;
  if (static_cast<int64_t>(most) * per_task <= per_node) return per_task;
  return failed_precondition(
      std::to_string(most) + " tasks of a node with gpus_per_task=" + std::to_string(per_task) +
      " want more than gpus_per_node=" + std::to_string(per_node) + "; ask for fewer");
}

Result<std::map<std::string, int>> read_jobs(const SlurmOptions& options, int64_t tasks) {
  std::map<std::string, int> jobs = options.jobs;
  if (jobs.empty()) {
    const Result<int> workers = read_number(options.variables, "SLURM_STEP_NUM_TASKS", kLauncher);
    if (!workers.ok()) return workers.status();
    jobs["worker"] = *workers;
  }
  int64_t wanted = 0;
  for (const auto& [job, count] : jobs) {
    if (Status status = refuse_negative("jobs", count); !status.ok()) return status;
    wanted += count;
  }
  if (wanted == tasks) return jobs;
  return failed_precondition("jobs have " + std::to_string(wanted) + " tasks, but the nodes have " +
                             std::to_string(tasks) + "; make both equal");
}

// Ranks are dealt to the jobs in the order of their names. Sets `own` to the task of `rank`.
Result<ClusterSpec> deal(const std::map<std::string, int>& jobs,
                         const std::vector<PlacedTask>& placed, int rank, Task& own) {
  ClusterSpec::Jobs dealt;
  int next = 0;
  for (const auto& [job, count] : jobs) {
    ClusterSpec::Tasks& tasks = dealt[job];
    for (int id = 0; id < count; ++id, ++next) {
      tasks[id] = placed[static_cast<size_t>(next)].address;
      if (next == rank) own = {job, id};
    }
  }
  return ClusterSpec::create(std::move(dealt));
}

// The GPUs of a node: the entries of CUDA_VISIBLE_DEVICES, if they are enough, else numbers.
std::vector<std::string> gpus_of_node(const Environment& variables, int count) {
  if (auto visible = visible_gpus(variables);
      visible && visible->size() >= static_cast<size_t>(count))
    return *std::move(visible);
  std::vector<std::string> numbers;
  for (int gpu = 0; gpu < count; ++gpu) numbers.push_back(std::to_string(gpu));
  return numbers;
}

std::string share_of(const std::vector<std::string>& gpus, int local_id, int count) {
  std::string share;
  for (int gpu = local_id * count; gpu < (local_id + 1) * count; ++gpu)
    share += (share.empty() ? "" : ",") + gpus[static_cast<size_t>(gpu)];
  return share;
}

Result<int> read_rank(const Environment& variables) {
  return read_number(variables, "SLURM_PROCID", kLauncher);
}

}  // namespace

Result<SlurmResolver> SlurmResolver::create(const SlurmOptions& options) {
  const Result<int> rank = read_rank(options.variables);
  if (!rank.ok()) return rank.status();
  const Result<Nodes> nodes = read_nodes(options);
  if (!nodes.ok()) return nodes.status();
  if (Status status = validate_nodes(*nodes, options.port_base); !status.ok()) return status;
  const Result<int> gpus = gpus_per_task(options, *nodes);
  if (!gpus.ok()) return gpus.status();
  const Result<std::map<std::string, int>> jobs = read_jobs(options, all_tasks(*nodes));
  if (!jobs.ok()) return jobs.status();
  const std::vector<PlacedTask> placed = place_tasks(*nodes, options.port_base);
  if (static_cast<size_t>(*rank) >= placed.size())
    return failed_precondition("SLURM_PROCID=" + std::to_string(*rank) + ", but the nodes have " +
                               std::to_string(placed.size()) + " tasks; check tasks_per_node");
  Task own;
  Result<ClusterSpec> spec = deal(*jobs, placed, *rank, own);
  if (!spec.ok()) return spec.status();
  std::string share = share_of(gpus_of_node(options.variables, most_tasks(*nodes) * *gpus),
                               placed[static_cast<size_t>(*rank)].local_id, *gpus);
  return SlurmResolver({.task = own,
                        .num_accelerators = {{"GPU", *gpus}},
                        .rpc_layer = options.rpc_layer,
                        .variables = options.variables},
                       *std::move(spec), std::move(share));
}

}  // namespace tutti::distribute
