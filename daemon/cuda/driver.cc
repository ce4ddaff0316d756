#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <mutex>

#include "daemon/base/function_table.h"
#include "daemon/cuda/cuda.h"

namespace tutti::cuda {
namespace {

void load_devices(FunctionLoader& load, Driver& d) {
  load(d.init, "cuInit");
  load(d.get_error_name, "cuGetErrorName");
  load(d.get_error_string, "cuGetErrorString");
  load(d.device_get_count, "cuDeviceGetCount");
  load(d.device_get, "cuDeviceGet");
  load(d.device_get_name, "cuDeviceGetName");
  load(d.device_get_uuid, "cuDeviceGetUuid_v2");
  load(d.device_total_mem, "cuDeviceTotalMem_v2");
  load(d.device_can_access_peer, "cuDeviceCanAccessPeer");
  load(d.device_primary_ctx_retain, "cuDevicePrimaryCtxRetain");
  load(d.device_primary_ctx_release, "cuDevicePrimaryCtxRelease_v2");
  load(d.ctx_push_current, "cuCtxPushCurrent_v2");
  load(d.ctx_pop_current, "cuCtxPopCurrent_v2");
  load(d.ctx_get_device, "cuCtxGetDevice");
  load(d.ctx_enable_peer_access, "cuCtxEnablePeerAccess");
}

void load_memory(FunctionLoader& load, Driver& d) {
  load(d.mem_alloc, "cuMemAlloc_v2");
  load(d.mem_free, "cuMemFree_v2");
  load(d.mem_host_alloc, "cuMemHostAlloc");
  load(d.mem_free_host, "cuMemFreeHost");
  load(d.mem_host_register, "cuMemHostRegister_v2");
  load(d.mem_host_unregister, "cuMemHostUnregister");
  load(d.mem_host_get_device_pointer, "cuMemHostGetDevicePointer_v2");
  load(d.pointer_get_attribute, "cuPointerGetAttribute");
  load(d.mem_get_address_range, "cuMemGetAddressRange_v2");
  load(d.ipc_get_mem_handle, "cuIpcGetMemHandle");
  load(d.ipc_open_mem_handle, "cuIpcOpenMemHandle_v2");
  load(d.ipc_close_mem_handle, "cuIpcCloseMemHandle");
  load(d.memcpy_async, "cuMemcpyAsync");
}

void load_virtual_memory(FunctionLoader& load, Driver& d) {
  load(d.mem_create, "cuMemCreate");
  load(d.mem_release, "cuMemRelease");
  load(d.mem_retain_allocation_handle, "cuMemRetainAllocationHandle");
  load(d.mem_export_to_shareable_handle, "cuMemExportToShareableHandle");
  load(d.mem_import_from_shareable_handle, "cuMemImportFromShareableHandle");
  load(d.mem_address_reserve, "cuMemAddressReserve");
  load(d.mem_address_free, "cuMemAddressFree");
  load(d.mem_map, "cuMemMap");
  load(d.mem_unmap, "cuMemUnmap");
  load(d.mem_set_access, "cuMemSetAccess");
}

void load_streams(FunctionLoader& load, Driver& d) {
  load(d.stream_create, "cuStreamCreate");
  load(d.stream_destroy, "cuStreamDestroy_v2");
  load(d.stream_synchronize, "cuStreamSynchronize");
  load(d.stream_query, "cuStreamQuery");
  load(d.stream_get_ctx, "cuStreamGetCtx");
  load(d.stream_is_capturing, "cuStreamIsCapturing");
  load(d.stream_wait_event, "cuStreamWaitEvent");
  load(d.stream_wait_value, "cuStreamWaitValue64_v2");
  load(d.stream_write_value, "cuStreamWriteValue64_v2");
  load(d.stream_batch_mem_op, "cuStreamBatchMemOp_v2");
  load(d.launch_host_func, "cuLaunchHostFunc");
  load(d.event_create, "cuEventCreate");
  load(d.event_destroy, "cuEventDestroy_v2");
  load(d.event_record, "cuEventRecord");
  load(d.event_query, "cuEventQuery");
  load(d.module_load_data, "cuModuleLoadData");
  load(d.module_unload, "cuModuleUnload");
  load(d.module_get_function, "cuModuleGetFunction");
  load(d.launch_kernel, "cuLaunchKernel");
}

Status fill_table(void* handle, const std::string& library, Driver& driver) {
  FunctionLoader load([handle](const char* name) { return dlsym(handle, name); });
  load_devices(load, driver);
  load_memory(load, driver);
  load_virtual_memory(load, driver);
  load_streams(load, driver);
  if (!load.missing().empty())
    return unavailable(library + " lacks " + load.missing() + "; install driver 525 or later");
  return {};
}

// The library's functions. The table lives until the process's end, as the driver's own threads do.
tutti::Result<const Driver*> table_of(void* handle, const std::string& library) {
  static std::mutex mutex;
  static auto& tables = *new std::map<std::string, Driver>();
  const std::lock_guard lock(mutex);
  if (const auto found = tables.find(library); found != tables.end()) return &found->second;
  Driver driver{};
  if (Status filled = fill_table(handle, library, driver); !filled.ok()) return filled;
  return &tables.emplace(library, driver).first->second;
}

// All that this process has loaded so far, whether it has unloaded them or not.
uint64_t count_loaded_libraries() {
  uint64_t loaded = 0;
  const auto read = [](dl_phdr_info* info, size_t, void* into) {
    *static_cast<uint64_t*>(into) = info->dlpi_adds;
    return 1;  // The first entry says it.
  };
  dl_iterate_phdr(read, &loaded);
  return loaded;
}

Code code_of_error(Error error) {
  switch (error) {
    case kSuccess:
      return Code::ok;
    case kOutOfMemory:
      return Code::resource_exhausted;
    case kInvalidValue:
    case kInvalidContext:
    case kInvalidHandle:
      return Code::invalid_argument;
    case kNotInitialized:
    case kDeinitialized:
    case kNoDevice:
    case kInvalidDevice:
    case kNotSupported:
      return Code::unavailable;
    default:
      return Code::internal;
  }
}

}  // namespace

tutti::Result<const Driver*> load_driver(const std::string& library) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    return unavailable("there is no CUDA driver here: " + std::string(dlerror()));
  const auto table = table_of(handle, library);
  if (!table.ok()) return table;
  const Status started = status_of(**table, (*table)->init(0), "the CUDA driver does not start");
  if (!started.ok()) return unavailable(started.message());
  return table;
}

