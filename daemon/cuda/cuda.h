// The CUDA driver as a table of functions that is loaded at run time, so that no binary links it:
// one build runs on machines with and without GPUs. Tests fill the table with a library of host
// threads and memory (tests/cuda/fake_driver.cc). Also part of the client library.
//
// Types and numbers have the layout of cuda.h; tests/cuda/abi_test.cc compares them where CUDA's
// headers are found. The functions are documented there: members are named after them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "daemon/base/status.h"

namespace tutti::cuda {

using Error = int;  // CUresult
using DeviceId = int;
using Pointer = unsigned long long;  // CUdeviceptr, NOLINT: CUDA's type.
using Context = struct ContextTag*;
using Stream = struct StreamTag*;
using Event = struct EventTag*;
using Module = struct ModuleTag*;
using Function = struct FunctionTag*;
using Allocation = unsigned long long;  // CUmemGenericAllocationHandle, NOLINT: the same.

inline constexpr Error kSuccess = 0;
inline constexpr Error kInvalidValue = 1;
inline constexpr Error kOutOfMemory = 2;
inline constexpr Error kNotInitialized = 3;
inline constexpr Error kDeinitialized = 4;
inline constexpr Error kDeviceUnavailable = 46;
inline constexpr Error kNoDevice = 100;
inline constexpr Error kInvalidDevice = 101;
inline constexpr Error kInvalidContext = 201;
inline constexpr Error kEccUncorrectable = 214;
inline constexpr Error kPeerAccessUnsupported = 217;
inline constexpr Error kNvlinkUncorrectable = 220;
inline constexpr Error kContained = 226;
inline constexpr Error kInvalidHandle = 400;
inline constexpr Error kNotFound = 500;
inline constexpr Error kNotReady = 600;
inline constexpr Error kIllegalAddress = 700;
inline constexpr Error kLaunchTimeout = 702;
inline constexpr Error kPeerAccessAlreadyEnabled = 704;
inline constexpr Error kAssert = 710;
inline constexpr Error kHostMemoryAlreadyRegistered = 712;
inline constexpr Error kHardwareStackError = 714;
inline constexpr Error kIllegalInstruction = 715;
inline constexpr Error kMisalignedAddress = 716;
inline constexpr Error kInvalidAddressSpace = 717;
inline constexpr Error kInvalidPc = 718;
inline constexpr Error kLaunchFailed = 719;
inline constexpr Error kTensorMemoryLeak = 721;
inline constexpr Error kNotSupported = 801;
inline constexpr Error kMpsClientTerminated = 810;
inline constexpr Error kExternalDevice = 911;

// CUpointer_attribute.
inline constexpr int kPointerContext = 1;
inline constexpr int kPointerMemoryType = 2;
inline constexpr int kPointerBufferId = 7;
inline constexpr int kPointerIsManaged = 8;
inline constexpr int kPointerDeviceOrdinal = 9;
inline constexpr unsigned kMemoryTypeHost = 1;
inline constexpr unsigned kMemoryTypeDevice = 2;

// CUmemAllocationHandleType, CUmemLocationType, CUmemAllocationType, CUmemAccess_flags.
inline constexpr int kHandleDescriptor = 1;
inline constexpr int kLocationDevice = 1;
inline constexpr int kAllocationPinned = 1;
inline constexpr int kAccessReadWrite = 3;

inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kIpcLazyPeerAccess = 1;
inline constexpr unsigned kHostPortable = 1;
inline constexpr unsigned kHostDeviceMap = 2;
inline constexpr unsigned kWaitGreaterOrEqual = 0;  // CU_STREAM_WAIT_VALUE_GEQ
inline constexpr int kStoreWord = 5;                // CU_STREAM_MEM_OP_WRITE_VALUE_64

struct IpcHandle {
  char bytes[64];
};
struct Uuid {
  char bytes[16];
};
struct Location {
  int type;
  int id;
};
struct AllocationProperties {  // CUmemAllocationProp
  int type;
  int handle_types;
  Location location;
  void* windows_meta_data;
  struct {
    unsigned char compression;
    unsigned char rdma;
    unsigned short usage;  // NOLINT: CUDA's type.
    unsigned char reserved[4];
  } flags;
};
struct Access {  // CUmemAccessDesc
  Location location;
  int flags;
};
struct StreamStore {  // CUstreamBatchMemOpParams, for kStoreWord
  int operation = kStoreWord;
  Pointer address = 0;
  uint64_t value = 0;
  unsigned flags = 0;
  uint64_t reserved[2] = {};
};

// NOLINTBEGIN(google-runtime-int): the sizes of CUDA's own declarations.
struct Driver {
  Error (*init)(unsigned);
  Error (*get_error_name)(Error, const char**);
  Error (*get_error_string)(Error, const char**);

