// A CUDA driver of host threads and memory: a library with the names of libcuda.so.1, for tests of
// everything above the driver on machines without a GPU. It checks what a GPU would punish: device
// memory is not readable by the host, words in host memory must be registered, a process cannot
// import its own memory, a kernel cannot leave its allocations. What frees or unpins memory waits
// for the streams of its context.
//
// FAKE_CUDA_BYTES in the environment is how much memory the GPUs have together (without a limit).
// FAKE_CUDA_GPUS in the environment is the number of GPUs (2); with FAKE_CUDA_NO_PEERS they do not
// reach each other's memory. FAKE_CUDA_REFUSES names one function that fails with
// CUDA_ERROR_NOT_SUPPORTED, such as "cuIpcOpenMemHandle_v2". With FAKE_CUDA_ERRS, kernels get the
// last byte of what they write wrong. FAKE_CUDA_POISON and FAKE_CUDA_HANG: see fake_poison.h;
// FAKE_CUDA_SLOW_...: see fake_delays.h.
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "daemon/cuda/cuda.h"
#include "daemon/device/cuda_job.h"
#include "tests/cuda/fake_contexts.h"
#include "tests/cuda/fake_delays.h"
#include "tests/cuda/fake_kernels.h"
#include "tests/cuda/fake_memory.h"
#include "tests/cuda/fake_poison.h"

namespace tutti::cuda {

struct EventTag {
  std::shared_ptr<fake::Mark> mark;
};
struct ModuleTag {};
struct FunctionTag {
  tutti::fake::Kernel kernel;
};

}  // namespace tutti::cuda

