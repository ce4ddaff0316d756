// Strategies: running functions, collectives between and within the replicas, and the errors of
// calls that differ. Each in every layout.
#include "client/faces/distribute/strategy.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>

#include "client/faces/distribute/simple_resolver.h"
#include "tests/distribute/layouts.h"
#include "tests/support/memory_limit.h"

namespace tutti::distribute {
namespace {

using testing::check;

std::vector<Values> ids_as_values() {
  return {Values::scalar(0), Values::scalar(1), Values::scalar(2), Values::scalar(3)};
}

void sums_the_replicas_ids(Strategy& strategy) {
  check(strategy.num_replicas_in_sync() == 4, "4 replicas");
  std::vector<Values> seen(4, Values::scalar(-1));
  const Status status = strategy.run([&](ReplicaContext& replica) {
    check(replica.num_replicas_in_sync() == 4, "4 replicas in sync");
    const int id = replica.replica_id_in_sync_group();
    seen[static_cast<size_t>(id)] = Values::scalar(static_cast<float>(id));
    return Status();
  });
  check(status.ok(), status.to_string());
  const Leaves leaves = {own_of(strategy, seen)};
  check_value(strategy.reduce(ReduceOp::sum, leaves), Values::scalar(6), "SUM");
  check_value(strategy.reduce(ReduceOp::mean, leaves), Values::scalar(1.5), "MEAN");
}

TEST_F(Layouts, ReduceTheIdsOfFourReplicas) { expect_on_all(sums_the_replicas_ids); }

void tells_each_replica_its_id(Strategy& strategy) {
  const std::vector<ValueContext> contexts = strategy.value_contexts();
  check(contexts.size() == strategy.replicas().local().size(), "a context for each replica");
  for (size_t i = 0; i < contexts.size(); ++i) {
    check(contexts[i].replica_id_in_sync_group == strategy.replicas().local()[i], "its id");
    check(contexts[i].num_replicas_in_sync == 4, "4 replicas");
  }
  const InputContext input = strategy.input_context();
  check(input.num_input_pipelines == strategy.replicas().world_size(), "a pipeline a process");
  check(input.input_pipeline_id == strategy.replicas().rank(), "its rank");
  check(*input.get_per_replica_batch_size(8) == 2, "a quarter of the batch");
}

TEST_F(Layouts, MakeContextsForDataAndValues) { expect_on_all(tells_each_replica_its_id); }

void reduces_along_axes(Strategy& strategy) {
  const std::vector<Values> uneven = {Values({0, 1, 2, 3}), Values({4, 5})};
  const Leaves leaves = {own_of(strategy, uneven)};
  check_value(strategy.reduce(ReduceOp::mean, leaves, {{0}}), Values::scalar(2.5), "MEAN axis 0");
  check_value(strategy.reduce(ReduceOp::sum, leaves, {{0}}), Values::scalar(15), "SUM axis 0");
  check_value(strategy.reduce(ReduceOp::mean, leaves, {{-1}}), Values::scalar(2.5), "axis -1");
  check_fails(strategy.reduce(ReduceOp::sum, leaves).status(), Code::invalid_argument, "f32[2]");
  check_fails(strategy.reduce(ReduceOp::mean, leaves, {{3}}).status(), Code::invalid_argument,
              "axis=3 is out of range");
  check_fails(strategy.reduce(ReduceOp::mean, leaves, {{0, 0}}).status(), Code::invalid_argument,
              "given twice");
  const std::vector<Values> tables = {Values({1, 2, 3, 4, 5, 6}, {2, 3}),
                                      Values({10, 20, 30}, {1, 3})};
  const Leaves rows = {own_of(strategy, tables)};
  check_value(strategy.reduce(ReduceOp::mean, rows, {{0}}), Values({5, 9, 13}), "of rows");
  check_value(strategy.reduce(ReduceOp::sum, rows, {{1, 0}}), Values::scalar(81), "of all");
}

TEST_F(Layouts, ReduceAlongAxesOfUnevenLengths) { expect_on_pairs(reduces_along_axes); }

void reduces_nothing(Strategy& strategy) {
  const std::vector<Values> empty(2, Values({}, {0, 3}));
  const Leaves leaves = {own_of(strategy, empty)};
  check_value(strategy.reduce(ReduceOp::sum, leaves, {{0}}), Values({0, 0, 0}), "of no rows");
  const auto mean = strategy.reduce(ReduceOp::mean, leaves, {{0}});
  check(mean.ok() && std::isnan(numbers_of((*mean)[0])[0]), "0 / 0 is NaN");
  check_value(strategy.reduce(ReduceOp::mean, leaves), Values({}, {0, 3}), "of empty tensors");
  const Result<std::vector<Tensor>> none = strategy.reduce(ReduceOp::sum, {});
  check(none.ok() && none->empty(), "no leaves");
}

TEST_F(Layouts, ReduceEmptyTensors) { expect_on_pairs(reduces_nothing); }

void gathers(Strategy& strategy) {
  const std::vector<Values> same(2, Values({1, 2}, {2, 1}));
  check_value(strategy.gather({own_of(strategy, same)}, 0), Values({1, 2, 1, 2}, {4, 1}), "axis 0");
  const std::vector<Values> uneven = {Values({1, 2, 3, 4}, {2, 2}), Values({5, 6}, {2, 1})};
  check_value(strategy.gather({own_of(strategy, uneven)}, 1), Values({1, 2, 5, 3, 4, 6}, {2, 3}),
              "axis 1");
  const std::vector<Values> empty = {Values({}, {0}), Values({7})};
  check_value(strategy.gather({own_of(strategy, empty)}, 0), Values({7}), "an empty part");
  const std::vector<Values> scalars(2, Values::scalar(1));
  check_fails(strategy.gather({own_of(strategy, scalars)}, 0).status(), Code::invalid_argument,
              "out of range");
  check_fails(strategy.gather({own_of(strategy, uneven)}, 0).status(), Code::invalid_argument,
              "f32[");
}

TEST_F(Layouts, GatherAlongAnAxis) { expect_on_pairs(gathers); }

void gathers_in_the_order_of_ids(Strategy& strategy) {
  const std::vector<Values> parts(4, Values({1, 2, 3, 4, 5, 6}, {1, 2, 3}));
  const auto joined = strategy.gather({own_of(strategy, parts)}, 1);
  check(joined.ok() && (*joined)[0].shape() == Shape{1, 8, 3}, "(1,2,3) x 4 is (1,8,3)");
  const std::vector<Values> own = {Values({0}), Values({1, 1}), Values({}), Values({3, 3, 3})};
  check_value(strategy.gather({own_of(strategy, own)}, 0), Values({0, 1, 1, 3, 3, 3}), "by id");
}

TEST_F(Layouts, GatherInTheOrderOfIds) { expect_on_all(gathers_in_the_order_of_ids); }

void keeps_structures(Strategy& strategy) {
  const Status status = strategy.run([&](ReplicaContext& replica) -> Status {
    const Values a = Values::scalar(1);
    const Values b({2, 3});
    auto sums = replica.all_reduce(ReduceOp::sum, {a.view(), b.view()}, "{a:*,b:*}");
    if (!sums.ok()) return sums.status();
    check(text_of((*sums)[0]) == text_of(Values::scalar(2).view()), "a");
    check(text_of((*sums)[1]) == text_of(Values({4, 6}).view()), "b");
    const bool first = replica.replica_id_in_sync_group() == 0;
    check_fails(replica.all_reduce(ReduceOp::sum, {a.view()}, first ? "{a:*}" : "[*]").status(),
                Code::invalid_argument, "{a:*}");
    check_fails(replica.all_reduce(first ? ReduceOp::sum : ReduceOp::mean, {a.view()}).status(),
                Code::invalid_argument, "MEAN");
    check_fails(replica.all_reduce(ReduceOp::sum, {first ? a.view() : b.view()}).status(),
                Code::invalid_argument, "f32[2]");
    sums = replica.all_reduce(ReduceOp::mean, {b.view()});
    return sums.status();
  });
  check(status.ok(), status.to_string());
}

TEST_F(Layouts, AllReduceStructures) { expect_on_pairs(keeps_structures); }

void refuses_other_contexts(Strategy& strategy) {
  const Values one = Values::scalar(1);
  const Leaves leaves = {PerReplica(strategy.replicas().local().size(), one.view())};
  const Status status = strategy.run([&](ReplicaContext& replica) {
    check(current_context().replica == &replica, "a replica's context");
    check_fails(strategy.reduce(ReduceOp::sum, leaves).status(), Code::failed_precondition,
                "requires being in cross-replica context");
    check_fails(strategy.run([](ReplicaContext&) { return Status(); }), Code::failed_precondition,
                "requires being in cross-replica context");
    check_fails(enter_context({&strategy, nullptr}), Code::failed_precondition, "within a replica");
    return Status();
  });
  check(status.ok(), status.to_string());
  const std::unique_ptr<Strategy> other = make_strategy({});
  check(enter_context({&strategy, nullptr}).ok(), "a scope");
  check(enter_context({&strategy, nullptr}).ok(), "the same scope again");
  check_fails(enter_context({other.get(), nullptr}), Code::failed_precondition, "mixing");
  check_fails(other->reduce(ReduceOp::sum, {{one.view()}}).status(), Code::failed_precondition,
              "mixing");
  check_fails(leave_context(other.get()), Code::failed_precondition, "innermost");
  check(strategy.reduce(ReduceOp::sum, leaves).ok(), "a collective within its scope");
  check(leave_context(&strategy).ok() && leave_context(&strategy).ok(), "left twice");
  check(current_context().strategy == nullptr, "no scope");
}

TEST_F(Layouts, RefuseCallsInOtherContexts) { expect_on_pairs(refuses_other_contexts); }

void detects_other_orders(Strategy& strategy) {
  const Values one({1});
  const Status status = strategy.run([&](ReplicaContext& replica) -> Status {
    const bool first = replica.replica_id_in_sync_group() == 0;
    const auto sum = [&] { return replica.all_reduce(ReduceOp::sum, {one.view()}).status(); };
    const auto mean = [&] { return replica.all_reduce(ReduceOp::mean, {one.view()}).status(); };
    const auto gather = [&] { return replica.all_gather({one.view()}, 0).status(); };
    check_fails(first ? sum() : gather(), Code::invalid_argument, "all_gather");
    check_fails(first ? mean() : sum(), Code::invalid_argument, "MEAN");
    check_fails(first ? gather() : mean(), Code::invalid_argument, "MEAN");
    return sum();
  });
  check(status.ok(), status.to_string());
}

TEST_F(Layouts, DetectCollectivesInAnotherOrder) { expect_on_all(detects_other_orders); }

void tells_who_returned_early(Strategy& strategy) {
  const Values one({1});
  const Status status = strategy.run([&](ReplicaContext& replica) -> Status {
    if (replica.index() == 1) return invalid_argument("no data");
    return replica.all_reduce(ReduceOp::sum, {one.view()}).status();
  });
  const bool several = strategy.replicas().local().size() > 1;
  check_fails(status, several ? Code::invalid_argument : Code::failed_precondition, "no data");
  const Leaves leaves = {PerReplica(strategy.replicas().local().size(), one.view())};
  check(strategy.reduce(ReduceOp::sum, leaves).ok(), "usable afterwards");
}

TEST_F(Layouts, TellWhoReturnedEarly) {
  const std::vector<Layout> layouts = {{"one", {1}, {{0, 1}}}, {"mixed", {1, 1}, {{0, 1}, {2}}}};
  for (const Layout& layout : layouts) EXPECT_EQ(run(layout, tells_who_returned_early), "");
}

void merges(Strategy& strategy) {
  std::atomic<int> calls = 0;
  std::vector<Values> all = ids_as_values();
  float total = 0;
  const Status status = strategy.run([&](ReplicaContext& replica) {
    Values& own = all[static_cast<size_t>(replica.replica_id_in_sync_group())];
    return replica.merge_call("sum", &own, [&](Strategy& merged, const std::vector<void*>& values) {
      ++calls;
      check(current_context().strategy == &merged && current_context().replica == nullptr,
            "a cross-replica context");
      PerReplica views;
      for (void* value : values) views.push_back(static_cast<Values*>(value)->view());
      const auto sum = merged.reduce(ReduceOp::sum, {views});
      if (sum.ok()) total = numbers_of((*sum)[0])[0];
      return sum.status();
    });
  });
  check(status.ok(), status.to_string());
  check(calls == 1 && total == 6, "one call with all values");
}

TEST_F(Layouts, MergeCallsOnceAProcess) { expect_on_all(merges); }

void broadcasts_weights(Strategy& strategy) {
  const float own = static_cast<float>(strategy.replicas().rank()) + 0.1F;
  const Values weights({own, own * 2});
  const Values bias = Values::scalar(own);
  const auto got = strategy.broadcast_parameters({weights.view(), bias.view()});
  const float root = static_cast<float>(strategy.replicas().rank_of(0)) + 0.1F;
  check_value(got, Values({root, root * 2}), "weights");
  check(numbers_of((*got)[1]) == std::vector<float>{root}, "bias");
  check_fails(strategy.broadcast_parameters({bias.view()}, 4).status(), Code::invalid_argument,
              "root=4");
}

TEST_F(Layouts, BroadcastWeights) { expect_on_all(broadcasts_weights); }

void keeps_sixteen_bits(Strategy& strategy) {
  const std::vector<uint16_t> large = {0x7b53};  // 60000 in f16: twice that is no f16.
  const Tensor view = Tensor::view(Dtype::f16, {1}, large.data());
  const Leaves leaves = {PerReplica(strategy.replicas().local().size(), view)};
  const auto mean = strategy.reduce(ReduceOp::mean, leaves);
  check(mean.ok(), mean.status().to_string());
  check(numbers_of<uint16_t>((*mean)[0]) == large, "the mean of equals");
  const auto along = strategy.reduce(ReduceOp::mean, leaves, {{0}});
  check(along.ok() && numbers_of<uint16_t>((*along)[0]) == large, "along the axis");
}

TEST_F(Layouts, AccumulateSixteenBitsInThirtyTwo) { expect_on_all(keeps_sixteen_bits); }

void refuses_means_of_integers(Strategy& strategy) {
  const std::vector<int32_t> one = {7};
  const Tensor view = Tensor::view(Dtype::i32, {1}, one.data());
  const Leaves leaves = {PerReplica(strategy.replicas().local().size(), view)};
  for (const auto& axes : {std::optional<std::vector<int64_t>>(), {{0}}})
    check_fails(strategy.reduce(ReduceOp::mean, leaves, axes).status(), Code::invalid_argument,
                "MEAN needs a floating dtype");
  const auto sum = strategy.reduce(ReduceOp::sum, leaves);
  check(sum.ok() && numbers_of<int32_t>((*sum)[0])[0] == 28, "SUM of integers");
}

TEST_F(Layouts, RefuseSumsOfBools) {
  expect_on_pairs([](Strategy& strategy) {
    const bool yes[] = {true};
    const Tensor view = Tensor::view(Dtype::boolean, {1}, yes);
    const Leaves leaves = {PerReplica(strategy.replicas().local().size(), view)};
    for (const auto& axes : {std::optional<std::vector<int64_t>>(), {{0}}})
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean})
        check_fails(strategy.reduce(op, leaves, axes).status(), Code::invalid_argument,
                    std::string(name_of(op)) + " of bools");
    check(strategy.gather(leaves, 0).ok(), "bools are gathered");
    const std::vector<Tensor> one = {view};
    check(strategy.broadcast_parameters(one).ok(), "and broadcast");
  });
}

