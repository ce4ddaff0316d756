#include "client/faces/distribute/c_api.h"

#include <cstring>
#include <tuple>

#include "client/faces/distribute/json_api.h"
#include "client/faces/distribute/logical_devices.h"
#include "client/faces/distribute/variable.h"
#include "client/faces/frameworks/c_values.h"
#include "client/faces/frameworks/last_error.h"

struct tutti_distribute_resolver {
  std::shared_ptr<const tutti::distribute::Resolver> resolver;
};
struct tutti_distribute_variable {
  std::unique_ptr<tutti::distribute::Variable> variable;
};

namespace tutti::distribute {
namespace {

using namespace frameworks;

// The handles of strategies and replicas are the objects themselves.
Strategy* get(tutti_distribute_strategy* handle) { return reinterpret_cast<Strategy*>(handle); }
const Strategy* get(const tutti_distribute_strategy* handle) {
  return reinterpret_cast<const Strategy*>(handle);
}
ReplicaContext* get(tutti_distribute_replica* handle) {
  return reinterpret_cast<ReplicaContext*>(handle);
}

// Leaf by leaf, each of all replicas here.
Result<Leaves> leaves_of(const Strategy& strategy, const tutti_tensor_view* tensors, size_t count) {
  const size_t replicas = strategy.replicas().local().size();
  Result<std::vector<Tensor>> views = tensors_of(tensors, count * replicas);
  if (!views.ok()) return views.status();
  Leaves leaves(count);
  for (size_t i = 0; i < views->size(); ++i) leaves[i / replicas].push_back(std::move((*views)[i]));
  return leaves;
}

std::string structure_of(const tutti_distribute_call* call) {
  return call == nullptr || call->structure == nullptr ? "" : call->structure;
}

CallOptions options_of(const tutti_distribute_call* call) {
  if (call == nullptr) return {};
  return {call->timeout_ms, "", faces::choice_of(call->reproducible)};
}

Status give(const Result<std::string>& text, char** answer) {
  if (!text.ok()) return text.status();
  *answer = strdup(text->c_str());
  return *answer == nullptr ? resource_exhausted("no memory for an answer") : Status();
}

Result<Update> update_of(const std::string& name) {
  if (name == "assign") return Update::assign;
  if (name == "assign_add") return Update::assign_add;
  if (name == "assign_sub") return Update::assign_sub;
  return invalid_argument("update '" + name + "' is none of assign, assign_add, assign_sub");
}

// What the skin's function has failed with, it keeps itself.
Status status_of_function(int failed) {
  return failed == 0 ? Status() : Status(Code::aborted, "its function has raised an exception");
}

Result<VariableOptions> variable_options_of(const char* name, const char* synchronization,
                                            const char* aggregation) {
  const Result<Synchronization> synchronized = parse_synchronization(synchronization);
  if (!synchronized.ok()) return synchronized.status();
  const Result<Aggregation> aggregated = parse_aggregation(aggregation);
  if (!aggregated.ok()) return aggregated.status();
  return VariableOptions{name, *synchronized, *aggregated};
}

}  // namespace
}  // namespace tutti::distribute

using namespace tutti;
using namespace tutti::distribute;
using namespace tutti::frameworks;

tutti_code tutti_distribute_resolver_create(const char* options,
                                            const tutti_distribute_resolver* const* parts,
                                            size_t part_count, tutti_distribute_resolver** made) {
  return guarded({{"options", options}, {"made", made}}, [&]() -> Status {
    UnionResolver::Resolvers resolvers;
    for (size_t i = 0; i < part_count; ++i) {
      const tutti_distribute_resolver* part = parts == nullptr ? nullptr : parts[i];
      if (Status status = require_given({{"parts", part}}); !status.ok()) return status;
      resolvers.push_back(part->resolver);
    }
    auto resolver = resolver_of(options, std::move(resolvers));
    if (!resolver.ok()) return resolver.status();
    *made = new tutti_distribute_resolver{*std::move(resolver)};
    return {};
  });
}

