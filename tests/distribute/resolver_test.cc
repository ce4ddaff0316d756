// The resolvers that are given their cluster: simple and union.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/faces/distribute/simple_resolver.h"
#include "client/faces/distribute/union_resolver.h"

namespace tutti::distribute {
namespace {

using testing::HasSubstr;
using Addresses = std::map<std::string, std::vector<std::string>>;

std::shared_ptr<const Resolver> simple(ClusterSpec::Jobs jobs, ResolverOptions options = {}) {
  return std::make_shared<SimpleResolver>(*ClusterSpec::create(std::move(jobs)),
                                          std::move(options));
}

UnionResolver union_of(UnionResolver::Resolvers resolvers, ResolverOptions options = {}) {
  return *UnionResolver::create(std::move(resolvers), std::move(options));
}

const ClusterSpec::Tasks kTwo = {{0, "a:1"}, {1, "b:1"}};

TEST(SimpleResolver, TellsWhatItWasGiven) {
  const auto resolver = simple({{"worker", kTwo}}, {.master = "m:1",
                                                    .task = {"worker", 1},
                                                    .environment = "google",
                                                    .num_accelerators = {{"GPU", 8}},
                                                    .rpc_layer = "grpc"});
  EXPECT_EQ(resolver->cluster_spec()->num_tasks("worker"), 2);
  EXPECT_EQ(*resolver->task(), (Task{"worker", 1}));
  EXPECT_EQ(*resolver->environment(), "google");
  EXPECT_EQ(*resolver->num_accelerators(), (Accelerators{{"GPU", 8}}));
  EXPECT_EQ(*resolver->rpc_layer(), "grpc");
  EXPECT_EQ(*resolver->placement(), (Placement{1, 2, false, "a:1"}));
}

TEST(SimpleResolver, MasterIsTheTextUnlessATaskIsNamed) {
  const auto resolver = simple({{"worker", kTwo}}, {.master = "m:1", .task = {"worker", 1}});
  EXPECT_EQ(*resolver->master(), "m:1");
  EXPECT_EQ(*resolver->master({"worker", {}}), "m:1");
  EXPECT_EQ(*resolver->master({}, "grpc"), "grpc://m:1");
  EXPECT_EQ(*resolver->master({"worker", 0}, "grpc"), "grpc://a:1");
  EXPECT_EQ(resolver->master({"worker", 2}).status().code(), Code::invalid_argument);
}

TEST(SimpleResolver, WithoutArgumentsIsOneReplica) {
  const SimpleResolver resolver{ClusterSpec()};
  EXPECT_EQ(*resolver.placement(), Placement{});
  EXPECT_EQ(*resolver.master(), "");
  EXPECT_TRUE(resolver.num_accelerators()->empty());
  EXPECT_EQ(*resolver.task_type(), "");
  EXPECT_EQ(*resolver.task_id(), std::nullopt);
}

TEST(UnionResolver, ConcatenatesListsOfAJob) {
  const UnionResolver both = union_of(
      {simple({{"worker", kTwo}, {"ps", {{0, "p:1"}}}}), simple({{"worker", {{0, "c:1"}}}})});
  EXPECT_EQ(
      both.cluster_spec()->jobs(),
      (ClusterSpec::Jobs{{"ps", {{0, "p:1"}}}, {"worker", {{0, "a:1"}, {1, "b:1"}, {2, "c:1"}}}}));
}

TEST(UnionResolver, MergesByIndexWhereOneHasGaps) {
  const UnionResolver both =
      union_of({simple({{"worker", kTwo}}), simple({{"worker", {{3, "d:1"}}}})});
  EXPECT_EQ(both.cluster_spec()->jobs().at("worker"),
            (ClusterSpec::Tasks{{0, "a:1"}, {1, "b:1"}, {3, "d:1"}}));
  const UnionResolver twice =
      union_of({simple({{"worker", {{3, "c:1"}}}}), simple({{"worker", {{3, "d:1"}}}})});
  const Status status = twice.cluster_spec().status();
  EXPECT_EQ(status.code(), Code::already_exists);
  EXPECT_THAT(status.message(), HasSubstr("task 3 of job 'worker' is in two resolvers"));
  EXPECT_EQ(twice.placement().status().code(), Code::already_exists);
}

TEST(UnionResolver, ElseFollowsTheFirst) {
  const auto first = simple({{"worker", kTwo}}, {.master = "m:1",
                                                 .task = {"worker", 1},
                                                 .environment = "google",
                                                 .num_accelerators = {{"GPU", 1}},
                                                 .rpc_layer = "grpc"});
  const auto second = simple({{"ps", kTwo}}, {.master = "n:1", .num_accelerators = {{"GPU", 2}}});
  const UnionResolver both = union_of({first, second});
  EXPECT_EQ(*both.task(), (Task{"worker", 1}));
  EXPECT_EQ(*both.environment(), "google");
  EXPECT_EQ(both.num_accelerators()->at("GPU"), 1);
  EXPECT_EQ(*both.rpc_layer(), "grpc");
  EXPECT_EQ(*both.master(), "grpc://m:1");
  EXPECT_EQ(*both.master({"ps", 1}), "b:1");
  EXPECT_EQ(*both.master({"ps", 1}, "tcp"), "tcp://b:1");
}

TEST(UnionResolver, ArgumentsGoFirst) {
  const UnionResolver both = union_of({simple({{"worker", kTwo}}, {.task = {"worker", 1}})},
                                      {.task = {"", 0}, .rpc_layer = "tcp"});
  EXPECT_EQ(*both.task(), (Task{"worker", 0}));  // In TensorFlow 0 counts for nothing.
  EXPECT_EQ(*both.rpc_layer(), "tcp");
  EXPECT_EQ(*both.master({"worker", 1}), "tcp://b:1");
}

TEST(UnionResolver, NeedsResolvers) {
  EXPECT_EQ(UnionResolver::create({}).status().code(), Code::invalid_argument);
  EXPECT_EQ(UnionResolver::create({nullptr}).status().code(), Code::invalid_argument);
}

}  // namespace
}  // namespace tutti::distribute