TEST_F(Layouts, RefuseMeansOfIntegers) { expect_on_all(refuses_means_of_integers); }

TEST_F(Layouts, FollowTheResolver) {
  const auto body = [](const testing::RankContext& context) {
    const ClusterSpec spec = *ClusterSpec::create({{"chief", {"h0:1"}}, {"worker", {"h1:1"}}});
    const Task task = {context.rank == 0 ? "chief" : "worker", 0};
    setenv("TUTTI_SOCKET", context.socket.c_str(), 1);
    StrategyOptions options;
    options.cluster.resolver =
        std::make_shared<SimpleResolver>(spec, ResolverOptions{.task = task});
    const std::unique_ptr<Strategy> strategy = make_strategy(options);
    check(strategy->replicas().rank() == context.rank, "the rank of the cluster");
    const Values one({1});
    check_value(strategy->reduce(ReduceOp::sum, {{one.view()}}), Values({2}), "of two");
    check(*strategy->device_name(1, 0) == "/job:worker/task:1/device:CPU:0", "a host's name");
    options.cluster.group = nullptr;
    Group third = context.join();
    options.cluster.group = third.get();
    options.cluster.resolver = std::make_shared<SimpleResolver>(ClusterSpec());
    check_fails(Strategy::create(options).status(), Code::invalid_argument,
                "but the resolver says rank 0 of 1");
  };
  EXPECT_EQ(mesh_->run("resolver", {1, 1}, body), "");
}