void tutti_distribute_resolver_free(tutti_distribute_resolver* resolver) { delete resolver; }

tutti_code tutti_distribute_resolver_ask(const tutti_distribute_resolver* resolver,
                                         const char* question, char** answer) {
  return guarded(
      {{"resolver", resolver}, {"question", question}, {"answer", answer}},
      [&]() -> Status { return give(ask_resolver(*resolver->resolver, question), answer); });
}

tutti_code tutti_distribute_assignment(const char* question, char** answer) {
  return guarded({{"question", question}, {"answer", answer}},
                 [&]() -> Status { return give(describe_assignment(question), answer); });
}

void tutti_distribute_free_text(char* text) { free(text); }

tutti_code tutti_distribute_batch_size(int64_t global_batch_size, int32_t replicas, int64_t* size) {
  return guarded({{"size", size}}, [&]() -> Status {
    const Result<int64_t> each = get_per_replica_batch_size(global_batch_size, replicas);
    if (each.ok()) *size = *each;
    return each.status();
  });
}

tutti_code tutti_distribute_rows(int64_t rows, int32_t replica, int32_t replicas, int64_t* bounds) {
  return guarded({{"bounds", bounds}}, [&]() -> Status {
    const Result<Rows> own = rows_of_replica(rows, {replica, replicas});
    if (own.ok()) std::tie(bounds[0], bounds[1]) = std::pair(own->begin, own->end);
    return own.status();
  });
}

tutti_code tutti_distribute_strategy_create(const char* options,
                                            const tutti_distribute_resolver* resolver,
                                            tutti_group* group, tutti_distribute_strategy** made) {
  return guarded({{"options", options}, {"made", made}}, [&]() -> Status {
    Result<StrategyOptions> given = strategy_options_of(options);
    if (!given.ok()) return faces::refuse(group, given.status());
    if (resolver != nullptr) given->cluster.resolver = resolver->resolver;
    given->cluster.group = group;
    Result<std::unique_ptr<distribute::Strategy>> strategy =
        distribute::Strategy::create(*std::move(given));
    if (!strategy.ok()) return strategy.status();
    *made = reinterpret_cast<tutti_distribute_strategy*>((*std::move(strategy)).release());
    return {};
  });
}

void tutti_distribute_strategy_free(tutti_distribute_strategy* strategy) { delete get(strategy); }

void tutti_distribute_strategy_leave_job(const tutti_distribute_strategy* strategy) {
  if (strategy != nullptr) get(strategy)->leave_job();
}

tutti_code tutti_distribute_strategy_describe(const tutti_distribute_strategy* strategy,
                                              char** description) {
  return guarded({{"strategy", strategy}, {"description", description}},
                 [&]() -> Status { return give(describe(*get(strategy)), description); });
}

tutti_code tutti_distribute_strategy_enter(tutti_distribute_strategy* strategy) {
  return guarded({{"strategy", strategy}}, [&]() -> Status {
    return enter_context({get(strategy), nullptr});
  });
}

tutti_code tutti_distribute_strategy_leave(tutti_distribute_strategy* strategy) {
  return guarded({{"strategy", strategy}},
                 [&]() -> Status { return leave_context(get(strategy)); });
}

tutti_distribute_strategy* tutti_distribute_current_strategy(void) {
  return reinterpret_cast<tutti_distribute_strategy*>(current_context().strategy);
}

tutti_distribute_replica* tutti_distribute_current_replica(void) {
  return reinterpret_cast<tutti_distribute_replica*>(current_context().replica);
}

tutti_code tutti_distribute_strategy_require_cross_replica(
    const tutti_distribute_strategy* strategy, const char* call) {
  return guarded({{"strategy", strategy}, {"call", call}},
                 [&]() -> Status { return get(strategy)->require_cross_replica(call); });
}

