// Cluster specs, and what a task is in its cluster.
#include "client/faces/distribute/multi_worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti::distribute {
namespace {

using testing::HasSubstr;
using Addresses = std::map<std::string, std::vector<std::string>>;

ClusterSpec spec_of(const Addresses& addresses) { return *ClusterSpec::create(addresses); }

const ClusterSpec& three() {
  static const ClusterSpec spec = spec_of({{"chief", {"h0:1"}}, {"worker", {"h1:1", "h2:1"}}});
  return spec;
}

void expect_refused(const Status& status, const std::string& text) {
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_THAT(status.message(), HasSubstr(text));
}

TEST(ClusterSpec, HasAddressesByJobAndIndex) {
  EXPECT_EQ(three().num_tasks("worker"), 2);
  EXPECT_EQ(three().num_tasks("ps"), 0);
  EXPECT_EQ(*three().task_address("worker", 1), "h2:1");
  expect_refused(three().task_address("ps", 0).status(),
                 "'ps' is not in cluster_spec, which has "
                 "chief, worker");
  expect_refused(three().task_address("worker", 2).status(), "task_id 2 is not in job 'worker'");
  expect_refused(ClusterSpec().task_address("worker", 0).status(), "which has no jobs");
}

TEST(ClusterSpec, RefusesJobsWithoutNamesAndNegativeIndices) {
  expect_refused(ClusterSpec::create(Addresses{{"", {"a:1"}}}).status(), "a job without a name");
  expect_refused(ClusterSpec::create(ClusterSpec::Jobs{{"worker", {{-1, "a:1"}}}}).status(),
                 "index -1 of job 'worker' is negative");
}

TEST(ClusterSpec, SaysThatAnAddressIsNotKnown) {
  const Status status = spec_of({{"worker", {""}}}).task_address("worker", 0).status();
  EXPECT_EQ(status.code(), Code::failed_precondition);
  EXPECT_THAT(status.message(), HasSubstr("the address of worker 0 is not known"));
}

TEST(ClusterSpec, IsDenseWithoutGaps) {
  EXPECT_TRUE(is_dense({}));
  EXPECT_TRUE(is_dense({{0, "a"}, {1, "b"}}));
  EXPECT_FALSE(is_dense({{1, "b"}}));
  EXPECT_FALSE(is_dense({{0, "a"}, {2, "c"}}));
}

TEST(MultiWorker, CountsChiefAndWorkers) {
  EXPECT_EQ(*place(three(), {"chief", 0}), (Placement{0, 3, true, "h0:1"}));
  EXPECT_EQ(*place(three(), {"worker", 0}), (Placement{1, 3, false, "h0:1"}));
  EXPECT_EQ(*place(three(), {"worker", 1}), (Placement{2, 3, false, "h0:1"}));
}

TEST(MultiWorker, WorkerZeroIsChiefWhereThereIsNone) {
  const ClusterSpec workers = spec_of({{"ps", {"p:1"}}, {"worker", {"a:1", "b:1"}}});
  EXPECT_EQ(*place(workers, {"worker", 0}), (Placement{0, 2, true, "a:1"}));
  EXPECT_EQ(*place(workers, {"worker", 1}), (Placement{1, 2, false, "a:1"}));
  EXPECT_EQ(*is_chief(workers, {"ps", 0}), false);
}

TEST(MultiWorker, AnEvaluatorIsAlone) {
  for (const ClusterSpec& spec : {three(), spec_of({{"evaluator", {"e:1"}}, {"worker", {"a:1"}}})})
    EXPECT_EQ(*place(spec, {"evaluator", 0}), (Placement{0, 1, true, ""}));
  expect_refused(place(three(), {"evaluator", 1}).status(), "task_id 1 is out of range");
}

TEST(MultiWorker, WithoutClusterThereIsOneReplica) {
  EXPECT_EQ(*place({}, {}), (Placement{0, 1, true, ""}));
  EXPECT_EQ(*place({}, {"worker", 3}), Placement{});
  EXPECT_EQ(*collective_leader({}, {}), Task{});
}

TEST(MultiWorker, RefusesTasksThatTheClusterDoesNotHave) {
  expect_refused(validate_task(three(), {"worker", 2}), "task_id 2 is out of range");
  expect_refused(validate_task(three(), {"worker", -1}), "task_id -1 is out of range");
  expect_refused(validate_task(three(), {"worker", {}}), "no task_id is given");
  expect_refused(validate_task(three(), {"ps", 0}), "'ps' is not a job of cluster_spec");
  expect_refused(validate_task(three(), {"boss", 0}), "task_type 'boss' is unknown");
  EXPECT_TRUE(validate_task(three(), {}).ok());
  expect_refused(place(three(), {"worker", {}}).status(), "task_type or task_id is not given");
  expect_refused(place(three(), {"", 0}).status(), "task_type or task_id is not given");
}

TEST(MultiWorker, RefusesClustersWithOtherJobsOrTwoChiefs) {
  const Task worker = {"worker", 0};
  const Addresses workers = {{"worker", {"a:1"}}};
  Addresses wrong = workers;
  wrong["boss"] = {"b:1"};
  expect_refused(is_chief(spec_of(wrong), worker).status(), "job 'boss' is unknown");
  for (const char* single : {"chief", "evaluator"}) {
    wrong = workers;
    wrong[single] = {"c:1", "d:1"};
    const std::string text = "2 tasks of job '" + std::string(single) + "'; list at most one";
    expect_refused(id_in_cluster(spec_of(wrong), worker).status(), text);
    expect_refused(worker_count(spec_of(wrong), "worker").status(), text);
    expect_refused(collective_leader(spec_of(wrong), worker).status(), text);
  }
}

TEST(MultiWorker, AParameterServerHasNoRank) {
  const ClusterSpec spec = spec_of({{"ps", {"p:1"}}});
  expect_refused(id_in_cluster(spec, {"ps", 0}).status(), "takes no part in collectives");
  expect_refused(worker_count(spec, "ps").status(), "takes no part in collectives");
  expect_refused(place(spec, {"ps", 0}).status(), "takes no part in collectives");
  expect_refused(collective_leader(spec, {"ps", 0}).status(), "neither chief nor worker");
}

}  // namespace
}  // namespace tutti::distribute