TEST_F(Layouts, TellWrongAssignmentsToAll) {
  const auto body = [](const testing::RankContext& context) {
    Group group = context.join();
    StrategyOptions options;
    options.cluster = {.group = group.get(), .variables = environment_of({})};
    options.local_replicas = context.rank == 0 ? 0 : 1;
    check_fails(Strategy::create(options).status(), Code::invalid_argument,
                "this process has 0 replicas");
    options.device_assignment = assignment_of({{0, 1}});
    check_fails(Strategy::create(options).status(), Code::invalid_argument,
                "for 1 tasks, but the cluster has 2");
    options.device_assignment = assignment_of({{0, 1}, {}});
    check_fails(Strategy::create(options).status(), Code::invalid_argument,
                "device_assignment has no replica on task 1");
    options.device_assignment = assignment_of({{1}, {0}});
    if (context.rank == 0) options.device_assignment.reset();
    options.local_replicas = 1;
    check_fails(Strategy::create(options).status(), Code::invalid_argument, "with replica ids");
    options.device_assignment = assignment_of({{1}, {0}});
    check(Strategy::create(options).ok(), "a right one afterwards");
  };
  EXPECT_EQ(mesh_->run("assignments", {1, 1}, body), "");
}

// One rank's memory does not suffice, which it finds out before data moves.
void runs_out_of_memory(Strategy& strategy) {
  if (!testing::memory_can_run_out()) return;
  const Values one({1});
  Tensor value = one.view();
  if (strategy.replicas().rank() == 1)
    value = Tensor::view(Dtype::f32, {int64_t{1} << 58}, one.numbers.data());
  const auto short_of = [&](const Status& status) {
    check_fails(status, Code::resource_exhausted, "this process is out of memory");
  };
  short_of(strategy.reduce(ReduceOp::sum, {{value}}, {{0}}).status());
  const std::vector<float> large(strategy.replicas().rank() == 1 ? 1 << 24 : 1);  // 64 MiB.
  value = Tensor::view(Dtype::f32, {int64_t(large.size())}, large.data());
  if (strategy.replicas().rank() == 0) testing::limit_memory(32 << 20);
  check_fails(strategy.gather({{value}}, 0).status(), Code::resource_exhausted,
              "this process is out of memory");
  check_value(strategy.reduce(ReduceOp::sum, {{one.view()}}), Values({2}), "afterwards");
}

