#include "client/faces/burn/c_api.h"

#include <limits>

#include "client/faces/burn/collective.h"
#include "client/faces/burn/collective_error.h"
#include "client/faces/frameworks/c_values.h"
#include "client/faces/frameworks/last_error.h"

namespace tutti::burn {
namespace {

using namespace frameworks;

Collective* get(tutti_burn* handle) { return reinterpret_cast<Collective*>(handle); }

// Sets `strategy` from a text; InvalidConfig names the field.
Status read_strategy(const char* field, const char* text, Strategy& strategy) {
  const Result<Strategy> read = parse_strategy(text == nullptr ? "" : text);
  if (!read.ok())
    return error_of(CollectiveError::invalid_config,
                    std::string(field) + ": " + read.status().message());
  strategy = *read;
  return {};
}

// Sets `number` where one is given; InvalidConfig where it does not fit.
template <class T>
Status read_number(const char* field, int64_t given, std::optional<T>& number) {
  if (given == std::numeric_limits<int64_t>::min()) return {};
  if (given < 0 || given > std::numeric_limits<T>::max())
    return error_of(CollectiveError::invalid_config,
                    std::string(field) + "=" + std::to_string(given) + " must be 0 to " +
                        std::to_string(std::numeric_limits<T>::max()));
  number = static_cast<T>(given);
  return {};
}

std::optional<std::string> optional_text_of(const char* text) {
  return text == nullptr ? std::nullopt : std::optional<std::string>(text);
}

Result<CollectiveConfig> config_of(const tutti_burn_config& given) {
  CollectiveConfig config;
  const struct {
    const char* field;
    const char* text;
    Strategy& strategy;
  } strategies[] = {
      {"local_all_reduce_strategy", given.local_all_reduce_strategy,
       config.local_all_reduce_strategy},
      {"local_reduce_strategy", given.local_reduce_strategy, config.local_reduce_strategy},
      {"local_broadcast_strategy", given.local_broadcast_strategy, config.local_broadcast_strategy},
      {"global_all_reduce_strategy", given.global_all_reduce_strategy,
       config.global_all_reduce_strategy},
      {"global_reduce_strategy", given.global_reduce_strategy, config.global_reduce_strategy},
      {"global_broadcast_strategy", given.global_broadcast_strategy,
       config.global_broadcast_strategy}};
  for (const auto& [field, text, strategy] : strategies)
    if (Status status = read_strategy(field, text, strategy); !status.ok()) return status;
  std::optional<uint32_t> devices;
  Status status = read_number("num_devices", given.num_devices, devices);
  if (status.ok()) status = read_number("num_nodes", given.num_nodes, config.num_nodes);
  if (status.ok())
    status = read_number("data_service_port", given.data_service_port, config.data_service_port);
  if (!status.ok()) return status;
  config.num_devices = devices.value_or(0);
  config.global_address = optional_text_of(given.global_address);
  config.node_address = optional_text_of(given.node_address);
  return config;
}

Result<ReduceOperation> operation_of(const char* name) {
  Result<ReduceOperation> op = parse_reduce_op(name);
  if (!op.ok()) return named(op.status());
  return op;
}

// Tells the other peers of a call that cannot be made. A peer that is not registered has none.
Status refuse(Collective& collective, PeerId peer, const Status& own) {
  Status all = collective.refuse(peer, own);
  return all.code() == Code::failed_precondition ? named(own) : all;
}

}  // namespace
}  // namespace tutti::burn

using namespace tutti;
using namespace tutti::burn;
using namespace tutti::frameworks;

tutti_code tutti_burn_config_check(const tutti_burn_config* config) {
  return guarded({{"config", config}}, [&]() -> Status {
    const Result<CollectiveConfig> read = config_of(*config);
    return read.ok() ? validate(*read) : read.status();
  });
}

tutti_code tutti_burn_create(tutti_group* group, int32_t timeout_ms, int32_t reproducible,
                             tutti_burn** made) {
  return guarded({{"made", made}}, [&]() -> Status {
    CollectiveOptions options = {.group = group,
                                 .reproducible = tutti::faces::choice_of(reproducible)};
    if (timeout_ms > 0) options.timeout_ms = timeout_ms;
    *made = reinterpret_cast<tutti_burn*>(new burn::Collective(options));
    return {};
  });
}

void tutti_burn_free(tutti_burn* collective) { delete get(collective); }

tutti_code tutti_burn_register(tutti_burn* collective, uint32_t peer,
                               const tutti_burn_config* config) {
  return guarded({{"collective", collective}, {"config", config}}, [&]() -> Status {
    const Result<CollectiveConfig> read = config_of(*config);
    return read.ok() ? get(collective)->register_peer(peer, *read) : read.status();
  });
}

tutti_code tutti_burn_all_reduce(tutti_burn* collective, uint32_t peer,
                                 const tutti_tensor_view* tensor, const char* op,
                                 tutti_results** results) {
  return guarded({{"collective", collective}, {"tensor", tensor}, {"op", op}, {"results", results}},
                 [&]() -> Status {
                   const Result<Tensor> view = tensor_of(*tensor);
                   if (!view.ok()) return refuse(*get(collective), peer, view.status());
                   const Result<ReduceOperation> operation = operation_of(op);
                   if (!operation.ok()) return refuse(*get(collective), peer, operation.status());
                   return give(get(collective)->all_reduce(peer, *view, *operation), results);
                 });
}

tutti_code tutti_burn_reduce(tutti_burn* collective, uint32_t peer, const tutti_tensor_view* tensor,
                             const char* op, uint32_t root, tutti_results** results) {
  return guarded({{"collective", collective}, {"tensor", tensor}, {"op", op}, {"results", results}},
                 [&]() -> Status {
                   const Result<Tensor> view = tensor_of(*tensor);
                   if (!view.ok()) return refuse(*get(collective), peer, view.status());
                   const Result<ReduceOperation> operation = operation_of(op);
                   if (!operation.ok()) return refuse(*get(collective), peer, operation.status());
                   Result<std::optional<Tensor>> reduced =
                       get(collective)->reduce(peer, *view, *operation, root);
                   if (!reduced.ok()) return reduced.status();
                   if (reduced->has_value()) return give(**std::move(reduced), results);
                   return give(std::vector<Tensor>(), results);
                 });
}

tutti_code tutti_burn_broadcast(tutti_burn* collective, uint32_t peer,
                                const tutti_tensor_view* tensor, tutti_results** results) {
  return guarded({{"collective", collective}, {"results", results}}, [&]() -> Status {
    if (tensor == nullptr) return give(get(collective)->broadcast(peer, {}), results);
    const Result<Tensor> view = tensor_of(*tensor);
    if (!view.ok()) return refuse(*get(collective), peer, view.status());
    return give(get(collective)->broadcast(peer, *view), results);
  });
}

tutti_code tutti_burn_refuse(tutti_burn* collective, uint32_t peer, const char* message) {
  return guarded({{"collective", collective}, {"message", message}}, [&]() -> Status {
    return refuse(*get(collective), peer, invalid_argument(message));
  });
}

tutti_code tutti_burn_finish(tutti_burn* collective, uint32_t peer) {
  return guarded({{"collective", collective}},
                 [&]() -> Status { return get(collective)->finish_collective(peer); });
}

tutti_code tutti_burn_reset(tutti_burn* collective) {
  return guarded({{"collective", collective}}, [&]() -> Status {
    get(collective)->reset_collective();
    return {};
  });
}

void tutti_burn_leave_job(tutti_burn* collective) {
  if (collective != nullptr) get(collective)->leave_job();
}