namespace tutti::fake {
namespace {

using namespace tutti::cuda;  // NOLINT: the driver's own types.

// All state of the driver. It lives until the process ends, as the driver's does.
struct State {
  AddressSpace addresses;
  Registered registered;
  std::mutex mutex;
  std::map<cuda::Allocation, std::shared_ptr<const fake::Allocation>> handles;
  cuda::Allocation next_handle = 1;
  std::set<void*> objects;  // Events and modules, which a process with a fault leaves behind.
};

State& state() {
  static State& only = *new State();
  return only;
}

void note(void* object, bool lives) {
  const std::lock_guard lock(state().mutex);
  lives ? void(state().objects.insert(object)) : void(state().objects.erase(object));
}

int gpus() {
  const char* given = std::getenv("FAKE_CUDA_GPUS");
  return given != nullptr ? std::atoi(given) : 2;
}

bool refuses(const char* function) {
  const char* given = std::getenv("FAKE_CUDA_REFUSES");
  return given != nullptr && std::string_view(given) == function;
}

// For functions that need a context that is current.
Error usable() {
  if (is_poisoned()) return kIllegalAddress;
  return current().empty() ? kInvalidContext : kSuccess;
}

// For functions that free memory, which wait for the work of the current context.
Error usable_and_done() {
  const Error error = usable();
  if (error != kSuccess) return error;
  return wait_for_streams() ? kSuccess : kIllegalAddress;
}

void* at(Pointer address) { return reinterpret_cast<void*>(address); }
Pointer address_of(const void* memory) { return reinterpret_cast<Pointer>(memory); }

// What an IPC handle holds.
struct IpcName {
  pid_t pid;
  int fd;
  int gpu;
  size_t bytes;
};
static_assert(sizeof(IpcName) <= sizeof(IpcHandle));

std::optional<Mapped> mapped_at(Pointer address) { return state().addresses.find(address); }

Error map_allocation(std::shared_ptr<const fake::Allocation> allocation, bool imported,
                     Pointer* made) {
  const Pointer reserved = state().addresses.reserve(allocation->bytes);
  if (reserved == 0) return kOutOfMemory;
  const size_t bytes = allocation->bytes;
  if (!state().addresses.map({.at = reserved,
                              .bytes = bytes,
                              .allocation = std::move(allocation),
                              .is_imported = imported}))
    return kOutOfMemory;
  *made = reserved;
  return kSuccess;
}

Error unmap_and_free(Pointer address, bool imported) {
  const std::optional<Mapped> mapped = mapped_at(address);
  if (!mapped || mapped->at != address || mapped->is_virtual || mapped->is_imported != imported)
    return kInvalidValue;
  state().addresses.unmap(address);
  state().addresses.free(address, mapped->bytes);
  return kSuccess;
}

// ---- Kernels ----

size_t bytes_of(const CudaJob& job, Dtype dtype) { return job.count * size_of(dtype); }

// Where the kernel leaves what it finds. Other kernels than those of its stream do not use it.
tutti::CudaVerdict& find_verdict(const CudaJob& job, int gpu) {
  std::byte* found =
      state().addresses.resolve(address_of(job.verdict), sizeof(tutti::CudaVerdict), gpu);
  require(found != nullptr, "a verdict is in the device's memory");
  auto& verdict = *reinterpret_cast<tutti::CudaVerdict*>(found);
  require(verdict.claimed < job.launch, "launches of a verdict are counted");
  return verdict;
}

// A kernel finds the word of its cancelling as it is when the kernel starts.
void run_kernel(Kernel kernel, unsigned blocks, CudaJob job, size_t packs, int gpu) {
  uint64_t cancelled = 0;
  if (job.cancelled != nullptr) {
    const bool is_pinned = state().registered.contains(address_of(job.cancelled), sizeof(uint64_t));
    require(is_pinned, "a kernel reads host memory that is pinned");
    cancelled = std::atomic_ref(*const_cast<uint64_t*>(job.cancelled)).load();
    job.cancelled = &cancelled;
    job.verdict = &find_verdict(job, gpu);
    if (cancelled != 0) return run_blocks(kernel, blocks, job, packs);
  }
  begin_kernel();
  for (uint32_t i = 0; i < job.source_count; ++i) {
    Operand& source = job.sources[i];
    source.data =
        state().addresses.resolve(address_of(source.data), bytes_of(job, source.dtype), gpu);
    require(source.data != nullptr, "a kernel reads memory that is mapped");
  }
  for (uint32_t i = 0; i < job.target_count; ++i) {
    Target& target = job.targets[i];
    target.data =
        state().addresses.resolve(address_of(target.data), bytes_of(job, target.dtype), gpu);
    require(target.data != nullptr, "a kernel writes memory that is mapped");
  }
  run_blocks(kernel, blocks, job, packs);
  const Target& first = job.targets[0];
  if (std::getenv("FAKE_CUDA_ERRS") != nullptr && job.count > 0)
    static_cast<std::byte*>(first.data)[bytes_of(job, first.dtype) - 1] ^= std::byte{1};
  end_kernel();
}

}  // namespace
}  // namespace tutti::fake