TEST_F(Layouts, TellAllThatTheMemoryOfOneHasRunOut) {
  EXPECT_EQ(run({"each", {1, 1}, {}}, runs_out_of_memory), "");
}

// A rank that cannot make its call is not a call ahead of the other afterwards.
void refuses_calls(Strategy& strategy) {
  const Values one({1});
  const Leaves leaves = {PerReplica(strategy.replicas().local().size(), one.view())};
  const bool second = strategy.replicas().rank() == 1;
  const Status own = invalid_argument("no tensor");
  for (int again = 0; again < 3; ++again)
    check_fails(second ? strategy.refuse(own) : strategy.reduce(ReduceOp::sum, leaves).status(),
                Code::invalid_argument,
                second ? "no tensor" : "rank 1 refused the call: no tensor");
  const Status status = strategy.run([&](ReplicaContext& replica) -> Status {
    const bool last = replica.replica_id_in_sync_group() == 3;
    for (int again = 0; again < 3; ++again)
      check_fails(
          last ? strategy.refuse(own) : replica.all_reduce(ReduceOp::sum, {one.view()}).status(),
          Code::invalid_argument,
          second ? "replica 3: no tensor" : "rank 1 refused the call: replica 3: no tensor");
    return replica.all_reduce(ReduceOp::sum, {one.view()}).status();
  });
  check(status.ok(), status.to_string());
  check_value(strategy.reduce(ReduceOp::sum, leaves), Values({4}), "afterwards");
}

