#include "client/faces/distribute/json_api.h"

#include <concepts>
#include <limits>
#include <nlohmann/json.hpp>

#include "client/faces/distribute/kubernetes_resolver.h"
#include "client/faces/distribute/launch_resolver.h"
#include "client/faces/distribute/simple_resolver.h"
#include "client/faces/distribute/slurm_resolver.h"
#include "client/faces/distribute/tf_config_resolver.h"

namespace tutti::distribute {
namespace {

using Json = nlohmann::json;
using ResolverPtr = std::shared_ptr<const Resolver>;

// A number that is none, or does not fit.
struct WrongNumber {
  std::string message;
};

// Calls `read` with the parsed text. nlohmann-json reports a wrong key or type as an exception.
template <class Read>
auto with_json(const std::string& text, const Read& read) -> decltype(read(Json())) {
  try {
    return read(Json::parse(text));
  } catch (const WrongNumber& wrong) {
    return invalid_argument(wrong.message);
  } catch (const Json::exception& error) {
    return invalid_argument("wrong options " + text + ": " + error.what());
  }
}

// The value as a T, which an exception says that it is not. nlohmann-json itself would cut numbers.
template <class T>
T read(const Json& json, const std::string&) {
  return json.get<T>();
}
template <std::signed_integral T>
T read(const Json& json, const std::string& name) {
  using Limits = std::numeric_limits<T>;
  const bool fits = json.is_number_unsigned()
                        ? json.get<uint64_t>() <= static_cast<uint64_t>(Limits::max())
                        : json.is_number_integer() && json.get<int64_t>() >= Limits::min() &&
                              json.get<int64_t>() <= Limits::max();
  if (!fits)
    throw WrongNumber{name + "=" + json.dump() + " must be a whole number of " +
                      std::to_string(Limits::min()) + " to " + std::to_string(Limits::max())};
  return json.get<T>();
}
template <class T>
concept IntList = std::same_as<typename T::value_type, int>;
template <IntList T>
T read(const Json& json, const std::string& name) {
  T numbers = {};
  size_t count = 0;
  if constexpr (requires { numbers.resize(json.size()); }) numbers.resize(json.size());
  if (!json.is_array() || numbers.size() != json.size())
    throw WrongNumber{name + "=" + json.dump() + " must be a list of whole numbers"};
  for (const Json& number : json) numbers[count++] = read<typename T::value_type>(number, name);
  return numbers;
}
using IntByName = std::map<std::string, int>;
template <>
IntByName read<IntByName>(const Json& json, const std::string& name) {
  IntByName numbers;
  for (const auto& [key, number] : json.items())
    numbers[key] = read<int>(number, name + "['" + key + "']");
  return numbers;
}

// The value at `key`; `absent` where there is none.
template <class T>
T value_at(const Json& object, const char* key, T absent = {}) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? absent : read<T>(*found, key);
}

template <class T>
std::optional<T> optional_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? std::nullopt
                                                   : std::optional<T>(read<T>(*found, key));
}

Task task_at(const Json& options) {
  return {value_at<std::string>(options, "task_type"), optional_at<int>(options, "task_id")};
}

ResolverOptions resolver_options_of(const Json& options) {
  return {.master = value_at<std::string>(options, "master"),
          .task = task_at(options),
          .environment = value_at<std::string>(options, "environment"),
          .num_accelerators = value_at<Accelerators>(options, "num_accelerators"),
          .rpc_layer = value_at<std::string>(options, "rpc_layer")};
}

Result<ClusterSpec> cluster_at(const Json& options) {
  ClusterSpec::Jobs jobs;
  for (const auto& [job, tasks] : options.at("cluster").items()) {
    ClusterSpec::Tasks& made = jobs[job];
    for (const auto& [index, address] : tasks.items()) {
      const Result<int> number = parse_number(index, "index of job '" + job + "'");
      if (!number.ok()) return number.status();
      made[*number] = address.get<std::string>();
    }
  }
  return ClusterSpec::create(std::move(jobs));
}

template <class Made>
Result<ResolverPtr> make_resolver(const Json& options) {
  return ResolverPtr(std::make_shared<Made>(resolver_options_of(options)));
}

Result<ResolverPtr> simple_of(const Json& options) {
  Result<ClusterSpec> spec = cluster_at(options);
  if (!spec.ok()) return spec.status();
  return ResolverPtr(
      std::make_shared<SimpleResolver>(*std::move(spec), resolver_options_of(options)));
}

