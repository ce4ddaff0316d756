// Variables: what assignments and reads do with the copies of the replicas. Each in every layout.
#include "client/faces/distribute/variable.h"

#include <gtest/gtest.h>

#include "tests/distribute/layouts.h"

namespace tutti::distribute {
namespace {

using testing::check;

using Numbers = std::vector<float>;

std::unique_ptr<Variable> make(Strategy& strategy, const Values& initial, Synchronization sync,
                               Aggregation aggregation) {
  auto variable = Variable::create(strategy, initial.view(), {"v", sync, aggregation});
  check(variable.ok(), variable.status().to_string());
  return *std::move(variable);
}

// Every replica gives its value to the variable.
Status give(Strategy& strategy, Variable& variable, Update update, const Numbers& by_id) {
  return strategy.run([&](ReplicaContext& replica) {
    const auto id = static_cast<size_t>(replica.replica_id_in_sync_group());
    const Values value = Values::scalar(by_id[id]);
    const Tensor view = value.view();
    return variable.update(update, {&view, 1});
  });
}

// The copies of this process are those of `want`, by id.
void check_copies(const Strategy& strategy, const Variable& variable, const Numbers& want) {
  for (size_t i = 0; i < variable.copies().size(); ++i) {
    const auto id = static_cast<size_t>(strategy.replicas().local()[i]);
    check(numbers_of(variable.copies()[i])[0] == want[id], "copy " + std::to_string(id) + " is " +
                                                               text_of(variable.copies()[i]) +
                                                               ", not " + std::to_string(want[id]));
  }
}

float value_of(const Variable& variable) {
  const Result<Tensor> value = variable.value();
  check(value.ok(), value.status().to_string());
  return numbers_of(*value)[0];
}

void aggregates_on_write(Strategy& strategy) {
  const struct {
    Aggregation aggregation;
    Numbers assigned, added;  // Copies after assigning 10, 20, 30, 40 and adding the same.
  } cases[] = {{Aggregation::sum, Numbers(4, 100), Numbers(4, 200)},
               {Aggregation::mean, Numbers(4, 25), Numbers(4, 50)},
               {Aggregation::only_first_replica, Numbers(4, 10), Numbers(4, 20)},
               {Aggregation::none, {10, 20, 30, 40}, {20, 40, 60, 80}}};
  for (const auto& [aggregation, assigned, added] : cases) {
    const auto variable = make(strategy, Values::scalar(1), Synchronization::on_write, aggregation);
    check(give(strategy, *variable, Update::assign, {10, 20, 30, 40}).ok(), "assign");
    check_copies(strategy, *variable, assigned);
    check(give(strategy, *variable, Update::assign_add, {10, 20, 30, 40}).ok(), "assign_add");
    check_copies(strategy, *variable, added);
    check(give(strategy, *variable, Update::assign_sub, {10, 20, 30, 40}).ok(), "assign_sub");
    check_copies(strategy, *variable, assigned);
  }
}

TEST_F(Layouts, AggregateOnWrite) { expect_on_all(aggregates_on_write); }

void aggregates_on_read(Strategy& strategy) {
  const struct {
    Aggregation aggregation;
    float value;     // After each replica has added its number to 1.
    float assigned;  // Each copy, after 8 was assigned between the replicas.
  } cases[] = {{Aggregation::sum, 104, 2},
               {Aggregation::mean, 26, 8},
               {Aggregation::only_first_replica, 11, 8}};
  for (const auto& [aggregation, value, assigned] : cases) {
    const auto variable = make(strategy, Values::scalar(1), Synchronization::on_read, aggregation);
    check(give(strategy, *variable, Update::assign_add, {10, 20, 30, 40}).ok(), "assign_add");
    check_copies(strategy, *variable, {11, 21, 31, 41});
    check(value_of(*variable) == value, "the aggregate is " + std::to_string(value_of(*variable)));
    const Values eight = Values::scalar(8);
    const Tensor view = eight.view();
    check(variable->update(Update::assign, {&view, 1}).ok(), "assign");
    check_copies(strategy, *variable, Numbers(4, assigned));
    check(value_of(*variable) == 8, "what was assigned is read");
    const Status status = variable->update(Update::assign_sub, {&view, 1});
    check(status.ok() == (aggregation != Aggregation::sum), status.to_string());
  }
}

TEST_F(Layouts, AggregateOnRead) { expect_on_all(aggregates_on_read); }

void begins_with_the_first_replicas_value(Strategy& strategy) {
  const auto own = static_cast<float>(strategy.replicas().rank());
  const auto variable =
      make(strategy, Values({own, own + 1}), Synchronization::automatic, Aggregation::none);
  check(value_of(*variable) == static_cast<float>(strategy.replicas().rank_of(0)), "its value");
  check(variable->shape() == Shape{2} && variable->dtype() == Dtype::f32, "its kind");
  const Status within = strategy.run([&](ReplicaContext&) {
    check(value_of(*variable) == static_cast<float>(strategy.replicas().rank_of(0)), "a copy");
    return Variable::create(strategy, variable->copies()[0]).status();
  });
  check_fails(within, Code::failed_precondition, "cross-replica context");
}

TEST_F(Layouts, BeginWithTheFirstReplicasValue) {
  expect_on_all(begins_with_the_first_replicas_value);
}

void takes_a_value_for_each_copy(Strategy& strategy) {
  const auto variable =
      make(strategy, Values::scalar(0), Synchronization::on_write, Aggregation::sum);
  const std::vector<Values> all = {Values::scalar(1), Values::scalar(2), Values::scalar(3),
                                   Values::scalar(4)};
  const PerReplica own = own_of(strategy, all);
  check(variable->update(Update::assign, own).ok(), "one for each");
  check_copies(strategy, *variable, {1, 2, 3, 4});
}

TEST_F(Layouts, TakeAValueForEachCopy) { expect_on_all(takes_a_value_for_each_copy); }

void refuses_wrong_values(Strategy& strategy) {
  const auto variable =
      make(strategy, Values::scalar(1), Synchronization::on_write, Aggregation::sum);
  const Values pair({1, 2});
  const Tensor wrong = pair.view();
  check_fails(variable->update(Update::assign, {&wrong, 1}), Code::invalid_argument,
              "variable 'v' is f32[], but the value is f32[2]");
  check_fails(strategy.run([&](ReplicaContext& replica) {
    const Values right = Values::scalar(1);
    const Tensor view = replica.replica_id_in_sync_group() == 1 ? wrong : right.view();
    return variable->update(Update::assign_add, {&view, 1});
  }),
              Code::invalid_argument, "variable 'v' is f32[]");
  check_copies(strategy, *variable, Numbers(4, 1));
  const int32_t number = 3;
  const Tensor integer = Tensor::view(Dtype::i32, {}, &number);
  const auto mean = Variable::create(strategy, integer, {"i", {}, Aggregation::mean});
  check_fails(strategy.run([&](ReplicaContext&) {
    return (*mean)->update(Update::assign, {&integer, 1});
  }),
              Code::invalid_argument, "MEAN needs a floating dtype");
  const auto shared =
      Variable::create(strategy, integer, {"s", Synchronization::on_read, Aggregation::sum});
  check_fails((*shared)->update(Update::assign, {&integer, 1}), Code::invalid_argument,
              "cannot be divided among 4 replicas");
  const auto alone = make(strategy, Values::scalar(1), Synchronization::on_read, Aggregation::none);
  check_fails(alone->value().status(), Code::invalid_argument, "ON_READ without aggregation");
  check_fails(Variable::create(strategy, integer, {"n", Synchronization::none}).status(),
              Code::invalid_argument, "synchronization NONE");
}

TEST_F(Layouts, RefuseWrongValues) { expect_on_all(refuses_wrong_values); }

// Acceptance: with three replicas.
void follows_three(Strategy& strategy) {
  const auto first =
      make(strategy, Values::scalar(0), Synchronization::on_write, Aggregation::only_first_replica);
  check(give(strategy, *first, Update::assign, {10, 20, 30}).ok(), "assign");
  check_copies(strategy, *first, {10, 10, 10});
  const auto sum = make(strategy, Values::scalar(0), Synchronization::on_write, Aggregation::sum);
  check(give(strategy, *sum, Update::assign_add, {1, 1, 1}).ok(), "assign_add");
  check_copies(strategy, *sum, {3, 3, 3});
}

TEST_F(Layouts, FollowThreeReplicas) {
  EXPECT_EQ(run({"one", {1}, {{0, 1, 2}}}, follows_three), "");
  EXPECT_EQ(run({"each", {2, 1}, {}}, follows_three), "");
  EXPECT_EQ(run({"mixed", {1, 1}, {{1}, {0, 2}}}, follows_three), "");
}

}  // namespace
}  // namespace tutti::distribute