TEST_F(Layouts, FailOnAllWhatOneRefuses) {
  EXPECT_EQ(run({"pairs", {1, 1}, {{0, 1}, {2, 3}}}, refuses_calls), "");
}

// Rank 2 dies within a step. The others learn who it was; with another rank 2 they go on.
void survives_a_death(const testing::RankContext& context) {
  const Values one({1});
  for (int life = 0; life < 2; ++life) {
    Group group = context.join();
    StrategyOptions options;
    options.cluster = {.group = group.get(), .variables = environment_of({})};
    const std::unique_ptr<Strategy> strategy = make_strategy(options);
    if (life == 1)
      return check_value(strategy->reduce(ReduceOp::sum, {{one.view()}}), Values({3}), "then");
    const auto begin = std::chrono::steady_clock::now();
    const Status status = strategy->run([&](ReplicaContext& replica) {
      if (context.rank == 2) raise(SIGKILL);
      return replica.all_reduce(ReduceOp::sum, {one.view()}).status();
    });
    check_fails(status, Code::unavailable, "rank 2");
    check(std::chrono::steady_clock::now() - begin < std::chrono::seconds(30),
          "told of the death, and not by the timeout, which is a minute");
  }
}

TEST_F(Layouts, NameTheProcessThatDied) {
  std::vector<testing::Trainer> trainers = mesh_->start("death", {2, 1}, survives_a_death);
  EXPECT_NE(trainers[2].wait().find("killed by signal 9"), std::string::npos);
  const auto second = [](const testing::RankContext& context) {
    Group group = context.join();
    StrategyOptions options;
    options.cluster = {.group = group.get(), .variables = environment_of({})};
    const Values one({1});
    check_value(make_strategy(options)->reduce(ReduceOp::sum, {{one.view()}}), Values({3}), "then");
  };
  testing::Trainer again({"death", mesh_->host(1).socket, 2, 3}, second);
  EXPECT_EQ(again.wait() + trainers[0].wait() + trainers[1].wait(), "") << mesh_->log_tails();
}

