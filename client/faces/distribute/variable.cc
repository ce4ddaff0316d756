#include "client/faces/distribute/variable.h"

#include <algorithm>

#include "client/faces/distribute/arithmetic.h"

namespace tutti::distribute {
namespace {

std::string verb_of(Update update) {
  if (update == Update::assign) return "assign";
  return update == Update::assign_add ? "assign_add" : "assign_sub";
}

void apply(Update update, const Tensor& value, Tensor& copy) {
  if (update == Update::assign) return copy.assign(value);
  const bool adds = update == Update::assign_add;
  copy.assign(adds ? sum_of({copy, value}, copy.dtype()) : subtract(copy, value));
}

std::string describe(const VariableOptions& options) {
  const bool on_read = options.synchronization == Synchronization::on_read;
  return "Variable('" + options.name + "', " + (on_read ? "ON_READ" : "ON_WRITE") + ", " +
         to_string(options.aggregation) + ")";
}

}  // namespace

Result<std::unique_ptr<Variable>> Variable::create(Strategy& strategy, const Tensor& initial,
                                                   VariableOptions options) {
  if (Status status = strategy.require_cross_replica("Variable()"); !status.ok()) return status;
  const Status valid =
      options.synchronization == Synchronization::none
          ? invalid_argument("synchronization NONE is not supported for variable '" + options.name +
                             "'; use ON_WRITE or ON_READ")
          : Status();
  if (!valid.ok()) return strategy.replicas().agree(valid, describe(options));
  const size_t count = strategy.replicas().local().size();
  const Result<std::vector<Tensor>> first =
      strategy.replicas().broadcast(describe(options), 0, {PerReplica(count, initial)});
  if (!first.ok()) return first.status();
  std::vector<Tensor> copies;
  for (size_t i = 0; i < count; ++i) copies.push_back((*first)[0].clone());
  return std::unique_ptr<Variable>(new Variable(strategy, std::move(options), std::move(copies)));
}

Status Variable::validate(Update update, std::span<const Tensor> values, size_t most) const {
  if (values.size() != 1 && values.size() != most)
    return invalid_argument("variable '" + options_.name + "' is given " +
                            std::to_string(values.size()) + " values; give 1 or " +
                            std::to_string(most));
  if (dtype() == Dtype::boolean && update != Update::assign)
    return invalid_argument(verb_of(update) + "() of variable '" + options_.name +
                            "', which is of bools; only assign() is possible");
  for (const Tensor& value : values)
    if (value.dtype() != dtype() || value.shape() != shape())
      return invalid_argument("variable '" + options_.name + "' is " + describe(copies_[0]) +
                              ", but the value is " + describe(value) + "; convert it");
  return {};
}

ReplicaContext* Variable::replica() const {
  ReplicaContext* replica = current_context().replica;
  return replica != nullptr && &replica->strategy() == &strategy_ ? replica : nullptr;
}

Status Variable::update(Update update, std::span<const Tensor> values, const CallOptions& options) {
  if (ReplicaContext* within = replica()) {
    if (Status status = validate(update, values, 1); !status.ok()) return refuse(status, options);
    return update_in_replica(*within, update, values[0], options);
  }
  if (Status status = strategy_.require_cross_replica(verb_of(update) + "()"); !status.ok())
    return status;
  if (Status status = validate(update, values, copies_.size()); !status.ok()) return status;
  return update_between(update, values);
}

Status Variable::refuse(const Status& own, const CallOptions& options) {
  ReplicaContext* within = replica();
  const bool together = !on_read() && options_.aggregation != Aggregation::none;
  return within != nullptr && together ? within->refuse(own, options) : own;
}

Status Variable::update_in_replica(ReplicaContext& replica, Update update, const Tensor& value,
                                   const CallOptions& options) {
  if (on_read() || options_.aggregation == Aggregation::none) {
    apply(update, value, copies_[replica.index()]);
    return {};
  }
  const std::string call = describe(options_) + "." + verb_of(update) + "()";
  Tensor own = value;
  return replica.merge_collective(
      call, &own,
      [&](const Status& met, const std::vector<void*>& parts) -> Status {
        if (!met.ok()) return strategy_.replicas().agree(met, call, options);
        PerReplica values;
        for (void* part : parts) values.push_back(*static_cast<Tensor*>(part));
        return merge_values(update, values, options);
      },
      options);
}

// One value for all copies, from those of all replicas.
Status Variable::merge_values(Update update, const PerReplica& values, const CallOptions& options) {
  const std::string call = describe(options_) + "." + verb_of(update) + "()";
  const bool first = options_.aggregation == Aggregation::only_first_replica;
  const Result<std::vector<Tensor>> merged =
      first ? strategy_.replicas().broadcast(call, 0, {values}, options)
            : strategy_.replicas().all_reduce(call, *reduce_op_of(options_.aggregation), {values},
                                              options);
  if (!merged.ok()) return merged.status();
  for (Tensor& copy : copies_) apply(update, (*merged)[0], copy);
  return {};
}

Status Variable::update_between(Update update, std::span<const Tensor> values) {
  const bool shared = on_read() && options_.aggregation == Aggregation::sum;
  if (shared && update != Update::assign)
    return invalid_argument(verb_of(update) + "() of variable '" + options_.name +
                            "', which is ON_READ with SUM, is not possible in cross-replica "
                            "context; call it within the replica's function, or assign()");
  std::vector<Tensor> shares;
  for (const Tensor& value : values) {
    if (!shared) continue;
    Result<Tensor> share = share_of(value);
    if (!share.ok()) return share.status();
    shares.push_back(*std::move(share));
  }
  for (size_t i = 0; i < copies_.size(); ++i) {
    const size_t from = values.size() == 1 ? 0 : i;
    apply(update, shared ? shares[from] : values[from], copies_[i]);
  }
  return {};
}

// What each copy holds of a value that is their sum.
Result<Tensor> Variable::share_of(const Tensor& value) const {
  const auto replicas = static_cast<uint32_t>(strategy_.num_replicas_in_sync());
  if (is_floating(dtype())) return sum_of({value}, dtype(), replicas);
  if (replicas == 1) return value.clone();
  return invalid_argument("variable '" + options_.name + "' is ON_READ with SUM and of " +
                          std::string(name_of(dtype())) + ": a value cannot be divided among " +
                          std::to_string(replicas) + " replicas; use a floating dtype");
}

Result<Tensor> Variable::value(const CallOptions& options) const {
  if (const ReplicaContext* within = replica()) return copies_[within->index()].clone();
  if (Status status = strategy_.require_cross_replica("value()"); !status.ok()) return status;
  if (!on_read()) return copies_[0].clone();
  const std::string call = describe(options_) + ".value()";
  if (options_.aggregation == Aggregation::none)
    return invalid_argument("variable '" + options_.name +
                            "' is ON_READ without aggregation, so that there is no value of all "
                            "replicas; choose SUM, MEAN or ONLY_FIRST_REPLICA");
  PerReplica values;
  for (const Tensor& copy : copies_) values.push_back(copy);
  const bool first = options_.aggregation == Aggregation::only_first_replica;
  Result<std::vector<Tensor>> read =
      first ? strategy_.replicas().broadcast(call, 0, {values}, options)
            : strategy_.replicas().all_reduce(call, *reduce_op_of(options_.aggregation), {values},
                                              options);
  if (!read.ok()) return read.status();
  return std::move((*read)[0]);
}

}  // namespace tutti::distribute
