// The C ABI of cross-device operations: c_api.h.
#include "client/faces/cross_device/c_api.h"

#include "client/faces/cross_device/cross_device_ops.h"
#include "client/faces/frameworks/c_values.h"
#include "client/faces/frameworks/last_error.h"

struct tutti_cross_device {
  tutti::cross_device::CrossDeviceOps ops;
};

namespace tutti::cross_device {
namespace {

using namespace frameworks;

Result<CommunicationOptions> options_of(const tutti_communication_options* given) {
  if (given == nullptr) return CommunicationOptions();
  CommunicationOptions options{.bytes_per_pack = given->bytes_per_pack};
  if (given->has_timeout != 0) options.timeout_seconds = given->timeout_seconds;
  const Result<Implementation> implementation =
      parse_implementation(text_of(given->implementation));
  if (!implementation.ok()) return implementation.status();
  options.implementation = *implementation;
  options.reproducible = faces::choice_of(given->reproducible);
  return options;
}

Result<Destinations> destinations_of(const tutti_devices& given) {
  if (given.names == nullptr && given.count != 0)
    return invalid_argument("the names of the destinations are NULL; give a list of devices");
  std::vector<std::string> names;
  for (size_t i = 0; i < given.count; ++i) names.push_back(text_of(given.names[i]));
  Result<std::vector<DeviceName>> devices = parse_devices(names);
  if (!devices.ok()) return devices.status();
  return Destinations(*std::move(devices));
}

Result<PerReplica> per_replica_of(const tutti_component* components, size_t count) {
  if (components == nullptr && count != 0)
    return invalid_argument("the value's components are NULL; give as many as `count` says");
  PerReplica value;
  for (size_t i = 0; i < count; ++i) {
    Result<Value> component = value_of(components[i]);
    if (!component.ok()) return component.status();
    Result<DeviceName> device = parse_device(text_of(components[i].device));
    if (!device.ok()) return device.status();
    value.components.push_back({*std::move(component), *std::move(device)});
  }
  return value;
}

Result<CrossDeviceOps::Pair> pair_of(const tutti_reduction& reduction) {
  Result<PerReplica> value = per_replica_of(reduction.components, reduction.count);
  if (!value.ok()) return value.status();
  Result<Destinations> destinations = destinations_of(reduction.destinations);
  if (!destinations.ok()) return destinations.status();
  return CrossDeviceOps::Pair{*std::move(value), *std::move(destinations)};
}

// The arguments of a reduction, or of a batch of them.
struct Reductions {
  ReduceOp op = ReduceOp::sum;
  std::vector<CrossDeviceOps::Pair> pairs;
  CommunicationOptions options;
};

Result<Reductions> reductions_of(const char* op, const tutti_reduction* given, size_t count,
                                 const tutti_communication_options* options) {
  const Result<ReduceOp> how = parse_reduce_op(text_of(op));
  if (!how.ok()) return how.status();
  Result<CommunicationOptions> with = options_of(options);
  if (!with.ok()) return with.status();
  Reductions reductions{*how, {}, *std::move(with)};
  for (size_t i = 0; i < count; ++i) {
    Result<CrossDeviceOps::Pair> pair = pair_of(given[i]);
    if (!pair.ok()) return pair.status();
    reductions.pairs.push_back(*std::move(pair));
  }
  return reductions;
}

// The arguments of a broadcast but the root.
struct Copies {
  Value value;
  Destinations destinations;
  CommunicationOptions options;
};

Result<Copies> copies_of(const tutti_component& component, const tutti_devices& destinations,
                         const tutti_communication_options* options) {
  Result<CommunicationOptions> with = options_of(options);
  if (!with.ok()) return with.status();
  Result<Value> value = value_of(component);
  if (!value.ok()) return value.status();
  Result<Destinations> where = destinations_of(destinations);
  if (!where.ok()) return where.status();
  return Copies{*std::move(value), *std::move(where), *std::move(with)};
}

// What `read` makes of a call's arguments, unless a pointer of `given` is NULL. A failure goes
// to the other ranks, which wait for this one in the same call.
template <class Read>
auto arguments_of(const CrossDeviceOps& ops, std::initializer_list<Given> given, const Read& read)
    -> decltype(read()) {
  auto arguments = no_throw([&]() -> decltype(read()) {
    if (const Status all = require_given(given); !all.ok()) return all;
    return read();
  });
  if (arguments.ok()) return arguments;
  return faces::refuse(ops.group(), arguments.status());
}

// Stores the object for the caller.
template <class Class>
Status store(Result<Class> made, tutti_cross_device** ops) {
  if (!made.ok()) return made.status();
  *ops = new tutti_cross_device{*std::move(made)};
  return {};
}

Status store(Result<std::vector<Mirrored>> values, tutti_results** results) {
  if (!values.ok()) return values.status();
  auto made = std::make_unique<tutti_results>();
  for (Mirrored& value : *values) {
    auto& components = made->values.emplace_back();
    for (Component& one : value.components)
      components.push_back({std::move(one.value), to_string(one.device)});
  }
  *results = made.release();
  return {};
}

Status store(Result<Mirrored> value, tutti_results** results) {
  if (!value.ok()) return value.status();
  return store(std::vector<Mirrored>{*std::move(value)}, results);
}

}  // namespace
}  // namespace tutti::cross_device

