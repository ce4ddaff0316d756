#include "client/distribute/torchrun_resolver.h"

namespace tutti::distribute {
namespace {

constexpr const char* kLauncher = "torchrun";
constexpr LaunchNames kNames = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};

}  // namespace

Result<Launch> TorchrunResolver::launch() const {
  return read_launch(options_.variables, kNames, kLauncher);
}

Result<ClusterSpec> TorchrunResolver::cluster_spec() const {
  const Result<Launch> own = launch();
  if (!own.ok()) return own.status();
  const Result<std::string> address = read_variable(options_.variables, "MASTER_ADDR", kLauncher);
  if (!address.ok()) return address.status();
  const Result<int> port = read_number(options_.variables, "MASTER_PORT", kLauncher);
  if (!port.ok()) return port.status();
  return workers_of(*own, endpoint(*address, *port));
}

Result<Task> TorchrunResolver::task() const {
  const Result<Launch> own = launch();
  if (!own.ok()) return own.status();
  return Task{"worker", own->rank};
}

std::string TorchrunResolver::run_id() const {
  return options_.variables("TORCHELASTIC_RUN_ID").value_or("");
}

Result<int> TorchrunResolver::restart_count() const {
  const std::string name = "TORCHELASTIC_RESTART_COUNT";
  return parse_number(options_.variables(name).value_or("0"), name);
}

Result<std::string> TorchrunResolver::find_master(const Task& task,
                                                  const std::string& rpc_layer) const {
  return Resolver::find_master(task_or(task, {"worker", 0}), rpc_layer);
}

}  // namespace tutti::distribute
