#include "daemon/nvml/library.h"

#include <dlfcn.h>

namespace tutti::nvml {
namespace {

template <class Member>
void find(void* library, Member& member, const char* name) {
  member = reinterpret_cast<Member>(dlsym(library, name));
}

// Notes the first function that the library lacks.
class Required {
 public:
  explicit Required(void* library) : library_(library) {}
  const std::string& missing() const { return missing_; }

  template <class Member>
  void operator()(Member& member, const char* name) {
    find(library_, member, name);
    if (member == nullptr && missing_.empty()) missing_ = name;
  }

 private:
  void* const library_;
  std::string missing_;
};

std::string load_required(void* library, Library& table) {
  Required load(library);
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

void load_optional(void* library, Library& table) {
  find(library, table.device_get_mig_mode, "nvmlDeviceGetMigMode");
  find(library, table.device_get_total_ecc_errors, "nvmlDeviceGetTotalEccErrors");
  find(library, table.device_get_nvlink_state, "nvmlDeviceGetNvLinkState");
  find(library, table.device_get_nvlink_remote_pci_info, "nvmlDeviceGetNvLinkRemotePciInfo_v2");
  find(library, table.device_get_topology_common_ancestor, "nvmlDeviceGetTopologyCommonAncestor");
  find(library, table.device_get_p2p_status, "nvmlDeviceGetP2PStatus");
  find(library, table.event_set_create, "nvmlEventSetCreate");
  find(library, table.event_set_free, "nvmlEventSetFree");
  find(library, table.event_set_wait, "nvmlEventSetWait_v2");
  find(library, table.device_register_events, "nvmlDeviceRegisterEvents");
}

}  // namespace

Result<Library> load_library(const std::string& name) {
  void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return unavailable("there is no NVML here: " + std::string(dlerror()));
  Library table{};
  const std::string missing = load_required(handle, table);
  if (!missing.empty())
    return unavailable(name + " lacks " + missing + "; install driver 450 or later");
  load_optional(handle, table);
  return table;
}

}  // namespace tutti::nvml