// NOLINTBEGIN(readability-identifier-naming): the driver's names.
#pragma GCC visibility push(default)
extern "C" {

using namespace tutti::cuda;  // NOLINT
using namespace tutti::fake;  // NOLINT

// ---- Devices and contexts ----

Error cuInit(unsigned) { return gpus() == 0 ? kNoDevice : kSuccess; }
Error cuGetErrorName(Error error, const char** name) {
  *name = error == kOutOfMemory      ? "CUDA_ERROR_OUT_OF_MEMORY"
          : error == kInvalidValue   ? "CUDA_ERROR_INVALID_VALUE"
          : error == kInvalidContext ? "CUDA_ERROR_INVALID_CONTEXT"
          : error == kNoDevice       ? "CUDA_ERROR_NO_DEVICE"
          : error == kNotSupported   ? "CUDA_ERROR_NOT_SUPPORTED"
          : error == kIllegalAddress ? "CUDA_ERROR_ILLEGAL_ADDRESS"
                                     : "CUDA_ERROR_OF_THE_FAKE";
  return kSuccess;
}
Error cuGetErrorString(Error error, const char** text) {
  *text = error == kOutOfMemory      ? "out of memory"
          : error == kInvalidValue   ? "invalid argument"
          : error == kInvalidContext ? "invalid device context"
          : error == kNoDevice       ? "no CUDA-capable device is detected"
          : error == kNotSupported   ? "operation not supported"
          : error == kIllegalAddress ? "an illegal memory access was encountered"
                                     : "error of the fake driver";
  return kSuccess;
}
Error cuDeviceGetCount(int* count) { return *count = gpus(), kSuccess; }
Error cuDeviceGet(DeviceId* device, int ordinal) {
  if (ordinal < 0 || ordinal >= gpus()) return kInvalidDevice;
  return *device = ordinal, kSuccess;
}
Error cuDeviceGetName(char* name, int bytes, DeviceId) {
  std::strncpy(name, "Fake GPU", static_cast<size_t>(bytes));
  return kSuccess;
}
Error cuDeviceGetUuid_v2(Uuid* uuid, DeviceId device) {
  std::memcpy(uuid->bytes, "\0\0\0\0\x11\x11\x22\x22\x33\x33\x44\x44\x44\x44\x44\x44", 16);
  uuid->bytes[0] = static_cast<char>(device << 4);  // As the fake NVML has it.
  return kSuccess;
}
Error cuDeviceTotalMem_v2(size_t* bytes, DeviceId) { return *bytes = kGpuBytes, kSuccess; }
Error cuDeviceCanAccessPeer(int* can, DeviceId, DeviceId) {
  return *can = std::getenv("FAKE_CUDA_NO_PEERS") == nullptr ? 1 : 0, kSuccess;
}
Error cuDevicePrimaryCtxRetain(Context* context, DeviceId device) {
  if (device < 0 || device >= gpus()) return kInvalidDevice;
  wait_for_context();
  if (refuses("cuDevicePrimaryCtxRetain")) return kNotSupported;
  return *context = context_of(device), kSuccess;
}
Error cuDevicePrimaryCtxRelease_v2(DeviceId) { return kSuccess; }
Error cuCtxPushCurrent_v2(Context context) {
  if (context == nullptr) return kInvalidValue;
  current().push_back(context);
  return kSuccess;
}
Error cuCtxPopCurrent_v2(Context* context) {
  if (current().empty()) return kInvalidContext;
  *context = current().back();
  current().pop_back();
  return kSuccess;
}
Error cuCtxGetDevice(DeviceId* device) {
  if (current().empty()) return kInvalidContext;
  return *device = current_gpu(), kSuccess;
}
Error cuCtxEnablePeerAccess(Context, unsigned) {
  if (is_poisoned()) return kIllegalAddress;
  return kSuccess;
}

// ---- Memory ----

Error cuMemAlloc_v2(Pointer* made, size_t bytes) {
  if (is_poisoned()) return kIllegalAddress;
  if (current_gpu() < 0) return kInvalidContext;
  if (bytes == 0) return kInvalidValue;
  const char* limit = std::getenv("FAKE_CUDA_BYTES");
  if (limit != nullptr && state().addresses.mapped_bytes() + granules(bytes) > std::stoul(limit))
    return kOutOfMemory;
  const auto allocation =
      bytes > kGpuBytes ? nullptr : make_allocation(granules(bytes), current_gpu());
  return allocation == nullptr ? kOutOfMemory : map_allocation(allocation, false, made);
}
Error cuMemFree_v2(Pointer address) {
  if (const Error error = usable_and_done(); error != kSuccess) return error;
  return unmap_and_free(address, false);
}
Error cuMemHostAlloc(void** made, size_t bytes, unsigned) {
  if (const Error error = usable(); error != kSuccess) return error;
  *made = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  if (*made == nullptr) return kOutOfMemory;
  state().registered.add(*made, bytes);
  return kSuccess;
}
Error cuMemFreeHost(void* memory) {
  if (const Error error = usable_and_done(); error != kSuccess) return error;
  if (!state().registered.remove(memory)) return kInvalidValue;
  std::free(memory);
  return kSuccess;
}
Error cuMemHostRegister_v2(void* memory, size_t bytes, unsigned) {
  if (const Error error = usable(); error != kSuccess) return error;
  if (refuses("cuMemHostRegister_v2")) return kNotSupported;
  return state().registered.add(memory, bytes) ? kSuccess : kHostMemoryAlreadyRegistered;
}
Error cuMemHostUnregister(void* memory) {
  if (const Error error = usable_and_done(); error != kSuccess) return error;
  return state().registered.remove(memory) ? kSuccess : kInvalidValue;
}
Error cuMemHostGetDevicePointer_v2(Pointer* device, void* host, unsigned) {
  if (const Error error = usable(); error != kSuccess) return error;
  if (!state().registered.contains(address_of(host), 1)) return kInvalidValue;
  return *device = address_of(host), kSuccess;
}
Error cuPointerGetAttribute(void* value, int attribute, Pointer address) {
  const std::optional<Mapped> mapped = mapped_at(address);
  const bool is_host = !mapped && state().registered.contains(address, 1);
  if (!mapped && !is_host) return kInvalidValue;
  switch (attribute) {
    case kPointerContext: {
      const bool has_one = mapped && !mapped->is_virtual;
      *static_cast<Context*>(value) = has_one ? context_of(mapped->allocation->gpu) : nullptr;
      return kSuccess;
    }
    case kPointerMemoryType:
      *static_cast<unsigned*>(value) = mapped ? kMemoryTypeDevice : kMemoryTypeHost;
      return kSuccess;
    case kPointerBufferId:
      *static_cast<uint64_t*>(value) = mapped ? mapped->buffer_id : 0;
      return kSuccess;
    case kPointerIsManaged:
      *static_cast<unsigned*>(value) = 0;
      return kSuccess;
    case kPointerDeviceOrdinal:
      *static_cast<int*>(value) = mapped ? mapped->allocation->gpu : 0;
      return kSuccess;
    default:
      return kInvalidValue;
  }
}
Error cuMemGetAddressRange_v2(Pointer* base, size_t* bytes, Pointer address) {
  if (const Error error = usable(); error != kSuccess) return error;
  const std::optional<Mapped> mapped = mapped_at(address);
  if (!mapped) return kNotFound;
  *base = mapped->at;
  *bytes = mapped->bytes;
  return kSuccess;
}

// ---- Memory of other processes ----

Error cuIpcGetMemHandle(IpcHandle* handle, Pointer address) {
  if (const Error error = usable(); error != kSuccess) return error;
  const std::optional<Mapped> mapped = mapped_at(address);
  if (!mapped || mapped->at != address || mapped->is_virtual || mapped->is_imported)
    return kInvalidValue;
  const IpcName name{getpid(), mapped->allocation->memory.get(), mapped->allocation->gpu,
                     mapped->bytes};
  std::memset(handle, 0, sizeof(*handle));
  std::memcpy(handle, &name, sizeof(name));
  return kSuccess;
}
Error cuIpcOpenMemHandle_v2(Pointer* made, IpcHandle handle, unsigned) {
  if (const Error error = usable(); error != kSuccess) return error;
  if (refuses("cuIpcOpenMemHandle_v2")) return kNotSupported;
  IpcName name{};
  std::memcpy(&name, &handle, sizeof(name));
  if (name.pid == getpid()) return kInvalidContext;
  wait_for_import(name.bytes);
  const std::string path = "/proc/" + std::to_string(name.pid) + "/fd/" + std::to_string(name.fd);
  auto imported = std::make_shared<tutti::fake::Allocation>();
  imported->memory = tutti::Fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!imported->memory.valid()) return kInvalidValue;
  imported->bytes = name.bytes;
  imported->gpu = name.gpu;
  return map_allocation(imported, true, made);
}
Error cuIpcCloseMemHandle(Pointer address) {
  if (const Error error = usable_and_done(); error != kSuccess) return error;
  return unmap_and_free(address, true);
}