using namespace tutti::cross_device;  // NOLINT: the functions of C are in no namespace.
using tutti::Result;
using tutti::Status;
using namespace tutti::frameworks;  // NOLINT

tutti_code tutti_communication_options_check(const tutti_communication_options* options) {
  return guarded([&]() -> Status {
    const Result<CommunicationOptions> given = options_of(options);
    return given.ok() ? given->check() : given.status();
  });
}

tutti_code tutti_hierarchical_copy_create(const int64_t* num_packs, tutti_group* group,
                                          tutti_cross_device** ops) {
  return guarded({{"ops", ops}}, [&]() -> Status {
    const auto packs = num_packs == nullptr ? std::nullopt : std::optional<int64_t>(*num_packs);
    return store(HierarchicalCopyAllReduce::create(packs, group), ops);
  });
}

tutti_code tutti_reduction_to_one_device_create(const char* reduce_to_device, tutti_group* group,
                                                tutti_cross_device** ops) {
  return guarded({{"ops", ops}}, [&]() -> Status {
    return store(ReductionToOneDevice::create(text_of(reduce_to_device), group), ops);
  });
}

void tutti_cross_device_free(tutti_cross_device* ops) { delete ops; }

tutti_code tutti_cross_device_reduce(const tutti_cross_device* ops, const char* op,
                                     const tutti_reduction* reduction,
                                     const tutti_communication_options* options,
                                     tutti_results** results) {
  return guarded({{"ops", ops}}, [&]() -> Status {
    const Result<Reductions> one =
        arguments_of(ops->ops, {{"reduction", reduction}, {"results", results}},
                     [&] { return reductions_of(op, reduction, 1, options); });
    if (!one.ok()) return one.status();
    const auto& [value, destinations] = one->pairs[0];
    return store(ops->ops.reduce(one->op, value, destinations, one->options), results);
  });
}

tutti_code tutti_cross_device_batch_reduce(const tutti_cross_device* ops, const char* op,
                                           const tutti_reduction* reductions, size_t count,
                                           const tutti_communication_options* options,
                                           tutti_results** results) {
  return guarded({{"ops", ops}}, [&]() -> Status {
    const tutti_reduction none{};
    const tutti_reduction* first = count == 0 ? &none : reductions;
    const Result<Reductions> all =
        arguments_of(ops->ops, {{"reductions", first}, {"results", results}},
                     [&] { return reductions_of(op, reductions, count, options); });
    if (!all.ok()) return all.status();
    return store(ops->ops.batch_reduce(all->op, all->pairs, all->options), results);
  });
}

tutti_code tutti_cross_device_broadcast(const tutti_cross_device* ops,
                                        const tutti_component* component,
                                        const tutti_devices* destinations, int32_t root,
                                        const tutti_communication_options* options,
                                        tutti_results** results) {
  return guarded({{"ops", ops}}, [&]() -> Status {
    const Result<Copies> copies = arguments_of(
        ops->ops, {{"component", component}, {"destinations", destinations}, {"results", results}},
        [&] { return copies_of(*component, *destinations, options); });
    if (!copies.ok()) return copies.status();
    return store(ops->ops.broadcast(copies->value, copies->destinations, root, copies->options),
                 results);
  });
}
