#include "client/distribute/simple_resolver.h"

namespace tutti::distribute {

Result<std::string> SimpleResolver::find_master(const Task& task,
                                                const std::string& rpc_layer) const {
  if (task.known()) return Resolver::find_master(task, rpc_layer);
  return format_master_url(options_.master, rpc_layer.empty() ? options_.rpc_layer : rpc_layer);
}

}  // namespace tutti::distribute