tutti_code tutti_distribute_strategy_run(tutti_distribute_strategy* strategy,
                                         int (*function)(void*, tutti_distribute_replica*),
                                         void* argument) {
  return guarded({{"strategy", strategy}}, [&]() -> Status {
    if (function == nullptr) return get(strategy)->run({});
    return get(strategy)->run([&](ReplicaContext& replica) {
      auto* handle = reinterpret_cast<tutti_distribute_replica*>(&replica);
      return status_of_function(function(argument, handle));
    });
  });
}

tutti_code tutti_distribute_refuse(const tutti_distribute_strategy* strategy, const char* message) {
  return guarded({{"strategy", strategy}, {"message", message}},
                 [&]() -> Status { return get(strategy)->refuse(invalid_argument(message)); });
}

tutti_code tutti_distribute_strategy_reduce(const tutti_distribute_strategy* strategy,
                                            const char* op, const tutti_tensor_view* leaves,
                                            size_t count, const int64_t* axes, size_t axis_count,
                                            const tutti_distribute_call* call,
                                            tutti_results** results) {
  return guarded({{"strategy", strategy}, {"op", op}, {"results", results}}, [&]() -> Status {
    const Result<ReduceOp> parsed = parse_reduce_op(op);
    if (!parsed.ok()) return get(strategy)->refuse(parsed.status(), options_of(call));
    const Result<Leaves> given = leaves_of(*get(strategy), leaves, count);
    if (!given.ok()) return get(strategy)->refuse(given.status(), options_of(call));
    std::optional<std::vector<int64_t>> along;
    if (axes != nullptr) along.emplace(axes, axes + axis_count);
    return give(get(strategy)->reduce(*parsed, *given, along, structure_of(call), options_of(call)),
                results);
  });
}

tutti_code tutti_distribute_strategy_gather(const tutti_distribute_strategy* strategy, int64_t axis,
                                            const tutti_tensor_view* leaves, size_t count,
                                            const tutti_distribute_call* call,
                                            tutti_results** results) {
  return guarded({{"strategy", strategy}, {"results", results}}, [&]() -> Status {
    const Result<Leaves> given = leaves_of(*get(strategy), leaves, count);
    if (!given.ok()) return get(strategy)->refuse(given.status(), options_of(call));
    return give(get(strategy)->gather(*given, axis, structure_of(call), options_of(call)), results);
  });
}

tutti_code tutti_distribute_strategy_broadcast(const tutti_distribute_strategy* strategy, int root,
                                               const tutti_tensor_view* leaves, size_t count,
                                               const tutti_distribute_call* call,
                                               tutti_results** results) {
  return guarded({{"strategy", strategy}, {"results", results}}, [&]() -> Status {
    const auto views = tensors_of(leaves, count);
    if (!views.ok()) return get(strategy)->refuse(views.status(), options_of(call));
    return give(
        get(strategy)->broadcast_parameters(*views, root, structure_of(call), options_of(call)),
        results);
  });
}

tutti_code tutti_distribute_split(const tutti_tensor_view* tensor, const int64_t* dimensions,
                                  size_t dimension_count, int devices, tutti_results** results) {
  return guarded([&]() -> Status {
    const void* given = dimension_count == 0 ? tensor : static_cast<const void*>(dimensions);
    if (Status status =
            require_given({{"tensor", tensor}, {"dimensions", given}, {"results", results}});
        !status.ok())
      return status;
    const Result<Tensor> view = tensor_of(*tensor);
    if (!view.ok()) return view.status();
    const std::vector<int64_t> parts(dimensions, dimensions + dimension_count);
    return give(split_to_logical_devices(*view, parts, devices), results);
  });
}

int tutti_distribute_replica_index(const tutti_distribute_replica* replica) {
  if (replica == nullptr) return -1;
  return static_cast<int>(reinterpret_cast<const ReplicaContext*>(replica)->index());
}

