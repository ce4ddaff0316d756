#include "client/faces/distribute/resolver.h"

namespace tutti::distribute {

std::string format_master_url(const std::string& address, const std::string& rpc_layer) {
  return rpc_layer.empty() ? address : rpc_layer + "://" + address;
}

Task task_or(const Task& given, const Task& fallback) {
  return {given.type.empty() ? fallback.type : given.type, given.id ? given.id : fallback.id};
}

Result<std::string> Resolver::task_type() const {
  Result<Task> found = task();
  if (!found.ok()) return found.status();
  return std::move(found->type);
}

Result<std::optional<int>> Resolver::task_id() const {
  const Result<Task> found = task();
  if (!found.ok()) return found.status();
  return found->id;
}

Result<Placement> Resolver::placement() const {
  const Result<ClusterSpec> spec = cluster_spec();
  if (!spec.ok()) return spec.status();
  const Result<Task> own = task();
  if (!own.ok()) return own.status();
  return place(*spec, *own);
}

Accelerators Resolver::own_gpus() const {
  const int gpus = count_gpus(options_.variables);
  return gpus == 0 ? Accelerators{} : Accelerators{{"GPU", gpus}};
}

Result<std::string> Resolver::find_master(const Task& task, const std::string& rpc_layer) const {
  const Result<Task> own = this->task();
  if (!own.ok()) return own.status();
  const Task wanted = task_or(task, *own);
  if (!wanted.known()) return std::string();
  const Result<ClusterSpec> spec = cluster_spec();
  if (!spec.ok()) return spec.status();
  const Result<std::string> address = spec->task_address(wanted.type, *wanted.id);
  if (!address.ok()) return address;
  if (!rpc_layer.empty()) return format_master_url(*address, rpc_layer);
  const Result<std::string> layer = this->rpc_layer();
  if (!layer.ok()) return layer;
  return format_master_url(*address, *layer);
}

}  // namespace tutti::distribute