TEST(Strategy, OfAProcessAloneIsTheIdentity) {
  const std::unique_ptr<Strategy> strategy = make_strategy({});
  EXPECT_EQ(strategy->num_replicas_in_sync(), 1);
  const Values value({1.5, std::nanf("")});
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean}) {
    const auto same = strategy->reduce(op, {{value.view()}});
    ASSERT_TRUE(same.ok());
    EXPECT_EQ(std::memcmp((*same)[0].data(), value.view().data(), 8), 0);
  }
  const std::thread::id here = std::this_thread::get_id();
  EXPECT_TRUE(strategy
                  ->run([&](ReplicaContext& replica) {
                    EXPECT_EQ(std::this_thread::get_id(), here);
                    return replica.all_reduce(ReduceOp::mean, {value.view()}).status();
                  })
                  .ok());
  EXPECT_FALSE(strategy->run({}).ok());
}

// Of 240 threads few can be started; none of these waits for the others.
TEST_F(Layouts, TellWhichThreadCannotBeStarted) {
  if (!testing::memory_can_run_out()) GTEST_SKIP() << "a sanitizer needs the memory";
  const auto body = [](const testing::RankContext&) {
    StrategyOptions options;
    options.local_replicas = kLocalReplicasMax;
    const std::unique_ptr<Strategy> strategy = make_strategy(options);
    const Values one({1});
    testing::limit_memory(100 << 20);
    std::atomic<int> calls = 0;
    const Status status = strategy->run([&](ReplicaContext& replica) {
      ++calls;
      const Status told = replica.all_reduce(ReduceOp::sum, {one.view()}).status();
      check_fails(told, Code::failed_precondition, "cannot be started");
      return told;
    });
    check_fails(status, Code::resource_exhausted, "cannot be started");
    check(calls > 0 && calls < kLocalReplicasMax, "some have run");
  };
  EXPECT_EQ(mesh_->run("threads", {1}, body), "");
}

