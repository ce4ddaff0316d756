// NVML as a table of functions that is loaded at run time. Types and numbers have the layout of
// nvml.h; tests/nvml/abi_test.cc compares them where that header is found. The functions are
// documented there: members are named after them.
#pragma once

#include <string>

#include "daemon/base/status.h"

namespace tutti::nvml {

using Return = int;  // nvmlReturn_t
using Device = struct DeviceTag*;
using EventSet = struct EventSetTag*;
using Count = unsigned long long;  // NOLINT: NVML's type.

inline constexpr Return kSuccess = 0;
inline constexpr Return kInvalidArgument = 2;
inline constexpr Return kNotSupported = 3;
inline constexpr Return kTimeout = 10;
inline constexpr Return kFunctionNotFound = 13;
inline constexpr Return kGpuIsLost = 15;

inline constexpr unsigned kFeatureEnabled = 1;
inline constexpr int kUncorrectedError = 1;  // nvmlMemoryErrorType_t
inline constexpr int kVolatileEcc = 0;       // nvmlEccCounterType_t
inline constexpr Count kXidCriticalError = 8;
inline constexpr unsigned kNvLinksMax = 36;
inline constexpr unsigned kNameBytes = 96;
inline constexpr unsigned kUuidBytes = 96;

// nvmlGpuP2PCapsIndex_t, nvmlGpuP2PStatus_t.
inline constexpr int kP2pNvLink = 2;
inline constexpr int kP2pOk = 0;

// nvmlGpuTopologyLevel_t.
inline constexpr int kTopologyInternal = 0;
inline constexpr int kTopologySingle = 10;
inline constexpr int kTopologyMultiple = 20;
inline constexpr int kTopologyHostBridge = 30;
inline constexpr int kTopologyNode = 40;
inline constexpr int kTopologySystem = 50;

struct PciInfo {  // nvmlPciInfo_t
  char bus_id_legacy[16];
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned pci_device_id;
  unsigned pci_subsystem_id;
  char bus_id[32];
};
static_assert(sizeof(PciInfo) == 68);

struct Memory {  // nvmlMemory_t
  Count total;
  Count free;
  Count used;
};
static_assert(sizeof(Memory) == 24);

struct EventData {  // nvmlEventData_t
  Device device;
  Count event_type;
  Count event_data;
  unsigned gpu_instance_id;
  unsigned compute_instance_id;
};
static_assert(sizeof(EventData) == 32);

struct Library {
  Return (*init)();
  Return (*shutdown)();
  const char* (*error_string)(Return);
  Return (*device_get_count)(unsigned*);
  Return (*device_get_handle_by_index)(unsigned, Device*);
  Return (*device_get_name)(Device, char*, unsigned);
  Return (*device_get_uuid)(Device, char*, unsigned);
  Return (*device_get_pci_info)(Device, PciInfo*);
  Return (*device_get_memory_info)(Device, Memory*);

  // Null where the library is older than the function.
  Return (*device_get_mig_mode)(Device, unsigned* current, unsigned* pending);
  Return (*device_get_total_ecc_errors)(Device, int error_type, int counter_type, Count*);
  Return (*device_get_nvlink_state)(Device, unsigned link, unsigned* is_active);
  Return (*device_get_nvlink_remote_pci_info)(Device, unsigned link, PciInfo*);
  Return (*device_get_topology_common_ancestor)(Device, Device, int* level);
  Return (*device_get_p2p_status)(Device, Device, int capability, int* status);
  Return (*event_set_create)(EventSet*);
  Return (*event_set_free)(EventSet);
  Return (*event_set_wait)(EventSet, EventData*, unsigned timeout_ms);
  Return (*device_register_events)(Device, Count types, EventSet);
};

// Calls a function of the table; one that is null returns kFunctionNotFound.
template <class... Parameters, class... Arguments>
Return call(Return (*function)(Parameters...), Arguments... arguments) {
  return function == nullptr ? kFunctionNotFound : function(arguments...);
}

// Loads the library, which stays loaded. UNAVAILABLE: there is none, or it lacks a function that
// may not be null.
Result<Library> load_library(const std::string& name);

}  // namespace tutti::nvml
