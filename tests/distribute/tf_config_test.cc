// TF_CONFIG, right and wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/faces/distribute/tf_config_resolver.h"

namespace tutti::distribute {
namespace {

using testing::HasSubstr;

constexpr const char* kThree = R"({"cluster": {"chief": ["h0:1"], "worker": ["h1:1", "h2:1"]},
                                   "task": {"type": "worker", "index": 1}})";

ResolverOptions options_of(const std::string& text) {
  ResolverOptions options;
  options.variables = environment_of({{"TF_CONFIG", text}, {"CUDA_VISIBLE_DEVICES", "0,1"}});
  return options;
}

TfConfigResolver resolver_of(const std::string& text) { return TfConfigResolver(options_of(text)); }

TfConfigResolver unset() {
  ResolverOptions options;
  options.variables = environment_of({});
  return TfConfigResolver(options);
}

TEST(TfConfig, TellsClusterAndPlace) {
  const TfConfigResolver resolver = resolver_of(kThree);
  EXPECT_EQ(*resolver.placement(), (Placement{2, 3, false, "h0:1"}));
  EXPECT_EQ(*resolver.task_type(), "worker");
  EXPECT_EQ(*resolver.task_id(), 1);
  EXPECT_EQ(*resolver.rpc_layer(), "");
  EXPECT_EQ(*resolver.environment(), "");
  EXPECT_EQ(resolver.num_accelerators()->at("GPU"), 2);
  EXPECT_EQ(*resolver.master(), "h2:1");
  EXPECT_EQ(*resolver.master({"chief", 0}, "grpc"), "grpc://h0:1");
}

TEST(TfConfig, WithoutChiefWorkerZeroIsChief) {
  const TfConfigResolver resolver = resolver_of(
      R"({"cluster": {"worker": ["h1:1", "h2:1"]}, "task": {"type": "worker", "index": "0"}})");
  EXPECT_EQ(*resolver.placement(), (Placement{0, 2, true, "h1:1"}));
}

TEST(TfConfig, UnsetIsOneReplica) {
  EXPECT_EQ(*unset().placement(), Placement{});
  EXPECT_TRUE(unset().cluster_spec()->empty());
  EXPECT_EQ(*unset().task(), Task{});
  EXPECT_EQ(*unset().master(), "");
  EXPECT_EQ(*resolver_of("{}").placement(), Placement{});
  EXPECT_EQ(*resolver_of(R"({"task": {"type": "worker", "index": 0}})").placement(), Placement{});
}

TEST(TfConfig, ArgumentsGoFirst) {
  ResolverOptions options = options_of(kThree);
  options.task = {"chief", 0};
  options.rpc_layer = "tcp";
  options.environment = "google";
  const TfConfigResolver resolver(options);
  EXPECT_EQ(*resolver.placement(), (Placement{0, 3, true, "h0:1"}));
  EXPECT_EQ(*resolver.master(), "tcp://h0:1");
  EXPECT_EQ(*resolver.environment(), "google");
  options.task = {"", 0};
  EXPECT_EQ(*TfConfigResolver(options).task(), (Task{"worker", 0}));
}

TEST(TfConfig, MasterIsTheSessionsWhereGiven) {
  EXPECT_EQ(*resolver_of(R"({"session_master": "s:1", "rpc_layer": "grpc"})").master(), "s:1");
  EXPECT_EQ(*resolver_of(R"({"cluster": {"worker": ["a:1"]}})").master(), "");
  const Status unknown =
      resolver_of(R"({"cluster": {"worker": ["a:1", "b:1"]}})").master().status();
  EXPECT_EQ(unknown.code(), Code::invalid_argument);
  EXPECT_THAT(unknown.message(), HasSubstr("TF_CONFIG has no 'task'"));
}