Result<ResolverPtr> slurm_of(const Json& options) {
  SlurmOptions made;
  made.jobs = value_at(options, "jobs", made.jobs);
  made.port_base = value_at(options, "port_base", made.port_base);
  made.gpus_per_node = optional_at<int>(options, "gpus_per_node");
  made.gpus_per_task = optional_at<int>(options, "gpus_per_task");
  const Json tasks = value_at<Json>(options, "tasks_per_node");
  if (tasks.is_object())
    made.tasks_by_node = read<IntByName>(tasks, "tasks_per_node");
  else if (!tasks.is_null())
    made.tasks_per_node = read<int>(tasks, "tasks_per_node");
  if (value_at<bool>(options, "sort_nodes")) made.node_order = NodeOrder::by_name;
  made.rpc_layer = value_at(options, "rpc_layer", made.rpc_layer);
  Result<SlurmResolver> resolver = SlurmResolver::create(made);
  if (!resolver.ok()) return resolver.status();
  return ResolverPtr(std::make_shared<SlurmResolver>(*std::move(resolver)));
}

Result<ResolverPtr> kubernetes_of(const Json& options) {
  KubernetesOptions made;
  made.services = value_at(options, "services", made.services);
  made.port = value_at(options, "port", made.port);
  made.task = task_at(options);
  made.rpc_layer = value_at(options, "rpc_layer", made.rpc_layer);
  return ResolverPtr(std::make_shared<KubernetesResolver>(std::move(made)));
}

Result<ResolverPtr> union_of(const Json& options, UnionResolver::Resolvers parts) {
  Result<UnionResolver> resolver =
      UnionResolver::create(std::move(parts), resolver_options_of(options));
  if (!resolver.ok()) return resolver.status();
  return ResolverPtr(std::make_shared<UnionResolver>(*std::move(resolver)));
}

Json json_of(const std::string& text) { return text; }
Json json_of(const Accelerators& accelerators) { return accelerators; }
Json json_of(const Task& task) {
  return {task.type.empty() ? Json() : Json(task.type), task.id ? Json(*task.id) : Json()};
}
Json json_of(const Placement& placement) {
  return {{"rank", placement.rank},
          {"world_size", placement.world_size},
          {"is_chief", placement.is_chief},
          {"leader", placement.leader}};
}
Json json_of(const ClusterSpec& spec) {
  Json jobs = Json::object();
  for (const auto& [job, tasks] : spec.jobs()) {
    jobs[job] = Json::object();
    for (const auto& [index, address] : tasks) jobs[job][std::to_string(index)] = address;
  }
  return jobs;
}

template <class T>
Result<std::string> text_of(const Result<T>& value) {
  if (!value.ok()) return value.status();
  return json_of(*value).dump();
}

Result<std::string> answer(const Resolver& resolver, const Json& question) {
  const auto get = question.at("get").get<std::string>();
  if (get == "cluster_spec") return text_of(resolver.cluster_spec());
  if (get == "task") return text_of(resolver.task());
  if (get == "num_accelerators") return text_of(resolver.num_accelerators());
  if (get == "rpc_layer") return text_of(resolver.rpc_layer());
  if (get == "environment") return text_of(resolver.environment());
  if (get == "placement") return text_of(resolver.placement());
  if (get == "master")
    return text_of(
        resolver.master(task_at(question), value_at<std::string>(question, "rpc_layer")));
  const auto* slurm = dynamic_cast<const SlurmResolver*>(&resolver);
  if (get == "visible_devices" && slurm != nullptr) return Json(slurm->visible_devices()).dump();
  return invalid_argument("this resolver does not tell '" + get + "'");
}

Result<Topology> topology_at(const Json& object) {
  const Json& topology = object.at("topology");
  std::vector<std::vector<std::vector<int>>> coordinates;
  for (const Json& task : topology.at("device_coordinates")) {
    auto& devices = coordinates.emplace_back();
    for (const Json& device : task)
      devices.push_back(read<std::vector<int>>(device, "device_coordinates"));
  }
  return Topology::create(read<std::vector<int>>(topology.at("mesh_shape"), "mesh_shape"),
                          coordinates, value_at<std::string>(topology, "device_type", "GPU"));
}

Result<DeviceAssignment::CoreAssignment> cores_at(const Json& object) {
  DeviceAssignment::CoreAssignment cores;
  for (const Json& replica : object.at("core_assignment")) {
    std::vector<Coordinates>& made = cores.emplace_back();
    for (const Json& core : replica) {
      if (core.size() != kMeshRank)
        return invalid_argument("core_assignment: each core needs 4 coordinates, x, y, z and core");
      made.push_back(read<Coordinates>(core, "core_assignment"));
    }
  }
  return cores;
}

Result<DeviceAssignment> create_assignment(const Json& object) {
  Result<Topology> topology = topology_at(object);
  if (!topology.ok()) return topology.status();
  Result<DeviceAssignment::CoreAssignment> cores = cores_at(object);
  if (!cores.ok()) return cores.status();
  return DeviceAssignment::create(*std::move(topology), *std::move(cores));
}