// ---- Virtual memory ----

Error cuMemCreate(tutti::cuda::Allocation* made, size_t bytes, const AllocationProperties* how,
                  unsigned long long) {  // NOLINT
  if (bytes == 0 || bytes % kGranule != 0) return kInvalidValue;
  const auto allocation = make_allocation(bytes, how->location.id);
  if (allocation == nullptr) return kOutOfMemory;
  allocation->has_descriptor = how->handle_types == kHandleDescriptor;
  const std::lock_guard lock(state().mutex);
  state().handles.emplace(*made = state().next_handle++, allocation);
  return kSuccess;
}
Error cuMemRelease(tutti::cuda::Allocation handle) {
  const std::lock_guard lock(state().mutex);
  return state().handles.erase(handle) != 0 ? kSuccess : kInvalidValue;
}
Error cuMemRetainAllocationHandle(tutti::cuda::Allocation* handle, void* address) {
  const std::optional<Mapped> mapped = mapped_at(address_of(address));
  if (!mapped || !mapped->is_virtual) return kInvalidValue;
  const std::lock_guard lock(state().mutex);
  state().handles.emplace(*handle = state().next_handle++, mapped->allocation);
  return kSuccess;
}
Error cuMemExportToShareableHandle(void* fd, tutti::cuda::Allocation handle, int type,
                                   unsigned long long) {  // NOLINT
  const std::lock_guard lock(state().mutex);
  const auto found = state().handles.find(handle);
  if (found == state().handles.end() || type != kHandleDescriptor) return kInvalidValue;
  if (!found->second->has_descriptor) return kNotSupported;
  *static_cast<int*>(fd) = fcntl(found->second->memory.get(), F_DUPFD_CLOEXEC, 0);
  return kSuccess;
}
Error cuMemImportFromShareableHandle(tutti::cuda::Allocation* made, void* handle, int) {
  if (is_poisoned()) return kIllegalAddress;
  if (refuses("cuMemImportFromShareableHandle")) return kNotSupported;
  auto imported = std::make_shared<tutti::fake::Allocation>();
  imported->memory =
      tutti::Fd(fcntl(static_cast<int>(reinterpret_cast<intptr_t>(handle)), F_DUPFD_CLOEXEC, 0));
  const off_t bytes = lseek(imported->memory.get(), 0, SEEK_END);
  if (bytes <= 0) return kInvalidValue;
  imported->bytes = static_cast<size_t>(bytes);
  const std::lock_guard lock(state().mutex);
  state().handles.emplace(*made = state().next_handle++, imported);
  return kSuccess;
}
Error cuMemAddressReserve(Pointer* made, size_t bytes, size_t, Pointer, unsigned long long) {
  if (is_poisoned()) return kIllegalAddress;
  // NOLINT
  *made = state().addresses.reserve(bytes);
  return *made != 0 ? kSuccess : kOutOfMemory;
}
Error cuMemAddressFree(Pointer address, size_t bytes) {
  if (is_poisoned()) return kIllegalAddress;
  state().addresses.free(address, bytes);
  return kSuccess;
}
Error cuMemMap(Pointer address, size_t bytes, size_t offset, tutti::cuda::Allocation handle,
               unsigned long long) {
  if (is_poisoned()) return kIllegalAddress;
  // NOLINT
  const std::lock_guard lock(state().mutex);
  const auto found = state().handles.find(handle);
  if (found == state().handles.end() || offset != 0 || bytes != found->second->bytes)
    return kInvalidValue;
  const bool mapped = state().addresses.map(
      {.at = address, .bytes = bytes, .allocation = found->second, .is_virtual = true, .gpus = 0});
  return mapped ? kSuccess : kOutOfMemory;
}
Error cuMemUnmap(Pointer address, size_t bytes) {
  if (is_poisoned()) return kIllegalAddress;
  for (Pointer next = address; next < address + bytes;) {
    const std::optional<Mapped> mapped = state().addresses.unmap(next);
    if (!mapped) return kInvalidValue;
    next += mapped->bytes;
  }
  return kSuccess;
}
Error cuMemSetAccess(Pointer address, size_t bytes, const Access* access, size_t count) {
  if (is_poisoned()) return kIllegalAddress;
  unsigned gpus = 0;
  for (size_t i = 0; i < count; ++i) gpus |= 1u << access[i].location.id;
  return state().addresses.set_access(address, bytes, gpus) ? kSuccess : kInvalidValue;
}

