// Pods behind headless services; the lookups are made up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/faces/distribute/kubernetes_resolver.h"

namespace tutti::distribute {
namespace {

using testing::HasSubstr;
using Pods = std::map<std::string, std::vector<Pod>>;

KubernetesOptions options_of(Pods pods, std::map<std::string, std::string> variables = {}) {
  KubernetesOptions options;
  options.lookup = [pods = std::move(pods)](const std::string& service) {
    const auto found = pods.find(service);
    return found == pods.end() ? Result<std::vector<Pod>>(unavailable("no " + service))
                               : Result<std::vector<Pod>>(found->second);
  };
  options.variables = environment_of(std::move(variables));
  return options;
}

const Pods kTwoPods = {{"tensorflow", {{"w-1", "10.0.0.9"}, {"w-0", "10.0.0.10"}}}};

TEST(KubernetesResolver, SortsPodsByName) {
  const KubernetesResolver resolver(options_of(kTwoPods));
  EXPECT_EQ(resolver.cluster_spec()->jobs(),
            (ClusterSpec::Jobs{{"worker", {{0, "10.0.0.10:8470"}, {1, "10.0.0.9:8470"}}}}));
  EXPECT_EQ(*resolver.rpc_layer(), "grpc");
  EXPECT_EQ(*resolver.task(), Task{});
  EXPECT_EQ(*resolver.master(), "");
  EXPECT_EQ(*resolver.master({"worker", 1}), "grpc://10.0.0.9:8470");
}

TEST(KubernetesResolver, AppendsTheServicesOfAJob) {
  KubernetesOptions options = options_of(
      {{"a", {{"a-0", "10.0.0.2"}}}, {"b", {{"b-0", "fd00::1"}}}, {"c", {{"c-0", "10.0.0.4"}}}});
  options.services = {{"worker", {"b", "a"}}, {"chief", {"c"}}};
  options.port = 7601;
  options.task = {"worker", 1};
  const KubernetesResolver resolver(options);
  EXPECT_EQ(*resolver.placement(), (Placement{2, 3, false, "10.0.0.4:7601"}));
  EXPECT_EQ(*resolver.cluster_spec()->task_address("worker", 0), "[fd00::1]:7601");
}

TEST(KubernetesResolver, FindsItselfByItsAddress) {
  const KubernetesResolver resolver(options_of(kTwoPods, {{"POD_IP", "10.0.0.9"}}));
  EXPECT_EQ(*resolver.task(), (Task{"worker", 1}));
  EXPECT_EQ(*resolver.master(), "grpc://10.0.0.9:8470");
  KubernetesOptions given = options_of(kTwoPods, {{"POD_IP", "10.0.0.9"}});
  given.task = {"worker", 0};
  EXPECT_EQ(*KubernetesResolver(given).task(), given.task);
  EXPECT_EQ(*KubernetesResolver(options_of(kTwoPods, {{"POD_IP", "10.0.0.1"}})).task(), Task{});
}

TEST(KubernetesResolver, FailsWhereAServiceDoes) {
  const KubernetesResolver absent(options_of({}, {{"POD_IP", "10.0.0.9"}}));
  EXPECT_EQ(absent.cluster_spec().status(), unavailable("no tensorflow"));
  EXPECT_EQ(absent.task().status(), unavailable("no tensorflow"));
  const Status none = KubernetesResolver(options_of({{"tensorflow", {}}})).cluster_spec().status();
  EXPECT_EQ(none.code(), Code::unavailable);
  EXPECT_THAT(none.message(), HasSubstr("service 'tensorflow' has no pods"));
}

TEST(KubernetesResolver, RefusesPodsThatDoNotRun) {
  const KubernetesResolver resolver(options_of({{"tensorflow", {{"w-0", "10.0.0.1", "Pending"}}}}));
  const Status status = resolver.cluster_spec().status();
  EXPECT_EQ(status.code(), Code::failed_precondition);
  EXPECT_THAT(status.message(),
              HasSubstr("pod 'w-0' of service 'tensorflow' is in the phase Pending"));
}

TEST(KubernetesResolver, RefusesPortsThatAreNone) {
  for (const int port : {0, 65536}) {
    KubernetesOptions options = options_of(kTwoPods);
    options.port = port;
    EXPECT_EQ(KubernetesResolver(options).cluster_spec().status().code(), Code::invalid_argument);
  }
}

// Names that need no server: a literal address, and a top-level domain that never exists.
TEST(LookupByDns, AsksTheSystemsResolver) {
  const Result<std::vector<Pod>> pods = lookup_by_dns("127.0.0.1");
  ASSERT_TRUE(pods.ok()) << pods.status().to_string();
  ASSERT_EQ(pods->size(), 1u);
  EXPECT_EQ(pods->at(0).address, "127.0.0.1");
  const Status absent = lookup_by_dns("tensorflow.invalid").status();
  EXPECT_EQ(absent.code(), Code::unavailable);
  EXPECT_THAT(absent.message(), HasSubstr("cannot resolve service 'tensorflow.invalid'"));
}

}  // namespace
}  // namespace tutti::distribute
