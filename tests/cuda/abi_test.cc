// The types and numbers of daemon/cuda/cuda.h are those of CUDA's own header.
#include <cuda.h>
#include <gtest/gtest.h>

#include <type_traits>

#include "daemon/cuda/cuda.h"

namespace tutti::cuda {
namespace {

static_assert(std::is_same_v<DeviceId, CUdevice> && std::is_same_v<Pointer, CUdeviceptr>);
static_assert(std::is_same_v<Allocation, CUmemGenericAllocationHandle>);
static_assert(sizeof(Error) == sizeof(CUresult) && sizeof(Stream) == sizeof(CUstream));
static_assert(sizeof(IpcHandle) == sizeof(CUipcMemHandle) && sizeof(Uuid) == sizeof(CUuuid));
static_assert(sizeof(Location) == sizeof(CUmemLocation));
static_assert(sizeof(Access) == sizeof(CUmemAccessDesc) &&
              offsetof(Access, flags) == offsetof(CUmemAccessDesc, flags));
static_assert(sizeof(AllocationProperties) == sizeof(CUmemAllocationProp) &&
              offsetof(AllocationProperties, handle_types) ==
                  offsetof(CUmemAllocationProp, requestedHandleTypes) &&
              offsetof(AllocationProperties, location) == offsetof(CUmemAllocationProp, location));

static_assert(kOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY &&
              kInvalidValue == CUDA_ERROR_INVALID_VALUE);
static_assert(kNotInitialized == CUDA_ERROR_NOT_INITIALIZED && kNoDevice == CUDA_ERROR_NO_DEVICE);
static_assert(kDeinitialized == CUDA_ERROR_DEINITIALIZED);
static_assert(kInvalidDevice == CUDA_ERROR_INVALID_DEVICE && kNotFound == CUDA_ERROR_NOT_FOUND);
static_assert(kInvalidContext == CUDA_ERROR_INVALID_CONTEXT);
static_assert(kInvalidHandle == CUDA_ERROR_INVALID_HANDLE && kNotReady == CUDA_ERROR_NOT_READY);
static_assert(kPeerAccessUnsupported == CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
static_assert(kPeerAccessAlreadyEnabled == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
static_assert(kHostMemoryAlreadyRegistered == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
static_assert(kNotSupported == CUDA_ERROR_NOT_SUPPORTED);
static_assert(kDeviceUnavailable == CUDA_ERROR_DEVICE_UNAVAILABLE);

static_assert(kEccUncorrectable == CUDA_ERROR_ECC_UNCORRECTABLE);
static_assert(kNvlinkUncorrectable == CUDA_ERROR_NVLINK_UNCORRECTABLE);
static_assert(kIllegalAddress == CUDA_ERROR_ILLEGAL_ADDRESS);
static_assert(kLaunchTimeout == CUDA_ERROR_LAUNCH_TIMEOUT && kAssert == CUDA_ERROR_ASSERT);
static_assert(kHardwareStackError == CUDA_ERROR_HARDWARE_STACK_ERROR);
static_assert(kIllegalInstruction == CUDA_ERROR_ILLEGAL_INSTRUCTION);
static_assert(kMisalignedAddress == CUDA_ERROR_MISALIGNED_ADDRESS);
static_assert(kInvalidAddressSpace == CUDA_ERROR_INVALID_ADDRESS_SPACE);
static_assert(kInvalidPc == CUDA_ERROR_INVALID_PC && kLaunchFailed == CUDA_ERROR_LAUNCH_FAILED);
static_assert(kMpsClientTerminated == CUDA_ERROR_MPS_CLIENT_TERMINATED);
static_assert(kExternalDevice == CUDA_ERROR_EXTERNAL_DEVICE);
// Newer than the oldest headers that serve here.
static_assert(CUDA_VERSION < 13000 || (kContained == 226 && kTensorMemoryLeak == 721));

static_assert(kPointerContext == CU_POINTER_ATTRIBUTE_CONTEXT);
static_assert(kPointerMemoryType == CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
static_assert(kPointerBufferId == CU_POINTER_ATTRIBUTE_BUFFER_ID);
static_assert(kPointerIsManaged == CU_POINTER_ATTRIBUTE_IS_MANAGED);
static_assert(kPointerDeviceOrdinal == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
static_assert(kMemoryTypeHost == CU_MEMORYTYPE_HOST && kMemoryTypeDevice == CU_MEMORYTYPE_DEVICE);
static_assert(kHandleDescriptor == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
static_assert(kLocationDevice == CU_MEM_LOCATION_TYPE_DEVICE);
static_assert(kAllocationPinned == CU_MEM_ALLOCATION_TYPE_PINNED);
static_assert(kAccessReadWrite == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
static_assert(kStreamNonBlocking == CU_STREAM_NON_BLOCKING);
static_assert(kEventDisableTiming == CU_EVENT_DISABLE_TIMING);
static_assert(kIpcLazyPeerAccess == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
static_assert(kHostPortable == CU_MEMHOSTREGISTER_PORTABLE &&
              kHostPortable == CU_MEMHOSTALLOC_PORTABLE);
static_assert(kHostDeviceMap == CU_MEMHOSTREGISTER_DEVICEMAP &&
              kHostDeviceMap == CU_MEMHOSTALLOC_DEVICEMAP);
static_assert(kWaitGreaterOrEqual == CU_STREAM_WAIT_VALUE_GEQ);
static_assert(sizeof(StreamStore) == sizeof(CUstreamBatchMemOpParams) &&
              offsetof(StreamStore, address) ==
                  offsetof(CUstreamBatchMemOpParams, writeValue.address) &&
              offsetof(StreamStore, value) ==
                  offsetof(CUstreamBatchMemOpParams, writeValue.value64) &&
              offsetof(StreamStore, flags) == offsetof(CUstreamBatchMemOpParams, writeValue.flags));
static_assert(kStoreWord == CU_STREAM_MEM_OP_WRITE_VALUE_64);

// A function of CUDA's header, and the table's member for it, pass arguments alike: as many, of the
// same sizes. (Enumerations and handles have other names there.)
template <class Theirs, class Ours>
struct SameShape : std::false_type {};
template <class... Theirs, class... Ours>
struct SameShape<CUresult (*)(Theirs...), Error (*)(Ours...)> {
  template <class A, class B>
  static constexpr bool same = sizeof(A) == sizeof(B) && (std::is_class_v<A> == std::is_class_v<B>);
  static constexpr bool value = [] {
    if constexpr (sizeof...(Theirs) != sizeof...(Ours))
      return false;
    else
      return (same<Theirs, Ours> && ...);
  }();
};
template <class Theirs, class Ours>
constexpr bool same_shape(Theirs, Ours) {
  return SameShape<Theirs, Ours>::value;
}

TEST(CudaAbi, FunctionsTakeWhatTheHeaderSays) {
  const Driver d{};
  EXPECT_TRUE(same_shape(&cuInit, d.init));
  EXPECT_TRUE(same_shape(&cuGetErrorName, d.get_error_name));
  EXPECT_TRUE(same_shape(&cuGetErrorString, d.get_error_string));
  EXPECT_TRUE(same_shape(&cuDeviceGetCount, d.device_get_count));
  EXPECT_TRUE(same_shape(&cuDeviceGet, d.device_get));
  EXPECT_TRUE(same_shape(&cuDeviceGetName, d.device_get_name));
  EXPECT_TRUE(same_shape(&cuDeviceGetUuid, d.device_get_uuid));
  EXPECT_TRUE(same_shape(&cuDeviceTotalMem, d.device_total_mem));
  EXPECT_TRUE(same_shape(&cuDeviceCanAccessPeer, d.device_can_access_peer));
  EXPECT_TRUE(same_shape(&cuDevicePrimaryCtxRetain, d.device_primary_ctx_retain));
  EXPECT_TRUE(same_shape(&cuDevicePrimaryCtxRelease, d.device_primary_ctx_release));
  EXPECT_TRUE(same_shape(&cuCtxPushCurrent, d.ctx_push_current));
  EXPECT_TRUE(same_shape(&cuCtxPopCurrent, d.ctx_pop_current));
  EXPECT_TRUE(same_shape(&cuCtxGetDevice, d.ctx_get_device));
  EXPECT_TRUE(same_shape(&cuCtxEnablePeerAccess, d.ctx_enable_peer_access));
}

TEST(CudaAbi, FunctionsOfMemoryTakeWhatTheHeaderSays) {
  const Driver d{};
  EXPECT_TRUE(same_shape(&cuMemAlloc, d.mem_alloc));
  EXPECT_TRUE(same_shape(&cuMemFree, d.mem_free));
  EXPECT_TRUE(same_shape(&cuMemHostAlloc, d.mem_host_alloc));
  EXPECT_TRUE(same_shape(&cuMemFreeHost, d.mem_free_host));
  EXPECT_TRUE(same_shape(&cuMemHostRegister, d.mem_host_register));
  EXPECT_TRUE(same_shape(&cuMemHostUnregister, d.mem_host_unregister));
  EXPECT_TRUE(same_shape(&cuMemHostGetDevicePointer, d.mem_host_get_device_pointer));
  EXPECT_TRUE(same_shape(&cuPointerGetAttribute, d.pointer_get_attribute));
  EXPECT_TRUE(same_shape(&cuMemGetAddressRange, d.mem_get_address_range));
  EXPECT_TRUE(same_shape(&cuIpcGetMemHandle, d.ipc_get_mem_handle));
  EXPECT_TRUE(same_shape(&cuIpcOpenMemHandle, d.ipc_open_mem_handle));
  EXPECT_TRUE(same_shape(&cuIpcCloseMemHandle, d.ipc_close_mem_handle));
  EXPECT_TRUE(same_shape(&cuMemCreate, d.mem_create));
  EXPECT_TRUE(same_shape(&cuMemRelease, d.mem_release));
  EXPECT_TRUE(same_shape(&cuMemRetainAllocationHandle, d.mem_retain_allocation_handle));
  EXPECT_TRUE(same_shape(&cuMemExportToShareableHandle, d.mem_export_to_shareable_handle));
  EXPECT_TRUE(same_shape(&cuMemImportFromShareableHandle, d.mem_import_from_shareable_handle));
  EXPECT_TRUE(same_shape(&cuMemAddressReserve, d.mem_address_reserve));
  EXPECT_TRUE(same_shape(&cuMemAddressFree, d.mem_address_free));
  EXPECT_TRUE(same_shape(&cuMemMap, d.mem_map));
  EXPECT_TRUE(same_shape(&cuMemUnmap, d.mem_unmap));
  EXPECT_TRUE(same_shape(&cuMemSetAccess, d.mem_set_access));
  EXPECT_TRUE(same_shape(&cuMemcpyAsync, d.memcpy_async));
}

TEST(CudaAbi, FunctionsOfStreamsTakeWhatTheHeaderSays) {
  const Driver d{};
  EXPECT_TRUE(same_shape(&cuStreamCreate, d.stream_create));
  EXPECT_TRUE(same_shape(&cuStreamDestroy, d.stream_destroy));
  EXPECT_TRUE(same_shape(&cuStreamSynchronize, d.stream_synchronize));
  EXPECT_TRUE(same_shape(&cuStreamQuery, d.stream_query));
  EXPECT_TRUE(same_shape(&cuStreamGetCtx, d.stream_get_ctx));
  EXPECT_TRUE(same_shape(&cuStreamIsCapturing, d.stream_is_capturing));
  EXPECT_TRUE(same_shape(&cuStreamWaitEvent, d.stream_wait_event));
  EXPECT_TRUE(same_shape(&cuStreamWaitValue64, d.stream_wait_value));
  EXPECT_TRUE(same_shape(&cuStreamWriteValue64, d.stream_write_value));
  EXPECT_TRUE(same_shape(&cuStreamBatchMemOp, d.stream_batch_mem_op));
  EXPECT_TRUE(same_shape(&cuLaunchHostFunc, d.launch_host_func));
  EXPECT_TRUE(same_shape(&cuEventCreate, d.event_create));
  EXPECT_TRUE(same_shape(&cuEventDestroy, d.event_destroy));
  EXPECT_TRUE(same_shape(&cuEventRecord, d.event_record));
  EXPECT_TRUE(same_shape(&cuEventQuery, d.event_query));
  EXPECT_TRUE(same_shape(&cuModuleLoadData, d.module_load_data));
  EXPECT_TRUE(same_shape(&cuModuleUnload, d.module_unload));
  EXPECT_TRUE(same_shape(&cuModuleGetFunction, d.module_get_function));
  EXPECT_TRUE(same_shape(&cuLaunchKernel, d.launch_kernel));
}

}  // namespace
}  // namespace tutti::cuda