  Error (*device_get_count)(int*);
  Error (*device_get)(DeviceId*, int);
  Error (*device_get_name)(char*, int, DeviceId);
  Error (*device_get_uuid)(Uuid*, DeviceId);
  Error (*device_total_mem)(size_t*, DeviceId);
  Error (*device_can_access_peer)(int*, DeviceId, DeviceId);
  Error (*device_primary_ctx_retain)(Context*, DeviceId);
  Error (*device_primary_ctx_release)(DeviceId);
  Error (*ctx_push_current)(Context);
  Error (*ctx_pop_current)(Context*);
  Error (*ctx_get_device)(DeviceId*);
  Error (*ctx_enable_peer_access)(Context, unsigned);

  Error (*mem_alloc)(Pointer*, size_t);
  Error (*mem_free)(Pointer);
  Error (*mem_host_alloc)(void**, size_t, unsigned);
  Error (*mem_free_host)(void*);
  Error (*mem_host_register)(void*, size_t, unsigned);
  Error (*mem_host_unregister)(void*);
  Error (*mem_host_get_device_pointer)(Pointer*, void*, unsigned);
  Error (*pointer_get_attribute)(void*, int, Pointer);
  Error (*mem_get_address_range)(Pointer*, size_t*, Pointer);

  Error (*ipc_get_mem_handle)(IpcHandle*, Pointer);
  Error (*ipc_open_mem_handle)(Pointer*, IpcHandle, unsigned);
  Error (*ipc_close_mem_handle)(Pointer);

  Error (*mem_create)(Allocation*, size_t, const AllocationProperties*, unsigned long long);
  Error (*mem_release)(Allocation);
  Error (*mem_retain_allocation_handle)(Allocation*, void*);
  Error (*mem_export_to_shareable_handle)(void*, Allocation, int, unsigned long long);
  Error (*mem_import_from_shareable_handle)(Allocation*, void*, int);
  Error (*mem_address_reserve)(Pointer*, size_t, size_t, Pointer, unsigned long long);
  Error (*mem_address_free)(Pointer, size_t);
  Error (*mem_map)(Pointer, size_t, size_t, Allocation, unsigned long long);
  Error (*mem_unmap)(Pointer, size_t);
  Error (*mem_set_access)(Pointer, size_t, const Access*, size_t);

  Error (*stream_create)(Stream*, unsigned);
  Error (*stream_destroy)(Stream);
  Error (*stream_synchronize)(Stream);
  Error (*stream_query)(Stream);
  Error (*stream_get_ctx)(Stream, Context*);
  Error (*stream_is_capturing)(Stream, int*);  // CUstreamCaptureStatus
  Error (*stream_wait_event)(Stream, Event, unsigned);
  Error (*stream_wait_value)(Stream, Pointer, uint64_t, unsigned);
  Error (*stream_write_value)(Stream, Pointer, uint64_t, unsigned);
  Error (*stream_batch_mem_op)(Stream, unsigned, StreamStore*, unsigned);
  Error (*launch_host_func)(Stream, void (*)(void*), void*);
  Error (*event_create)(Event*, unsigned);
  Error (*event_destroy)(Event);
  Error (*event_record)(Event, Stream);
  Error (*event_query)(Event);
  Error (*memcpy_async)(Pointer, Pointer, size_t, Stream);

  Error (*module_load_data)(Module*, const void*);
  Error (*module_unload)(Module);
  Error (*module_get_function)(Function*, Module, const char*);
  Error (*launch_kernel)(Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                         unsigned, Stream, void**, void**);
};
// NOLINTEND(google-runtime-int)

// The library of the driver where no setting names another.
inline constexpr const char* kDriverLibrary = "libcuda.so.1";

// Loads the driver and initialises it; it stays loaded. Each library is loaded once a process, and
// later calls return the same table. Any thread. UNAVAILABLE: there is no such library, it lacks a
// function, or it finds no device it can use.
tutti::Result<const Driver*> load_driver(const std::string& library);

// Finds the driver that this process has loaded already, by whatever library of it: the memory of a
// GPU cannot come from elsewhere. Any thread.
class DriverWatch {
 public:
  explicit DriverWatch(std::string library) : library_(std::move(library)) {}
  // Null: there is none yet. Some 50 ns where nothing was loaded since the last call. Does not
  // initialise the driver.
  const Driver* find();

 private:
  const std::string library_;
  std::atomic<uint64_t> loaded_libraries_ = 0;  // Among which it was not.
  std::atomic<const Driver*> found_ = nullptr;
};

// Whether the process can do no more work on the GPU after this error: by the driver's
// documentation, all further calls return it, and only a new process can use CUDA again.
bool is_sticky(Error error);

// "GPU-5f9c...", as nvidia-smi and NVML write it.
std::string text_of(const Uuid& uuid);

// OK, or "WHAT: out of memory (CUDA_ERROR_OUT_OF_MEMORY)" with the code that fits the error.
Status status_of(const Driver& driver, Error error, const std::string& what);

// Makes a context current to this thread until it is destroyed. Not OK: it could not.
class Current {
 public:
  Current(const Driver& driver, Context context);
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  ~Current();
  Error error() const { return error_; }

 private:
  const Driver& driver_;
  const Error error_;
};

}  // namespace tutti::cuda