// ---- Streams ----

Error cuStreamCreate(Stream* made, unsigned) {
  if (is_poisoned()) return kIllegalAddress;
  if (current_gpu() < 0) return kInvalidContext;
  return *made = make_stream(), kSuccess;
}
Error cuStreamDestroy_v2(Stream stream) {
  if (is_poisoned()) return kIllegalAddress;
  destroy_stream(stream);
  return kSuccess;
}
Error cuStreamSynchronize(Stream stream) {
  if (is_poisoned()) return kIllegalAddress;
  StreamThread* thread = thread_of(stream);
  if (thread == nullptr) return kInvalidContext;
  const auto mark = thread->mark();
  while (!mark->wait_a_while())
    if (is_poisoned()) return kIllegalAddress;
  return kSuccess;
}
Error cuStreamQuery(Stream stream) {
  if (is_poisoned()) return kIllegalAddress;
  StreamThread* thread = thread_of(stream);
  if (thread == nullptr) return kInvalidContext;
  return thread->is_idle() ? kSuccess : kNotReady;
}
Error cuStreamGetCtx(Stream stream, Context* context) {
  StreamThread* thread = thread_of(stream);
  if (thread == nullptr) return kInvalidContext;
  return *context = context_of(thread->gpu()), kSuccess;
}
Error cuStreamBeginCapture_v2(Stream stream, int) { return stream->is_capturing = true, kSuccess; }
Error cuStreamEndCapture(Stream stream, void**) { return stream->is_capturing = false, kSuccess; }
Error cuStreamIsCapturing(Stream stream, int* status) {
  return *status = stream->is_capturing ? 1 : 0, kSuccess;
}
Error cuStreamWaitEvent(Stream stream, Event event, unsigned) {
  if (is_poisoned()) return kIllegalAddress;
  StreamThread* thread = thread_of(stream);
  if (thread == nullptr) return kInvalidContext;
  if (event->mark != nullptr) thread->add([mark = event->mark] { mark->wait(); });
  return kSuccess;
}
Error cuStreamWaitValue64_v2(Stream stream, Pointer address, uint64_t value, unsigned) {
  if (is_poisoned()) return kIllegalAddress;
  StreamThread* thread = thread_of(stream);
  if (thread == nullptr) return kInvalidContext;
  if (!state().registered.contains(address, sizeof(value))) return kInvalidValue;
  thread->wait_until(static_cast<const volatile uint64_t*>(at(address)), value);
  return kSuccess;
}
Error cuStreamWriteValue64_v2(Stream stream, Pointer address, uint64_t value, unsigned) {
  if (is_poisoned()) return kIllegalAddress;
  StreamThread* thread = thread_of(stream);
  if (thread == nullptr) return kInvalidContext;
  const bool is_device = state().addresses.is_device(address);
  if (!is_device && !state().registered.contains(address, sizeof(value))) return kInvalidValue;
  std::byte* word = state().addresses.resolve(address, sizeof(value));
  if (word == nullptr) return kInvalidValue;
  thread->add([word, value] { std::atomic_ref(*reinterpret_cast<uint64_t*>(word)).store(value); });
  return kSuccess;
}
Error cuStreamBatchMemOp_v2(Stream stream, unsigned count, StreamStore* stores, unsigned flags) {
  Error error = count == 0 || flags != 0 ? kInvalidValue : kSuccess;
  for (unsigned i = 0; i < count && error == kSuccess; ++i)
    error = stores[i].operation == kStoreWord
                ? cuStreamWriteValue64_v2(stream, stores[i].address, stores[i].value, 0)
                : kInvalidValue;
  return error;
}
Error cuLaunchHostFunc(Stream stream, void (*function)(void*), void* argument) {
  if (is_poisoned()) return kIllegalAddress;
  StreamThread* thread = thread_of(stream);
  if (thread == nullptr) return kInvalidContext;
  thread->add([function, argument] { wait_for_call(), function(argument); });
  return kSuccess;
}
Error cuEventCreate(Event* made, unsigned) {
  if (is_poisoned()) return kIllegalAddress;
  return note(*made = new EventTag(), true), kSuccess;
}
Error cuEventDestroy_v2(Event event) {
  if (is_poisoned()) return kIllegalAddress;
  note(event, false);
  delete event;
  return kSuccess;
}
Error cuEventRecord(Event event, Stream stream) {
  if (is_poisoned()) return kIllegalAddress;
  StreamThread* thread = thread_of(stream);
  if (thread == nullptr) return kInvalidContext;
  event->mark = thread->mark();
  return kSuccess;
}
Error cuEventQuery(Event event) {
  if (is_poisoned()) return kIllegalAddress;
  return event->mark == nullptr || event->mark->is_set() ? kSuccess : kNotReady;
}
Error cuMemcpyAsync(Pointer to, Pointer from, size_t bytes, Stream stream) {
  if (is_poisoned()) return kIllegalAddress;
  StreamThread* thread = thread_of(stream);
  if (thread == nullptr) return kInvalidContext;
  if (bytes == 0) return kSuccess;
  std::byte* target = state().addresses.resolve(to, bytes);
  const std::byte* source = state().addresses.resolve(from, bytes);
  if (target == nullptr || source == nullptr) return kInvalidValue;
  thread->add([target, source, bytes, is_write = state().addresses.is_device(to)] {
    if (is_write) wait_for_write();
    std::memcpy(target, source, bytes);
  });
  return kSuccess;
}

