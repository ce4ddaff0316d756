#include "client/faces/distribute/tf_config_resolver.h"

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>

namespace tutti::distribute {
namespace {

using Json = nlohmann::json;

Status refuse(const std::string& key, const std::string& wanted) {
  return invalid_argument("TF_CONFIG: '" + key + "' must be " + wanted);
}

// An object; empty where TF_CONFIG is not set.
Result<Json> load(const Environment& variables) {
  const std::optional<std::string> text = variables("TF_CONFIG");
  if (!text) return Json::object();
  try {
    Json config = Json::parse(*text);
    if (config.is_object()) return config;
  } catch (const Json::parse_error& error) {
    return invalid_argument("TF_CONFIG is not JSON: " + std::string(error.what()) +
                            "; correct it, or unset it to run alone");
  }
  return invalid_argument(
      "TF_CONFIG must be a JSON object, as {\"cluster\": {...}, \"task\": {...}}");
}

// The text at `key`; empty where there is none.
Result<std::string> text_at(const Json& object, const std::string& key, const std::string& name) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return std::string();
  if (!found->is_string()) return refuse(name, "a string");
  return found->get<std::string>();
}

Status read_address(const Json& address, const std::string& job, std::string& text) {
  if (!address.is_string()) return refuse("cluster." + job, "a list of addresses \"host:port\"");
  text = address.get<std::string>();
  if (text.empty()) return refuse("cluster." + job, "without empty addresses");
  return {};
}

Status read_listed(const Json& listed, const std::string& job, ClusterSpec::Tasks& tasks) {
  for (const Json& address : listed)
    if (Status status = read_address(address, job, tasks[static_cast<int>(tasks.size())]);
        !status.ok())
      return status;
  return {};
}

Status read_indexed(const Json& indexed, const std::string& job, ClusterSpec::Tasks& tasks) {
  for (const auto& [key, address] : indexed.items()) {
    const Result<int> index = parse_number(key, "TF_CONFIG: index in cluster." + job);
    if (!index.ok()) return index.status();
    if (Status status = read_address(address, job, tasks[*index]); !status.ok()) return status;
  }
  return {};
}

Result<ClusterSpec> read_cluster(const Json& cluster) {
  if (!cluster.is_object()) return refuse("cluster", "an object of jobs");
  ClusterSpec::Jobs jobs;
  for (const auto& [job, tasks] : cluster.items()) {
    if (!tasks.is_array() && !tasks.is_object())
      return refuse("cluster." + job, "a list of addresses, or an object from index to address");
    const Status status =
        tasks.is_array() ? read_listed(tasks, job, jobs[job]) : read_indexed(tasks, job, jobs[job]);
    if (!status.ok()) return status;
  }
  return ClusterSpec::create(std::move(jobs));
}

// A number, or a text that holds one, as some launchers write it.
Result<std::optional<int>> read_index(const Json& task) {
  const auto found = task.find("index");
  if (found == task.end() || found->is_null()) return std::optional<int>();
  if (found->is_string()) {
    const Result<int> index = parse_number(found->get<std::string>(), "TF_CONFIG: task.index");
    if (!index.ok()) return index.status();
    return std::optional<int>(*index);
  }
  constexpr uint64_t kIndexMax = std::numeric_limits<int>::max();
  if (!found->is_number_unsigned() || found->get<uint64_t>() > kIndexMax)
    return refuse("task.index", "a number of 0 to 2147483647");
  return std::optional<int>(found->get<int>());
}

Result<Task> read_task(const Json& config) {
  const auto found = config.find("task");
  if (found == config.end() || found->is_null()) return Task{};
  if (!found->is_object())
    return refuse("task", "an object, as {\"type\": \"worker\", \"index\": 0}");
  const Result<std::string> type = text_at(*found, "type", "task.type");
  if (!type.ok()) return type.status();
  const Result<std::optional<int>> index = read_index(*found);
  if (!index.ok()) return index.status();
  return Task{*type, *index};
}

// No jobs, or one job whose only task is 0.
bool is_alone(const ClusterSpec& spec) {
  if (spec.empty()) return true;
  const ClusterSpec::Tasks& tasks = spec.jobs().begin()->second;
  return spec.jobs().size() == 1 && tasks.size() == 1 && tasks.contains(0);
}

}  // namespace

Result<ClusterSpec> TfConfigResolver::cluster_spec() const {
  const Result<Json> config = load(options().variables);
  if (!config.ok()) return config.status();
  const auto found = config->find("cluster");
  if (found == config->end() || found->is_null()) return ClusterSpec();
  return read_cluster(*found);
}

Result<Task> TfConfigResolver::task() const {
  if (options().task.known()) return options().task;
  const Result<Json> config = load(options().variables);
  if (!config.ok()) return config.status();
  const Result<Task> task = read_task(*config);
  if (!task.ok()) return task;
  return task_or(options().task, *task);
}

Result<std::string> TfConfigResolver::rpc_layer() const {
  if (!options().rpc_layer.empty()) return options().rpc_layer;
  const Result<Json> config = load(options().variables);
  if (!config.ok()) return config.status();
  return text_at(*config, "rpc_layer", "rpc_layer");
}

Result<std::string> TfConfigResolver::find_master(const Task& task,
                                                  const std::string& rpc_layer) const {
  const Result<Json> config = load(options().variables);
  if (!config.ok()) return config.status();
  Result<std::string> given = text_at(*config, "session_master", "session_master");
  if (!given.ok() || !given->empty()) return given;
  const Result<ClusterSpec> spec = cluster_spec();
  if (!spec.ok()) return spec.status();
  if (is_alone(*spec)) return std::string();
  const Result<Task> own = this->task();
  if (!own.ok()) return own.status();
  if (!task_or(task, *own).known())
    return invalid_argument("TF_CONFIG has no 'task' with type and index; add it, or name a task");
  return Resolver::find_master(task, rpc_layer);
}

}  // namespace tutti::distribute
