#include "daemon/nvml/library.h"

#include <dlfcn.h>

#include "daemon/base/function_table.h"

namespace tutti::nvml {
namespace {

std::string load_required(FunctionLoader& load, Library& table) {
  load(table.init, "nvmlInit_v2");
  load(table.shutdown, "nvmlShutdown");
  load(table.error_string, "nvmlErrorString");
  load(table.device_get_count, "nvmlDeviceGetCount_v2");
  load(table.device_get_handle_by_index, "nvmlDeviceGetHandleByIndex_v2");
  load(table.device_get_name, "nvmlDeviceGetName");
  load(table.device_get_uuid, "nvmlDeviceGetUUID");
  load(table.device_get_pci_info, "nvmlDeviceGetPciInfo_v3");
  load(table.device_get_memory_info, "nvmlDeviceGetMemoryInfo");
  return load.missing();
}

void load_optional(const FunctionLoader& load, Library& table) {
  load.optional(table.device_get_mig_mode, "nvmlDeviceGetMigMode");
  load.optional(table.device_get_total_ecc_errors, "nvmlDeviceGetTotalEccErrors");
  load.optional(table.device_get_nvlink_state, "nvmlDeviceGetNvLinkState");
  load.optional(table.device_get_nvlink_remote_pci_info, "nvmlDeviceGetNvLinkRemotePciInfo_v2");
  load.optional(table.device_get_topology_common_ancestor, "nvmlDeviceGetTopologyCommonAncestor");
  load.optional(table.device_get_p2p_status, "nvmlDeviceGetP2PStatus");
  load.optional(table.event_set_create, "nvmlEventSetCreate");
  load.optional(table.event_set_free, "nvmlEventSetFree");
  load.optional(table.event_set_wait, "nvmlEventSetWait_v2");
  load.optional(table.device_register_events, "nvmlDeviceRegisterEvents");
}

}  // namespace

Result<Library> load_library(const std::string& name) {
  void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return unavailable("there is no NVML here: " + std::string(dlerror()));
  Library table{};
  FunctionLoader load([handle](const char* name) { return dlsym(handle, name); });
  const std::string missing = load_required(load, table);
  if (!missing.empty())
    return unavailable(name + " lacks " + missing + "; install driver 450 or later");
  load_optional(load, table);
  return table;
}

}  // namespace tutti::nvml