tutti_code tutti_distribute_replica_all_reduce(tutti_distribute_replica* replica, const char* op,
                                               const tutti_tensor_view* leaves, size_t count,
                                               const tutti_distribute_call* call,
                                               tutti_results** results) {
  return guarded({{"replica", replica}, {"op", op}, {"results", results}}, [&]() -> Status {
    const Result<ReduceOp> parsed = parse_reduce_op(op);
    if (!parsed.ok()) return get(replica)->refuse(parsed.status(), options_of(call));
    const auto views = tensors_of(leaves, count);
    if (!views.ok()) return get(replica)->refuse(views.status(), options_of(call));
    return give(get(replica)->all_reduce(*parsed, *views, structure_of(call), options_of(call)),
                results);
  });
}

tutti_code tutti_distribute_replica_all_gather(tutti_distribute_replica* replica, int64_t axis,
                                               const tutti_tensor_view* leaves, size_t count,
                                               const tutti_distribute_call* call,
                                               tutti_results** results) {
  return guarded({{"replica", replica}, {"results", results}}, [&]() -> Status {
    const auto views = tensors_of(leaves, count);
    if (!views.ok()) return get(replica)->refuse(views.status(), options_of(call));
    return give(get(replica)->all_gather(*views, axis, structure_of(call), options_of(call)),
                results);
  });
}

tutti_code tutti_distribute_replica_merge(tutti_distribute_replica* replica, const char* call,
                                          int (*merge)(void*), void* argument) {
  return guarded([&]() -> Status {
    const void* given = reinterpret_cast<const void*>(merge);
    if (Status status = require_given({{"replica", replica}, {"call", call}, {"merge", given}});
        !status.ok())
      return status;
    return get(replica)->merge_call(
        call, argument, [&](distribute::Strategy&, const std::vector<void*>& arguments) {
          return status_of_function(merge(arguments[0]));
        });
  });
}

tutti_code tutti_distribute_variable_create(tutti_distribute_strategy* strategy,
                                            const tutti_tensor_view* initial, const char* name,
                                            const char* synchronization, const char* aggregation,
                                            tutti_distribute_variable** made) {
  return guarded([&]() -> Status {
    Status status = require_given({{"strategy", strategy},
                                   {"initial", initial},
                                   {"name", name},
                                   {"synchronization", synchronization},
                                   {"aggregation", aggregation},
                                   {"made", made}});
    if (!status.ok()) return status;
    const auto options = variable_options_of(name, synchronization, aggregation);
    if (!options.ok()) return get(strategy)->refuse(options.status());
    const Result<Tensor> view = tensor_of(*initial);
    if (!view.ok()) return get(strategy)->refuse(view.status());
    auto variable = Variable::create(*get(strategy), *view, *options);
    if (!variable.ok()) return variable.status();
    *made = new tutti_distribute_variable{*std::move(variable)};
    return {};
  });
}

void tutti_distribute_variable_free(tutti_distribute_variable* variable) { delete variable; }

tutti_code tutti_distribute_variable_update(tutti_distribute_variable* variable, const char* update,
                                            const tutti_tensor_view* values, size_t count) {
  return guarded({{"variable", variable}, {"update", update}}, [&]() -> Status {
    const Result<Update> parsed = update_of(update);
    if (!parsed.ok()) return variable->variable->refuse(parsed.status());
    const auto views = tensors_of(values, count);
    if (!views.ok()) return variable->variable->refuse(views.status());
    return variable->variable->update(*parsed, *views);
  });
}

tutti_code tutti_distribute_variable_refuse(tutti_distribute_variable* variable,
                                            const char* message) {
  return guarded({{"variable", variable}, {"message", message}},
                 [&]() -> Status { return variable->variable->refuse(invalid_argument(message)); });
}

tutti_code tutti_distribute_variable_value(const tutti_distribute_variable* variable,
                                           tutti_results** value) {
  return guarded({{"variable", variable}, {"value", value}},
                 [&]() -> Status { return give(variable->variable->value(), value); });
}

tutti_code tutti_distribute_variable_copies(const tutti_distribute_variable* variable,
                                            tutti_results** copies) {
  return guarded({{"variable", variable}, {"copies", copies}}, [&]() -> Status {
    std::vector<Tensor> all;
    for (const Tensor& copy : variable->variable->copies()) all.push_back(copy.clone());
    return give(std::move(all), copies);
  });
}