// ---- Kernels ----

Error cuModuleLoadData(Module* made, const void*) {
  if (is_poisoned()) return kIllegalAddress;
  return note(*made = new ModuleTag(), true), kSuccess;
}
Error cuModuleUnload(Module module) {
  if (is_poisoned()) return kIllegalAddress;
  note(module, false);
  delete module;
  return kSuccess;
}
Error cuModuleGetFunction(Function* found, Module, const char* name) {
  if (is_poisoned()) return kIllegalAddress;
  static auto& functions = *new std::map<std::string, FunctionTag>();
  const std::lock_guard lock(state().mutex);
  const Kernel kernel = find_kernel(name);
  if (kernel == nullptr) return kNotFound;
  *found = &functions.try_emplace(name, FunctionTag{kernel}).first->second;
  return kSuccess;
}
Error cuLaunchKernel(Function function, unsigned blocks, unsigned, unsigned, unsigned, unsigned,
                     unsigned, unsigned, Stream stream, void** parameters, void**) {
  if (is_poisoned()) return kIllegalAddress;
  StreamThread* thread = thread_of(stream);
  if (thread == nullptr) return kInvalidContext;
  thread->add([kernel = function->kernel, blocks, gpu = thread->gpu(),
               job = *static_cast<const tutti::CudaJob*>(parameters[0]),
               packs = *static_cast<const size_t*>(parameters[1])] {
    run_kernel(kernel, blocks, job, packs, gpu);
  });
  return kSuccess;
}

}  // extern "C"
#pragma GCC visibility pop
// NOLINTEND(readability-identifier-naming)