const Driver* DriverWatch::find() {
  if (const Driver* found = found_.load(std::memory_order_acquire); found != nullptr) return found;
  const uint64_t loaded = count_loaded_libraries();
  if (loaded_libraries_.load() == loaded) return nullptr;
  void* handle = dlopen(library_.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (handle != nullptr)
    if (const auto table = table_of(handle, library_); table.ok()) {
      found_.store(*table, std::memory_order_release);
      return *table;
    }
  loaded_libraries_ = loaded;  // As it was before the look: what came since is looked for again.
  return nullptr;
}

// ECC and NVLink errors are documented without a word on what follows them; the context is lost.
bool is_sticky(Error error) {
  constexpr std::array kSticky = {kEccUncorrectable,    kNvlinkUncorrectable, kContained,
                                  kIllegalAddress,      kLaunchTimeout,       kAssert,
                                  kHardwareStackError,  kIllegalInstruction,  kMisalignedAddress,
                                  kInvalidAddressSpace, kInvalidPc,           kLaunchFailed,
                                  kTensorMemoryLeak,    kMpsClientTerminated, kExternalDevice};
  return std::ranges::find(kSticky, error) != kSticky.end();
}

std::string text_of(const Uuid& uuid) {
  std::string text = "GPU";
  for (size_t i = 0; i < sizeof(uuid.bytes); ++i) {
    std::array<char, 3> digits{};
    std::snprintf(digits.data(), digits.size(), "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    const bool begins_part = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
    text += (begins_part ? "-" : "") + std::string(digits.data());
  }
  return text;
}

Status status_of(const Driver& driver, Error error, const std::string& what) {
  if (error == kSuccess) return {};
  const char* name = nullptr;
  const char* text = nullptr;
  driver.get_error_name(error, &name);
  driver.get_error_string(error, &text);
  return {code_of_error(error), what + ": " + (text != nullptr ? text : "unknown error") + " (" +
                                    (name != nullptr ? name : std::to_string(error)) + ")"};
}

Current::Current(const Driver& driver, Context context)
    : driver_(driver), error_(driver.ctx_push_current(context)) {}

Current::~Current() {
  Context popped = nullptr;
  if (error_ == kSuccess) driver_.ctx_pop_current(&popped);
}

}  // namespace tutti::cuda