TEST(TfConfig, TasksMayHaveGaps) {
  const TfConfigResolver resolver =
      resolver_of(R"({"cluster": {"worker": {"4": "e:1", "1": "b:1"}}})");
  EXPECT_EQ(resolver.cluster_spec()->jobs().at("worker"),
            (ClusterSpec::Tasks{{1, "b:1"}, {4, "e:1"}}));
}

TEST(TfConfig, IsReadAgainByEveryCall) {
  auto variables = std::make_shared<std::string>("{}");
  ResolverOptions options;
  options.variables = [variables](const std::string&) { return std::optional(*variables); };
  const TfConfigResolver resolver(options);
  EXPECT_TRUE(resolver.cluster_spec()->empty());
  *variables = kThree;
  EXPECT_EQ(resolver.placement()->world_size, 3);
}

void expect_no_place(const std::string& text, const std::string& message) {
  const Status status = resolver_of(text).placement().status();
  EXPECT_EQ(status.code(), Code::invalid_argument) << text;
  EXPECT_THAT(status.message(), HasSubstr(message)) << text;
}

TEST(TfConfig, RefusesPlacesOutsideOfTheCluster) {
  const std::string cluster = R"({"cluster": {"worker": ["a:1", "b:1"]}, "task": )";
  expect_no_place(cluster + R"({"type": "worker", "index": 5}})", "task_id 5 is out of range");
  expect_no_place(cluster + R"({"type": "boss", "index": 0}})", "task_type 'boss' is unknown");
  expect_no_place(cluster + R"({"type": "chief", "index": 0}})", "is not a job of cluster_spec");
  expect_no_place(cluster + R"({"type": "worker"}})", "task_id is not given");
  expect_no_place(
      R"({"cluster": {"chief": ["a:1", "b:1"]}, "task": {"type": "chief", "index": 0}})",
      "2 tasks of job 'chief'; list at most one");
}

TEST(TfConfig, RefusesWhatItCannotRead) {
  expect_no_place("{\"cluster\": ", "TF_CONFIG is not JSON");
  expect_no_place("", "TF_CONFIG is not JSON");
  expect_no_place("{} x", "TF_CONFIG is not JSON");
  expect_no_place("[]", "TF_CONFIG must be a JSON object");
  expect_no_place(R"({"cluster": []})", "TF_CONFIG: 'cluster' must be an object");
  expect_no_place(R"({"cluster": {"worker": "a:1"}})",
                  "TF_CONFIG: 'cluster.worker' must be a list");
  expect_no_place(R"({"cluster": {"worker": [1]}})", "TF_CONFIG: 'cluster.worker' must be");
  expect_no_place(R"({"cluster": {"worker": [""]}})", "without empty addresses");
  expect_no_place(R"({"cluster": {"worker": {"x": "a:1"}}})", "index in cluster.worker='x'");
  expect_no_place(R"({"cluster": {"": []}})", "a job without a name");
  const std::string task = R"({"cluster": {"worker": ["a:1"]}, "task": )";
  expect_no_place(task + "1}", "TF_CONFIG: 'task' must be an object");
  expect_no_place(task + R"({"type": 1}})", "TF_CONFIG: 'task.type' must be a string");
  for (const char* index : {"-1", "1.5", "2147483648", "null1", "[]", "true"})
    EXPECT_FALSE(resolver_of(task + R"({"type": "worker", "index": )" + index + "}}").task().ok());
  expect_no_place(task + R"({"type": "worker", "index": "one"}})", "TF_CONFIG: task.index='one'");
  EXPECT_FALSE(resolver_of(R"({"rpc_layer": 1})").rpc_layer().ok());
  EXPECT_FALSE(resolver_of(R"({"session_master": 1})").master().ok());
}

TEST(TfConfig, CountsNoGpusWhereNoneAreVisible) {
  ResolverOptions options;
  options.variables = environment_of({{"CUDA_VISIBLE_DEVICES", ""}});
  EXPECT_TRUE(TfConfigResolver(options).num_accelerators()->empty());
}

}  // namespace
}  // namespace tutti::distribute
