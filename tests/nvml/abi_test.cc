// The types and numbers of daemon/nvml/library.h are those of NVML's own header.
#include <gtest/gtest.h>
#include <nvml.h>

#include <cstddef>
#include <type_traits>

#include "daemon/nvml/library.h"

namespace tutti::nvml {
namespace {

static_assert(sizeof(Return) == sizeof(nvmlReturn_t) && sizeof(Device) == sizeof(nvmlDevice_t));
static_assert(sizeof(PciInfo) == sizeof(nvmlPciInfo_t) &&
              offsetof(PciInfo, bus_id) == offsetof(nvmlPciInfo_t, busId) &&
              offsetof(PciInfo, domain) == offsetof(nvmlPciInfo_t, domain));
static_assert(sizeof(Memory) == sizeof(nvmlMemory_t) &&
              offsetof(Memory, total) == offsetof(nvmlMemory_t, total) &&
              offsetof(Memory, used) == offsetof(nvmlMemory_t, used));
static_assert(sizeof(EventData) == sizeof(nvmlEventData_t) &&
              offsetof(EventData, event_type) == offsetof(nvmlEventData_t, eventType) &&
              offsetof(EventData, event_data) == offsetof(nvmlEventData_t, eventData) &&
              offsetof(EventData, gpu_instance_id) == offsetof(nvmlEventData_t, gpuInstanceId));
static_assert(sizeof(nvmlEnableState_t) == sizeof(unsigned) &&
              sizeof(nvmlGpuTopologyLevel_t) == sizeof(int) &&
              sizeof(nvmlGpuP2PStatus_t) == sizeof(int));

static_assert(kSuccess == NVML_SUCCESS && kInvalidArgument == NVML_ERROR_INVALID_ARGUMENT);
static_assert(kNotSupported == NVML_ERROR_NOT_SUPPORTED && kTimeout == NVML_ERROR_TIMEOUT);
static_assert(kFunctionNotFound == NVML_ERROR_FUNCTION_NOT_FOUND);
static_assert(kGpuIsLost == NVML_ERROR_GPU_IS_LOST && kFeatureEnabled == NVML_FEATURE_ENABLED);
static_assert(kUncorrectedError == NVML_MEMORY_ERROR_TYPE_UNCORRECTED);
static_assert(kVolatileEcc == NVML_VOLATILE_ECC &&
              kXidCriticalError == nvmlEventTypeXidCriticalError);
static_assert(kNvLinksMax >= NVML_NVLINK_MAX_LINKS);
static_assert(kNameBytes >= NVML_DEVICE_NAME_V2_BUFFER_SIZE);
static_assert(kUuidBytes >= NVML_DEVICE_UUID_V2_BUFFER_SIZE);
static_assert(kP2pNvLink == NVML_P2P_CAPS_INDEX_NVLINK && kP2pOk == NVML_P2P_STATUS_OK);
static_assert(kTopologyInternal == NVML_TOPOLOGY_INTERNAL);
static_assert(kTopologySingle == NVML_TOPOLOGY_SINGLE);
static_assert(kTopologyMultiple == NVML_TOPOLOGY_MULTIPLE);
static_assert(kTopologyHostBridge == NVML_TOPOLOGY_HOSTBRIDGE);
static_assert(kTopologyNode == NVML_TOPOLOGY_NODE && kTopologySystem == NVML_TOPOLOGY_SYSTEM);

// Whether a member takes as many parameters, of the same sizes, as NVML's function.
template <class... Ours, class... Theirs>
constexpr bool matches(Return (*Library::* /*member*/)(Ours...), nvmlReturn_t (*)(Theirs...)) {
  return sizeof...(Ours) == sizeof...(Theirs) && ((sizeof(Ours) == sizeof(Theirs)) && ...);
}
static_assert(matches(&Library::device_get_count, &nvmlDeviceGetCount_v2));
static_assert(matches(&Library::device_get_handle_by_index, &nvmlDeviceGetHandleByIndex_v2));
static_assert(matches(&Library::device_get_name, &nvmlDeviceGetName));
static_assert(matches(&Library::device_get_uuid, &nvmlDeviceGetUUID));
static_assert(matches(&Library::device_get_pci_info, &nvmlDeviceGetPciInfo_v3));
static_assert(matches(&Library::device_get_memory_info, &nvmlDeviceGetMemoryInfo));
static_assert(matches(&Library::device_get_mig_mode, &nvmlDeviceGetMigMode));
static_assert(matches(&Library::device_get_total_ecc_errors, &nvmlDeviceGetTotalEccErrors));
static_assert(matches(&Library::device_get_nvlink_state, &nvmlDeviceGetNvLinkState));
static_assert(matches(&Library::device_get_nvlink_remote_pci_info,
                      &nvmlDeviceGetNvLinkRemotePciInfo_v2));
static_assert(matches(&Library::device_get_topology_common_ancestor,
                      &nvmlDeviceGetTopologyCommonAncestor));
static_assert(matches(&Library::device_get_p2p_status, &nvmlDeviceGetP2PStatus));
static_assert(matches(&Library::event_set_create, &nvmlEventSetCreate));
static_assert(matches(&Library::event_set_free, &nvmlEventSetFree));
static_assert(matches(&Library::event_set_wait, &nvmlEventSetWait_v2));
static_assert(matches(&Library::device_register_events, &nvmlDeviceRegisterEvents));

TEST(Abi, IsThatOfNvml) { SUCCEED() << "compiled: the assertions above hold"; }

}  // namespace
}  // namespace tutti::nvml