Result<DeviceOrderMode> order_mode_at(const Json& options) {
  const auto name = value_at<std::string>(options, "device_order_mode", "AUTO");
  if (name == "AUTO") return DeviceOrderMode::automatic;
  if (name == "RING") return DeviceOrderMode::ring;
  if (name == "MESH") return DeviceOrderMode::mesh;
  return invalid_argument("device_order_mode '" + name + "' is none of AUTO, RING, MESH");
}

Result<DeviceAssignment> build_assignment(const Topology& topology, const Json& options) {
  const Result<DeviceOrderMode> mode = order_mode_at(options);
  if (!mode.ok()) return mode.status();
  return DeviceAssignment::build(
      topology, {.computation_shape = optional_at<std::vector<int>>(options, "computation_shape"),
                 .computation_stride = optional_at<std::vector<int>>(options, "computation_stride"),
                 .num_replicas = value_at(options, "num_replicas", 1),
                 .device_order_mode = *mode});
}

Json describe_topology(const Topology& topology) {
  Json ring = Json::array();
  for (const DeviceId& device : topology.ring_order()) ring.push_back({device.task, device.device});
  return {{"missing_devices", topology.missing_devices()},
          {"tasks", topology.num_tasks()},
          {"devices_per_task", topology.devices_per_task()},
          {"ring_order", ring}};
}

Json devices_of(const DeviceAssignment& assignment) {
  Json devices = Json::array();
  for (const auto& replica : assignment.core_assignment()) {
    Json cores = Json::array();
    for (const Coordinates& core : replica) {
      const DeviceId device = *assignment.topology().device_at(core);
      cores.push_back({device.task, device.device});
    }
    devices.push_back(std::move(cores));
  }
  return devices;
}

Result<std::string> answer_assignment(const Json& question) {
  Result<Topology> topology = topology_at(question);
  if (!topology.ok()) return topology.status();
  Json described = describe_topology(*topology);
  const bool build = question.contains("build");
  if (!build && !question.contains("core_assignment")) return described.dump();
  const Result<DeviceAssignment> assignment =
      build ? build_assignment(*topology, question.at("build")) : create_assignment(question);
  if (!assignment.ok()) return assignment.status();
  described["core_assignment"] = assignment->core_assignment();
  described["devices"] = devices_of(*assignment);
  return described.dump();
}

}  // namespace

Result<ResolverPtr> resolver_of(const std::string& json, UnionResolver::Resolvers parts) {
  return with_json(json, [&](const Json& options) -> Result<ResolverPtr> {
    const auto kind = options.at("kind").get<std::string>();
    if (kind == "simple") return simple_of(options);
    if (kind == "tf_config") return make_resolver<TfConfigResolver>(options);
    if (kind == "slurm") return slurm_of(options);
    if (kind == "kubernetes") return kubernetes_of(options);
    if (kind == "union") return union_of(options, std::move(parts));
    if (kind == "torchrun") return make_resolver<TorchrunResolver>(options);
    if (kind == "mpi") return make_resolver<MpiResolver>(options);
    return invalid_argument("no kind of resolver is called '" + kind + "'");
  });
}

Result<std::string> ask_resolver(const Resolver& resolver, const std::string& question) {
  return with_json(question, [&](const Json& parsed) { return answer(resolver, parsed); });
}

Result<std::string> describe_assignment(const std::string& question) {
  return with_json(question, answer_assignment);
}

Result<StrategyOptions> strategy_options_of(const std::string& json) {
  return with_json(json, [](const Json& given) -> Result<StrategyOptions> {
    StrategyOptions options;
    options.local_replicas = value_at(given, "local_replicas", 1);
    options.cluster.job = value_at<std::string>(given, "job");
    options.cluster.timeout_ms = value_at(given, "timeout_ms", -1);
    options.reproducible = faces::choice_of(value_at(given, "reproducible", 0));
    const Json assignment = value_at<Json>(given, "device_assignment");
    if (assignment.is_null()) return options;
    Result<DeviceAssignment> made = create_assignment(assignment);
    if (!made.ok()) return made.status();
    options.device_assignment = *std::move(made);
    return options;
  });
}

std::string describe(const Strategy& strategy) {
  Json devices = Json::array();
  for (const int replica : strategy.replicas().local()) {
    Json names = Json::array();
    for (int device = 0; device < strategy.num_logical_devices(); ++device)
      names.push_back(*strategy.device_name(replica, device));
    devices.push_back(std::move(names));
  }
  return Json{{"num_replicas_in_sync", strategy.num_replicas_in_sync()},
              {"local", strategy.replicas().local()},
              {"rank", strategy.replicas().rank()},
              {"world_size", strategy.replicas().world_size()},
              {"devices", devices}}
      .dump();
}

}  // namespace tutti::distribute
