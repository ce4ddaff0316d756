// Ours against TensorFlow's, over the random cases that record_tensorflow.py has recorded.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "client/faces/distribute/device_assignment.h"
#include "client/faces/distribute/simple_resolver.h"
#include "client/faces/distribute/slurm_grammar.h"
#include "client/faces/distribute/slurm_resolver.h"
#include "client/faces/distribute/tf_config_resolver.h"
#include "client/faces/distribute/union_resolver.h"

namespace tutti::distribute {
namespace {

using Json = nlohmann::json;

const Json& cases(const std::string& section) {
  static const Json table = Json::parse(std::ifstream(TUTTI_RECORDED "/tensorflow.json"));
  return table.at(section);
}

bool raised(const Json& recorded) {
  return recorded.is_string() && recorded.get<std::string>().ends_with("Error");
}

// The code in whose place TensorFlow raises an exception of this name.
Code code_for(const Json& exception) {
  if (exception == "RuntimeError") return Code::failed_precondition;
  if (exception == "KeyError") return Code::already_exists;
  return Code::invalid_argument;
}

// Whether `ours` is an error of the kind that was recorded, where one was.
template <class T>
testing::AssertionResult fails_as(const Json& recorded, const Result<T>& ours) {
  if (!raised(recorded) && ours.ok()) return testing::AssertionSuccess();
  if (raised(recorded) && ours.status().code() == code_for(recorded))
    return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << "ours: " << ours.status().to_string() << ", recorded: " << recorded;
}

// Equal values, or an error in place of an error.
template <class T>
void expect_same(const Json& recorded, const Result<T>& ours) {
  ASSERT_TRUE(fails_as(recorded, ours));
  if (!ours.ok()) return;
  EXPECT_EQ(*ours, recorded.get<T>());
}

Coordinates point(int position, const std::vector<int>& mesh) {
  Coordinates at;
  for (size_t axis = kMeshRank; axis-- > 0; position /= mesh[axis])
    at[axis] = position % mesh[axis];
  return at;
}

int position(const Coordinates& at, const std::vector<int>& mesh) {
  int position = 0;
  for (size_t axis = 0; axis < kMeshRank; ++axis) position = position * mesh[axis] + at[axis];
  return position;
}

using Positions = std::vector<std::vector<int>>;

Positions positions(const DeviceAssignment& assignment, const std::vector<int>& mesh) {
  Positions all;
  for (const auto& replica : assignment.core_assignment()) {
    std::vector<int>& cores = all.emplace_back();
    for (const Coordinates& at : replica) cores.push_back(position(at, mesh));
  }
  return all;
}

Topology topology_of(const Json& of) {
  const auto mesh = of.at("mesh").get<std::vector<int>>();
  std::vector<std::vector<std::vector<int>>> coordinates;
  for (const auto& task : of.at("devices").get<Positions>()) {
    auto& devices = coordinates.emplace_back();
    for (const int device : task) {
      const Coordinates at = point(device, mesh);
      devices.emplace_back(at.begin(), at.end());
    }
  }
  Result<Topology> topology = Topology::create(mesh, coordinates, "TPU");
  EXPECT_TRUE(topology.ok()) << topology.status().to_string();
  return *std::move(topology);
}

template <class T>
std::optional<T> optional_of(const Json& value) {
  return value.is_null() ? std::nullopt : std::optional(value.get<T>());
}

BuildOptions build_options_of(const Json& of) {
  return {optional_of<std::vector<int>>(of.at("shape")),
          optional_of<std::vector<int>>(of.at("stride")), of.at("replicas").get<int>(),
          static_cast<DeviceOrderMode>(of.at("mode").get<int>())};
}

// Lists, or objects from an index to an address.
ClusterSpec::Jobs jobs_of(const Json& cluster) {
  ClusterSpec::Jobs jobs;
  for (const auto& [job, listed] : cluster.items()) {
    ClusterSpec::Tasks& tasks = jobs[job];
    for (const auto& [index, address] : listed.items())
      tasks[std::stoi(index)] = address.get<std::string>();
  }
  return jobs;
}

ClusterSpec spec_of(const Json& cluster) { return *ClusterSpec::create(jobs_of(cluster)); }

void expect_same_cluster(const Json& recorded, const Result<ClusterSpec>& ours) {
  ASSERT_TRUE(fails_as(recorded, ours));
  if (!ours.ok()) return;
  EXPECT_EQ(ours->jobs(), jobs_of(recorded));
}

Task task_of(const Json& pair) {
  return {optional_of<std::string>(pair.at(0)).value_or(""), optional_of<int>(pair.at(1))};
}

TEST(RecordedFromTensorflow, DeviceAssignments) {
  int built = 0;
  for (const Json& of : cases("assignments")) {
    SCOPED_TRACE(of.dump());
    const Result<DeviceAssignment> ours =
        DeviceAssignment::build(topology_of(of), build_options_of(of));
    ASSERT_TRUE(fails_as(of.at("cores"), ours));
    if (!ours.ok()) continue;
    ++built;
    ASSERT_EQ(positions(*ours, of.at("mesh")), of.at("cores").get<Positions>());
  }
  EXPECT_GE(built, 300);
}

void expect_same_lookups(const Json& of, const Topology& topology) {
  const auto mesh = of.at("mesh").get<std::vector<int>>();
  DeviceAssignment::CoreAssignment cores;
  for (const auto& replica : of.at("cores").get<Positions>())
    cores.push_back({point(replica.at(0), mesh)});
  const Result<DeviceAssignment> ours = DeviceAssignment::create(topology, cores);
  ASSERT_TRUE(ours.ok()) << ours.status().to_string();
  expect_same(of.at("lookup"), ours->lookup_replicas(topology.num_tasks() - 1, 0));
  for (int replica = 0; replica < ours->num_replicas(); ++replica)
    expect_same(of.at("ordinals").at(static_cast<size_t>(replica)), ours->device_ordinal(replica));
}

TEST(RecordedFromTensorflow, Topologies) {
  for (const Json& of : cases("topologies")) {
    SCOPED_TRACE(of.dump());
    const Topology topology = topology_of(of);
    const auto mesh = of.at("mesh").get<std::vector<int>>();
    std::vector<int> missing;
    for (const Coordinates& at : topology.missing_devices()) missing.push_back(position(at, mesh));
    EXPECT_EQ(missing, of.at("missing").get<std::vector<int>>());
    const int last = topology.num_tasks() - 1;
    const std::vector<std::string> names = {topology.device_name({last, 0}, "worker"),
                                            Topology::host_name(last)};
    EXPECT_EQ(names, of.at("names").get<std::vector<std::string>>());
    expect_same_lookups(of, topology);
  }
}

TEST(RecordedFromTensorflow, HostLists) {
  for (const Json& of : cases("hostlists")) {
    SCOPED_TRACE(of.dump());
    expect_same(of.at(1), expand_hostlist(of.at(0)));
  }
}

TEST(RecordedFromTensorflow, TasksPerNode) {
  for (const Json& of : cases("tasks_per_node")) {
    SCOPED_TRACE(of.dump());
    expect_same(of.at(1), expand_tasks_per_node(of.at(0)));
  }
}

SlurmOptions slurm_options_of(const Json& of) {
  SlurmOptions options;
  if (!of.at("jobs").is_null()) options.jobs = of.at("jobs").get<std::map<std::string, int>>();
  options.node_order = NodeOrder::by_name;
  options.port_base = of.at("port").get<int>();
  options.gpus_per_node = of.at("gpus").get<int>();
  options.gpus_per_task = optional_of<int>(of.at("gpus_per_task"));
  options.variables = environment_of(of.at("variables").get<std::map<std::string, std::string>>());
  return options;
}

TEST(RecordedFromTensorflow, SlurmSteps) {
  for (const Json& of : cases("slurm")) {
    SCOPED_TRACE(of.dump());
    const Result<SlurmResolver> ours = SlurmResolver::create(slurm_options_of(of));
    const Json& result = of.at("result");
    ASSERT_TRUE(fails_as(result, ours));
    if (!ours.ok()) continue;
    expect_same_cluster(result.at("cluster"), ours->cluster_spec());
    EXPECT_EQ(*ours->task(), task_of(result.at("task")));
    EXPECT_EQ(ours->num_accelerators()->at("GPU"), result.at("gpus").get<int>());
    EXPECT_EQ(ours->visible_devices(), result.at("visible").get<std::string>());
    expect_same(result.at("master"), ours->master());
  }
}

Result<std::string> leader_name(const ClusterSpec& spec, const Task& task) {
  const Result<Task> leader = collective_leader(spec, task);
  if (!leader.ok()) return leader.status();
  if (!leader->known()) return std::string();
  return "/job:" + leader->type + "/replica:0/task:" + std::to_string(*leader->id);
}

TEST(RecordedFromTensorflow, PlacesInClusters) {
  for (const Json& of : cases("multi_worker")) {
    SCOPED_TRACE(of.dump());
    const ClusterSpec spec = spec_of(of.at("cluster"));
    const Task task = task_of(of.at("task"));
    expect_same(of.at("is_chief"), is_chief(spec, task));
    // TensorFlow forgets that an evaluator need not be in the cluster.
    if (of.at("worker_count") != "KeyError")
      expect_same(of.at("worker_count"), worker_count(spec, task.type));
    expect_same(of.at("id_in_cluster"), id_in_cluster(spec, task));
    expect_same(of.at("leader"), leader_name(spec, task));
  }
}

TEST(RecordedFromTensorflow, TfConfigs) {
  for (const Json& of : cases("tf_config")) {
    SCOPED_TRACE(of.dump());
    ResolverOptions options;
    options.variables = environment_of({{"TF_CONFIG", of.at("text")}});
    const TfConfigResolver ours(options);
    expect_same_cluster(of.at("cluster"), ours.cluster_spec());
    ASSERT_TRUE(fails_as(of.at("task"), ours.task()));
    expect_same(of.at("rpc_layer").is_null() ? Json("") : of.at("rpc_layer"), ours.rpc_layer());
    expect_same(of.at("master"), ours.master());
    if (!ours.task().ok()) continue;
    EXPECT_EQ(*ours.task(), task_of(of.at("task")));
  }
}

TEST(RecordedFromTensorflow, Unions) {
  for (const Json& of : cases("unions")) {
    SCOPED_TRACE(of.dump());
    UnionResolver::Resolvers resolvers;
    for (const Json& spec : of.at("specs"))
      resolvers.push_back(std::make_shared<SimpleResolver>(spec_of(spec)));
    expect_same_cluster(of.at("cluster"), UnionResolver::create(resolvers)->cluster_spec());
  }
}

}  // namespace
}  // namespace tutti::distribute
