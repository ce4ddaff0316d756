// A variable of which every replica has a copy, as the one that tf.Variable makes within a
// strategy's scope.
#pragma once

#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "client/faces/distribute/strategy.h"

namespace tutti::distribute {

enum class Update { assign, assign_add, assign_sub };

struct VariableOptions {
  std::string name = "Variable";  // Messages name it.
  Synchronization synchronization = Synchronization::automatic;
  Aggregation aggregation = Aggregation::none;
};

// What update() and value() do depends on the context (context.h).
//
// Within a replica's function, on_write: with SUM and MEAN the copies of all replicas are updated
// by the reduction of their values, with ONLY_FIRST_REPLICA by the value of replica 0; every
// replica must call it. With NONE, and on_read, the replica's own copy alone is updated.
//
// In cross-replica context, on_write: every copy of this process is updated. On_read: the same, but
// an assigned value is the aggregate, so that with SUM each copy gets its share of it.
class Variable {
 public:
  // Called on all ranks, in cross-replica context: each copy becomes `initial` of replica 0's
  // process. INVALID_ARGUMENT: synchronization NONE, or ranks that differ in dtype, shape, name or
  // options. `strategy` outlives the variable.
  static Result<std::unique_ptr<Variable>> create(Strategy& strategy, const Tensor& initial,
                                                  VariableOptions options = {});

  const VariableOptions& options() const { return options_; }
  Dtype dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  // The copies of this process's replicas, in the order of their ids. Not to be read while another
  // replica updates its own.
  std::span<const Tensor> copies() const { return copies_; }

  // `values`: within a replica's function one, else one for all copies, or one for each copy of
  // this process. INVALID_ARGUMENT: another dtype or shape; bools but for assign; MEAN of integers;
  // in cross-replica context and on_read, SUM: assign_add and assign_sub, or integers that the
  // number of replicas does not divide.
  Status update(Update update, std::span<const Tensor> values, const CallOptions& options = {});
  // In place of update(), with an error of the caller's own: that of all replicas where they update
  // the variable together, else returned as it is.
  Status refuse(const Status& own, const CallOptions& options = {});

  // Within a replica's function its copy. In cross-replica context, on_write: the copy of this
  // process's first replica. On_read: the aggregate of all copies, for which all ranks call this;
  // INVALID_ARGUMENT with NONE.
  Result<Tensor> value(const CallOptions& options = {}) const;

 private:
  Variable(Strategy& strategy, VariableOptions options, std::vector<Tensor> copies)
      : strategy_(strategy),
        options_(std::move(options)),
        dtype_(copies[0].dtype()),
        shape_(copies[0].shape()),
        copies_(std::move(copies)) {}

  ReplicaContext* replica() const;  // The one in whose function this is called, or null.
  bool on_read() const { return options_.synchronization == Synchronization::on_read; }
  Status validate(Update update, std::span<const Tensor> values, size_t most) const;
  Status update_in_replica(ReplicaContext& replica, Update update, const Tensor& value,
                           const CallOptions& options);
  Status update_between(Update update, std::span<const Tensor> values);
  Status merge_values(Update update, const PerReplica& values, const CallOptions& options);
  Result<Tensor> share_of(const Tensor& value) const;

  Strategy& strategy_;
  const VariableOptions options_;
  const Dtype dtype_;
  const Shape shape_;
  std::vector<Tensor> copies_;
};

}  // namespace tutti::distribute
