#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "daemon/device/cuda_reduce.h"
#include "daemon/device/device.h"
#include "daemon/device/reduce_check.h"

namespace tutti {
namespace {

// Memory with a granule of its own is aligned as Buffer states, and its IPC handle covers nothing
// else.
constexpr size_t kGranule = size_t{2} << 20;

// Destructors cannot report errors. The one they could meet is an earlier fault of the process,
// which a wait has reported.
class CudaStream : public Stream {
 public:
  explicit CudaStream(cudaStream_t stream) : stream_(stream) {}
  ~CudaStream() override { (void)cudaStreamDestroy(stream_); }
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_;
};

class CudaEvent : public Event {
 public:
  explicit CudaEvent(cudaEvent_t event) : event_(event) {}
  ~CudaEvent() override { (void)cudaEventDestroy(event_); }
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_;
};

class CudaBuffer : public Buffer {
 public:
  CudaBuffer(void* data, size_t bytes, bool imported)
      : data_(data), bytes_(bytes), imported_(imported) {}
  ~CudaBuffer() override { (void)(imported_ ? cudaIpcCloseMemHandle(data_) : cudaFree(data_)); }
  std::byte* data() const override { return static_cast<std::byte*>(data_); }
  size_t bytes() const override { return bytes_; }
  bool imported() const { return imported_; }

 private:
  void* data_;
  size_t bytes_;
  bool imported_;
};

cudaStream_t raw(Stream& stream) { return static_cast<CudaStream&>(stream).get(); }

// CUDA's current device belongs to the thread, and any thread may call: each call that depends on
// it sets it first.
class CudaDevice : public Device {
 public:
  CudaDevice(int index, std::string model)
      : index_(index), place_("cuda:" + std::to_string(index)), model_(std::move(model)) {}

  std::string name() const override { return place_ + " (" + model_ + ")"; }

  Result<std::unique_ptr<Buffer>> allocate(size_t bytes) override {
    if (bytes > SIZE_MAX - kGranule) return resource_exhausted(place_ + " has no such memory");
    const size_t granules = std::max<size_t>((bytes + kGranule - 1) / kGranule, 1);
    void* data = nullptr;
    Status status = enter();
    if (status.ok()) status = check(cudaMalloc(&data, granules * kGranule), "allocate");
    if (!status.ok()) return status;
    return std::unique_ptr<Buffer>(std::make_unique<CudaBuffer>(data, bytes, false));
  }

  Result<MemoryHandle> export_memory(const Buffer& buffer) override {
    const auto* ours = dynamic_cast<const CudaBuffer*>(&buffer);
    if (ours == nullptr || ours->imported())
      return failed_precondition("only memory that " + place_ + " allocated can be exported");
    cudaIpcMemHandle_t ipc;
    Status status = enter();
    if (status.ok()) status = check(cudaIpcGetMemHandle(&ipc, ours->data()), "export memory");
    if (!status.ok()) return status;
    const auto* first = reinterpret_cast<const std::byte*>(&ipc);
    return MemoryHandle{.ipc = {first, first + sizeof(ipc)}, .bytes = ours->bytes()};
  }

  // CUDA refuses a handle of the same process, and does not report the size of the memory: the
  // handle's size is trusted.
  Result<std::unique_ptr<Buffer>> import_memory(const MemoryHandle& handle) override {
    cudaIpcMemHandle_t ipc;
    if (handle.ipc.size() != sizeof(ipc))
      return invalid_argument("a CUDA memory handle has " + std::to_string(sizeof(ipc)) +
                              " bytes, not " + std::to_string(handle.ipc.size()));
    std::memcpy(&ipc, handle.ipc.data(), sizeof(ipc));
    void* data = nullptr;
    Status status = enter();
    if (status.ok())
      status =
          check(cudaIpcOpenMemHandle(&data, ipc, cudaIpcMemLazyEnablePeerAccess), "import memory");
    if (!status.ok()) return status;
    return std::unique_ptr<Buffer>(std::make_unique<CudaBuffer>(data, handle.bytes, true));
  }

  Result<std::unique_ptr<Stream>> make_stream() override {
    cudaStream_t stream = nullptr;
    Status status = enter();
    if (status.ok())
      status = check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "make a stream");
    if (!status.ok()) return status;
    return std::unique_ptr<Stream>(std::make_unique<CudaStream>(stream));
  }

