// Slurm's lists, and the cluster that its variables describe.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/faces/distribute/slurm_grammar.h"
#include "client/faces/distribute/slurm_resolver.h"

namespace tutti::distribute {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Variables = std::map<std::string, std::string>;

TEST(Hostlist, IsExpanded) {
  EXPECT_THAT(*expand_hostlist("n[1-2],m5,o[3-4,6,7-9]"),
              ElementsAre("n1", "n2", "m5", "o3", "o4", "o6", "o7", "o8", "o9"));
  EXPECT_THAT(*expand_hostlist("n[008-011]"), ElementsAre("n008", "n009", "n010", "n011"));
  EXPECT_THAT(*expand_hostlist("n[8-11]"), ElementsAre("n8", "n9", "n10", "n11"));
  EXPECT_THAT(*expand_hostlist("b,a,b"), ElementsAre("b", "a", "b"));
  EXPECT_THAT(*expand_hostlist("[1-2]"), ElementsAre("1", "2"));
  EXPECT_THAT(*expand_hostlist("n1,"), ElementsAre("n1"));
  EXPECT_THAT(*expand_hostlist(""), IsEmpty());
}

TEST(Hostlist, OfAnotherFormIsRefused) {
  for (const char* wrong :
       {"n[1", "n]1", "n[1-2]x", "n[[1]]", "n[]", "n[1,]", "n[a-b]", "n[1-2-3]", "n[-1]", "n[1-]",
        "a,,b", ",a", "n[2-1]", "n[1-2][3-4]", "n[ 1]", "n[0-1000000]", "n[0-99999999999]"}) {
    const Status status = expand_hostlist(wrong).status();
    EXPECT_EQ(status.code(), Code::invalid_argument) << wrong;
    EXPECT_THAT(status.message(), HasSubstr(wrong));
  }
}

TEST(Hostlist, HasABound) {
  EXPECT_EQ(expand_hostlist("n[1-1000000]")->size(), 1'000'000u);
  EXPECT_FALSE(expand_hostlist("n[1-1000000],m").ok());
  EXPECT_FALSE(expand_hostlist("n[1-999999],m[1-2]").ok());
  EXPECT_THAT(*expand_hostlist("n[2147483647]"), ElementsAre("n2147483647"));
}

TEST(TasksPerNode, AreExpanded) {
  EXPECT_THAT(*expand_tasks_per_node("3(x2),2,1"), ElementsAre(3, 3, 2, 1));
  EXPECT_THAT(*expand_tasks_per_node("12"), ElementsAre(12));
}

TEST(TasksPerNode, OfAnotherFormAreRefused) {
  for (const char* wrong : {"", "a", "3(x2", "3x2", "3(2)", "3(x)", "(x2)", "3,", ",3", "-1", "3 ",
                            "3(x2)4", "1(x1000001)", "1(x999999),1(x2)"}) {
    const Status status = expand_tasks_per_node(wrong).status();
    EXPECT_EQ(status.code(), Code::invalid_argument) << wrong;
    EXPECT_THAT(status.message(), HasSubstr("tasks per node"));
  }
}

// Task 3 of 5: n1 has 3 tasks, n2 has 2.
Variables step() {
  return {{"SLURM_PROCID", "3"},
          {"SLURM_STEP_NUM_TASKS", "5"},
          {"SLURM_STEP_NODELIST", "n[1-2]"},
          {"SLURM_STEP_TASKS_PER_NODE", "3,2"}};
}

SlurmOptions options(const Variables& variables = step()) {
  SlurmOptions options;
  options.gpus_per_node = 0;
  options.variables = environment_of(variables);
  return options;
}

SlurmResolver make(const SlurmOptions& options) {
  Result<SlurmResolver> resolver = SlurmResolver::create(options);
  EXPECT_TRUE(resolver.ok()) << resolver.status().to_string();
  return *std::move(resolver);
}

void expect_refused(const SlurmOptions& options, Code code, const std::string& text) {
  const Status status = SlurmResolver::create(options).status();
  EXPECT_EQ(status.code(), code);
  EXPECT_THAT(status.message(), HasSubstr(text));
}

TEST(SlurmResolver, NumbersTasksAndPorts) {
  const SlurmResolver resolver = make(options());
  const ClusterSpec::Tasks workers = {
      {0, "n1:8888"}, {1, "n1:8889"}, {2, "n1:8890"}, {3, "n2:8888"}, {4, "n2:8889"}};
  EXPECT_EQ(resolver.cluster_spec()->jobs(), (ClusterSpec::Jobs{{"worker", workers}}));
  EXPECT_EQ(*resolver.task_type(), "worker");
  EXPECT_EQ(*resolver.task_id(), 3);
  EXPECT_EQ(*resolver.rpc_layer(), "grpc");
  EXPECT_EQ(*resolver.environment(), "");
  EXPECT_EQ(*resolver.master(), "grpc://n2:8888");
  EXPECT_EQ(*resolver.master({"worker", 1}, "tcp"), "tcp://n1:8889");
  EXPECT_EQ(resolver.placement()->rank, 3);
}

TEST(SlurmResolver, WorksWithoutGpus) {
  const SlurmResolver resolver = make(options());
  EXPECT_EQ(resolver.num_accelerators()->at("GPU"), 0);
  EXPECT_EQ(resolver.visible_devices(), "");
}

TEST(SlurmResolver, SharesOutTheGpusOfANode) {
  SlurmOptions shared = options();
  shared.gpus_per_node = 7;
  EXPECT_EQ(make(shared).num_accelerators()->at("GPU"), 2);
  EXPECT_EQ(make(shared).visible_devices(), "0,1");
  Variables variables = step();
  variables["SLURM_PROCID"] = "2";
  variables["CUDA_VISIBLE_DEVICES"] = "0,1,2,3,4,5";
  SlurmOptions found = options(variables);
  found.gpus_per_node.reset();
  EXPECT_EQ(make(found).visible_devices(), "4,5");
  found.gpus_per_task = 1;
  EXPECT_EQ(make(found).visible_devices(), "2");
  variables["CUDA_VISIBLE_DEVICES"] = "4,GPU-8a,6,7,1,3";
  found.variables = environment_of(variables);
  EXPECT_EQ(make(found).visible_devices(), "6");
}

TEST(SlurmResolver, DealsRanksToJobsByName) {
  SlurmOptions jobs = options();
  jobs.jobs = {{"worker", 3}, {"ps", 2}};
  const SlurmResolver resolver = make(jobs);
  EXPECT_EQ(*resolver.cluster_spec()->task_address("ps", 1), "n1:8889");
  EXPECT_EQ(*resolver.task(), (Task{"worker", 1}));
}

TEST(SlurmResolver, OrdersNodesAsAsked) {
  Variables variables = step();
  variables["SLURM_STEP_NODELIST"] = "n[2,10]";
  SlurmOptions nodes = options(variables);
  EXPECT_EQ(*make(nodes).cluster_spec()->task_address("worker", 0), "n2:8888");
  nodes.node_order = NodeOrder::by_name;
  EXPECT_EQ(*make(nodes).cluster_spec()->task_address("worker", 0), "n10:8888");
}

TEST(SlurmResolver, TakesTasksPerNodeFromTheCaller) {
  Variables variables = step();
  variables.erase("SLURM_STEP_TASKS_PER_NODE");
  variables["SLURM_STEP_NUM_TASKS"] = "4";
  SlurmOptions same = options(variables);
  same.tasks_per_node = 2;
  EXPECT_EQ(*make(same).master(), "grpc://n2:8889");
  variables.erase("SLURM_STEP_NODELIST");
  SlurmOptions named = options(variables);
  named.tasks_by_node = {{"b", 1}, {"a", 3}};
  EXPECT_EQ(*make(named).master(), "grpc://b:8888");
}

TEST(SlurmResolver, NeedsItsVariables) {
  for (const auto& [name, value] : step()) {
    Variables variables = step();
    variables.erase(name);
    expect_refused(options(variables), Code::failed_precondition, name + " is not set");
    if (name == "SLURM_STEP_NODELIST" || name == "SLURM_STEP_TASKS_PER_NODE")
      variables[name] = "n[";
    else
      variables[name] = "three";
    expect_refused(options(variables), Code::invalid_argument, variables[name]);
  }
}

TEST(SlurmResolver, RefusesMoreThanTheNodesHave) {
  SlurmOptions gpus = options();
  gpus.gpus_per_node = 2;
  gpus.gpus_per_task = 1;
  expect_refused(gpus, Code::failed_precondition, "want more than gpus_per_node=2");
  SlurmOptions jobs = options();
  jobs.jobs = {{"worker", 6}};
  expect_refused(jobs, Code::failed_precondition, "jobs have 6 tasks, but the nodes have 5");
  Variables variables = step();
  variables["SLURM_PROCID"] = "5";
  expect_refused(options(variables), Code::failed_precondition, "SLURM_PROCID=5");
  variables = step();
  variables["SLURM_STEP_TASKS_PER_NODE"] = "5";
  expect_refused(options(variables), Code::failed_precondition, "is for 1 nodes");
}

TEST(SlurmResolver, RefusesInvalidOptions) {
  SlurmOptions wrong = options();
  wrong.gpus_per_node = -1;
  wrong.gpus_per_task = 0;
  expect_refused(wrong, Code::invalid_argument, "gpus_per_node=-1");
  wrong = options();
  wrong.gpus_per_task = -1;
  expect_refused(wrong, Code::invalid_argument, "gpus_per_task=-1");
  wrong = options();
  wrong.tasks_per_node = -1;
  expect_refused(wrong, Code::invalid_argument, "tasks_per_node=-1");
  wrong.tasks_per_node = 0;
  expect_refused(wrong, Code::invalid_argument, "the nodes have 0 tasks");
  wrong.tasks_per_node = 600'000;
  expect_refused(wrong, Code::invalid_argument, "the nodes have 1200000 tasks");
  wrong = options();
  wrong.jobs = {{"worker", -5}, {"ps", 10}};
  expect_refused(wrong, Code::invalid_argument, "jobs=-5");
  for (const int port : {0, 65534, 70000}) {
    wrong = options();
    wrong.port_base = port;
    expect_refused(wrong, Code::invalid_argument, "port_base=" + std::to_string(port));
  }
  Variables variables = step();
  variables["SLURM_STEP_NODELIST"] = "n1,n1";
  expect_refused(options(variables), Code::invalid_argument, "node 'n1' is listed twice");
}

}  // namespace
}  // namespace tutti::distribute