// A replica of the process does not come: the others wait for the timeout and not for ever, and
// those of the other process learn it.
TEST_F(Layouts, NameTheReplicaThatDoesNotCome) {
  const auto body = [](const testing::RankContext& context) {
    Group group = context.join();
    StrategyOptions options;
    options.cluster = {.group = group.get(), .timeout_ms = 200, .variables = environment_of({})};
    options.device_assignment = assignment_of({{0, 1}, {2}});
    const std::unique_ptr<Strategy> strategy = make_strategy(options);
    const Values one({1});
    std::atomic<int> failed = 0;
    const Status status = strategy->run([&](ReplicaContext& replica) -> Status {
      const int id = replica.replica_id_in_sync_group();
      int rounds = 0;
      for (const int32_t timeout_ms : {0, 600}) {  // 0: the group's.
        while (id == 1 && failed == rounds) std::this_thread::yield();
        const Status late =
            replica.all_reduce(ReduceOp::sum, {one.view()}, "", {timeout_ms}).status();
        check_fails(late, Code::deadline_exceeded, "not called in time: replica 1");
        ++rounds;
        if (id == 0) failed = rounds;
      }
      return replica.all_reduce(ReduceOp::sum, {one.view()}, "", {60'000}).status();
    });
    check(status.ok(), status.to_string());
  };
  EXPECT_EQ(mesh_->run("late", {1, 1}, body), "");
}

TEST(Strategy, HasALimitedNumberOfReplicas) {
  for (const int replicas : {-1, 0, kLocalReplicasMax + 1, 50'000}) {
    StrategyOptions options;
    options.cluster.variables = environment_of({});
    options.local_replicas = replicas;
    EXPECT_EQ(Strategy::create(options).status().code(), Code::invalid_argument) << replicas;
  }
}

TEST(Strategy, NamesItsDevices) {
  StrategyOptions options;
  const Topology topology =
      *Topology::create({1, 1, 1, 4}, {{{0, 0, 0, 0}, {0, 0, 0, 1}, {0, 0, 0, 2}, {0, 0, 0, 3}}});
  options.device_assignment =
      *DeviceAssignment::build(topology, {.computation_shape = {{1, 1, 1, 2}}, .num_replicas = 2});
  const std::unique_ptr<Strategy> strategy = make_strategy(options);
  EXPECT_EQ(strategy->num_replicas_in_sync(), 2);
  EXPECT_EQ(strategy->num_logical_devices(), 2);
  EXPECT_EQ(*strategy->device_name(1, 1), "/job:worker/task:0/device:GPU:3");
  EXPECT_EQ(strategy->device_name(2, 0).status().code(), Code::out_of_range);
}

}  // namespace
}  // namespace tutti::distribute