  Result<std::unique_ptr<Event>> record(Stream& stream) override {
    cudaEvent_t event = nullptr;
    Status status = enter();
    if (status.ok())
      status = check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "make an event");
    if (!status.ok()) return status;
    std::unique_ptr<Event> owned = std::make_unique<CudaEvent>(event);
    status = check(cudaEventRecord(event, raw(stream)), "record an event");
    if (!status.ok()) return status;
    return Result(std::move(owned));
  }

  Status wait(Stream& stream, const Event& event) override {
    const cudaEvent_t raw_event = static_cast<const CudaEvent&>(event).get();
    return check(cudaStreamWaitEvent(raw(stream), raw_event, 0), "wait for an event");
  }

  Status wait(Stream& stream) override {
    return check(cudaStreamSynchronize(raw(stream)), "finish queued work");
  }

  Status copy(Stream& stream, void* to, const void* from, size_t bytes) override {
    if (bytes == 0) return {};
    Status status = enter();
    if (!status.ok()) return status;
    return check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, raw(stream)), "copy");
  }

  Status reduce(Stream& stream, std::span<const Target> targets, std::span<const Operand> sources,
                const Reduction& how) override {
    Status status = check_reduce(targets, sources, how);
    if (status.ok()) status = enter();
    if (!status.ok()) return status;
    return cuda_reduce(raw(stream), targets, sources, how);
  }

  size_t cache_bytes() const override { return SIZE_MAX; }

  // Peers this device can reach directly; those it cannot are copied to through the host.
  Status open_peers(int count) {
    Status status = enter();
    for (int peer = 0; status.ok() && peer < count; ++peer) {
      int reachable = 0;
      if (peer == index_) continue;
      status = check(cudaDeviceCanAccessPeer(&reachable, index_, peer), "look for peers");
      if (status.ok() && reachable != 0) status = open_peer(peer);
    }
    return status;
  }

 private:
  Status enter() const { return check(cudaSetDevice(index_), "use the device"); }

  Status open_peer(int peer) const {
    const cudaError_t error = cudaDeviceEnablePeerAccess(peer, 0);
    if (error != cudaErrorPeerAccessAlreadyEnabled) return check(error, "reach a peer");
    (void)cudaGetLastError();  // An earlier Device of this process opened it.
    return {};
  }

  Status check(cudaError_t error, const char* what) const {
    if (error == cudaSuccess) return {};
    return cuda_status(error, place_ + " cannot " + what);
  }

  const int index_;
  const std::string place_;
  const std::string model_;
};

Code code_of_cuda(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return Code::resource_exhausted;
    case cudaErrorInvalidValue:
    case cudaErrorInvalidDevicePointer:
    case cudaErrorInvalidResourceHandle:
      return Code::invalid_argument;
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorInitializationError:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorSystemNotReady:
    case cudaErrorDevicesUnavailable:
    case cudaErrorInvalidDevice:
      return Code::unavailable;
    default:
      return Code::internal;
  }
}

Status count_devices(int& count) {
  count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) count = 0;
  return cuda_status(error, "no CUDA device can be used");
}

}  // namespace

Status cuda_status(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return {};
  (void)cudaGetLastError();
  return {code_of_cuda(error), std::string(what) + ": " + cudaGetErrorString(error) + " (" +
                                   cudaGetErrorName(error) + ")"};
}

int cuda_device_count() {
  int count = 0;
  return count_devices(count).ok() ? count : 0;
}

Result<std::unique_ptr<Device>> make_cuda_device(int index) {
  int count = 0;
  Status status = count_devices(count);
  if (!status.ok()) return unavailable(status.message());
  if (index < 0 || index >= count)
    return unavailable("there is no CUDA device " + std::to_string(index) + ", only " +
                       std::to_string(count) + " of them, from 0");
  cudaDeviceProp about;
  status = cuda_status(cudaGetDeviceProperties(&about, index), "cannot look at a CUDA device");
  if (!status.ok()) return unavailable(status.message());
  auto device = std::make_unique<CudaDevice>(index, about.name);
  status = device->open_peers(count);
  if (!status.ok()) return status;
  return std::unique_ptr<Device>(std::move(device));
}

}  // namespace tutti
