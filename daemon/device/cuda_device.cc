#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "daemon/device/cuda_context.h"
#include "daemon/device/cuda_job.h"
#include "daemon/device/cuda_kernels.h"
#include "daemon/device/device.h"
#include "daemon/device/reduce_check.h"

namespace tutti {
namespace {

// Memory with a granule of its own is aligned as Buffer states, and its IPC handle covers nothing
// else.
constexpr size_t kGranule = size_t{2} << 20;
constexpr size_t kBlocksMax = size_t{1} << 16;  // Beyond these each thread strides on.

cuda::Pointer address_of(const void* memory) { return reinterpret_cast<cuda::Pointer>(memory); }
// NOLINTNEXTLINE(performance-no-int-to-ptr): the driver's addresses are numbers.
void* memory_at(cuda::Pointer address) { return reinterpret_cast<void*>(address); }

class CudaStream : public Stream {
 public:
  CudaStream(ContextPtr context, cuda::Stream stream)
      : context_(std::move(context)), stream_(stream) {}
  // After a fault the place is not given back: kernels that run may use it.
  ~CudaStream() override {
    context_->free_by([&](const cuda::Driver& driver) {
      driver.stream_destroy(stream_);
      if (place.at != 0) context_->places.give_back(place);
    });
  }
  cuda::Stream get() const { return stream_; }
  void let_cancel(CudaJob& job) {
    job.cancelled = cancelled;
    job.verdict = static_cast<CudaVerdict*>(memory_at(place.at));
    job.launch = ++place.launches;
  }
  VerdictPlaces::Place place;
  const uint64_t* cancelled = nullptr;

 private:
  const ContextPtr context_;
  const cuda::Stream stream_;
};

class CudaEvent : public Event {
 public:
  CudaEvent(ContextPtr context, cuda::Event event) : context_(std::move(context)), event_(event) {}
  ~CudaEvent() override {
    context_->free_by([&](const cuda::Driver& driver) { driver.event_destroy(event_); });
  }
  cuda::Event get() const { return event_; }

 private:
  const ContextPtr context_;
  const cuda::Event event_;
};

// Memory, and what to do with it at last.
class CudaBuffer : public Buffer {
 public:
  using Free = std::function<void(const cuda::Driver&)>;
  CudaBuffer(ContextPtr context, void* data, size_t bytes, bool exportable, Free free)
      : context_(std::move(context)),
        data_(static_cast<std::byte*>(data)),
        bytes_(bytes),
        exportable_(exportable),
        free_(std::move(free)) {}
  ~CudaBuffer() override { context_->free_by(free_); }
  std::byte* data() const override { return data_; }
  size_t bytes() const override { return bytes_; }
  bool exportable() const { return exportable_; }

 private:
  const ContextPtr context_;
  std::byte* const data_;
  const size_t bytes_;
  const bool exportable_;
  const Free free_;
};

cuda::Stream raw(Stream& stream) { return static_cast<CudaStream&>(stream).get(); }

void run_and_delete(void* function) {
  const std::unique_ptr<std::function<void()>> then(static_cast<std::function<void()>*>(function));
  (*then)();
}

bool aligned(const void* data, Dtype dtype, int width) {
  const size_t alignment = std::min<size_t>(size_of(dtype) * static_cast<size_t>(width), 16);
  return address_of(data) % alignment == 0;
}

bool all_aligned(const CudaJob& job, int width) {
  return std::all_of(job.targets, job.targets + job.target_count,
                     [&](const Target& t) { return aligned(t.data, t.dtype, width); }) &&
         std::all_of(job.sources, job.sources + job.source_count,
                     [&](const Operand& s) { return aligned(s.data, s.dtype, width); });
}

Status check_aligned(std::span<const Target> targets, std::span<const Operand> sources) {
  const auto is_aligned = [](const auto& side) { return aligned(side.data, side.dtype, 1); };
  if (std::ranges::all_of(targets, is_aligned) && std::ranges::all_of(sources, is_aligned))
    return {};
  return invalid_argument("a CUDA device reduces values that are aligned for their type");
}

// The kernel for a reduction, and the job as that kernel takes it.
CudaKernel choose(CudaJob& job, Op op, bool has_factors) {
  const Dtype dtype = job.targets[0].dtype;
  const bool sums = op == Op::mean || (op == Op::premul_sum && !has_factors);
  job.op = sums ? Op::sum : op;
  if (dtype == Dtype::boolean) {
    // True where one is (sum, max and bor), where all are (prod, min and band), or where an odd
    // number is (bxor). As numbers 0 and 1 they are combined by their bits.
    const bool all = op == Op::prod || op == Op::min || op == Op::band;
    if (op != Op::bxor) job.op = all ? Op::band : Op::bor;
  } else if (is_bitwise(op)) {
    job.count *= size_of(dtype);  // Of bits the width of a value does not matter.
    for (uint32_t i = 0; i < job.target_count; ++i) job.targets[i].dtype = Dtype::u8;
    for (uint32_t i = 0; i < job.source_count; ++i) job.sources[i].dtype = Dtype::u8;
    return kCudaBits;
  }
  CudaKernel kernel = cuda_kernel(accumulator_of(dtype));
  const auto is_f32 = [](const auto& side) { return side.dtype == Dtype::f32; };
  if (is_f32(job.targets[0]) && std::all_of(job.sources, job.sources + job.source_count, is_f32))
    kernel.width = kCudaF32Width;
  return kernel;
}

// The context is made current for each call, because it belongs to the thread and any thread may
// call.
class CudaDevice : public Gpu {
 public:
  CudaDevice(ContextPtr context, int index, const GpuName& name)
      : context_(std::move(context)),
        driver_(context_->driver),
        place_("cuda:" + std::to_string(index)),
        model_(name.model),
        title_("GPU " + std::to_string(index) + " (" + model_ + ", " + cuda::text_of(name.uuid) +
               ")") {}
  ~CudaDevice() override {
    if (module_ == nullptr) return;
    context_->free_by([&](const cuda::Driver& driver) { driver.module_unload(module_); });
  }

  std::string name() const override { return place_ + " (" + model_ + ")"; }

  Status load_kernels() {
    const std::span<const char> kernels = cuda_kernels();
    const char nothing[1] = {};
    const char* image = kernels.empty() ? nothing : kernels.data();
    const cuda::Error error = in_context([&] { return driver_.module_load_data(&module_, image); });
    if (error != cuda::kSuccess && kernels.empty())
      return unavailable(
          "this build of Tutti has no CUDA kernels; build it where nvcc is found, "
          "with -DTUTTI_CUDA=ON");
    if (error != cuda::kSuccess) return check(error, "load its kernels");
    // All now: the driver loads a kernel when it is first asked for it, and may wait for all
    // streams of the context then, which wait for ranks.
    Status found = find_kernel(kCudaBits);
    for (int dtype = 0; dtype < kDtypes && found.ok(); ++dtype)
      found = find_kernel(cuda_kernel(static_cast<Dtype>(dtype)));
    return found;
  }

  Status reach(Gpu& peer) override {
    const PrimaryContext& other = *static_cast<CudaDevice&>(peer).context_;
    int reachable = 0;
    const cuda::Error asked =
        driver_.device_can_access_peer(&reachable, context_->device, other.device);
    if (asked != cuda::kSuccess) return check(asked, "look for peers");
    if (reachable == 0)
      return unavailable(title_ + " does not reach the memory of " +
                         static_cast<CudaDevice&>(peer).title_ +
                         "; give the job's ranks of this host one GPU, or such as nvidia-smi topo "
                         "-p2p r shows to reach each other");
    const cuda::Error error =
        in_context([&] { return driver_.ctx_enable_peer_access(other.handle, 0); });
    return error == cuda::kPeerAccessAlreadyEnabled ? Status() : check(error, "reach a peer");
  }

  // ---- Memory ----

  Result<std::unique_ptr<Buffer>> allocate(size_t bytes) override {
    if (bytes > SIZE_MAX - kGranule) return resource_exhausted(place_ + " has no such memory");
    const size_t granules = std::max<size_t>((bytes + kGranule - 1) / kGranule, 1);
    cuda::Pointer data = 0;
    const cuda::Error error =
        in_context([&] { return driver_.mem_alloc(&data, granules * kGranule); });
    if (error != cuda::kSuccess) return check(error, "allocate");
    return buffer(memory_at(data), bytes, true,
                  [data](const cuda::Driver& driver) { driver.mem_free(data); });
  }

  Result<std::unique_ptr<Buffer>> allocate_pinned(size_t bytes) override {
    void* data = nullptr;
    const cuda::Error error = in_context([&] {
      return driver_.mem_host_alloc(&data, std::max<size_t>(bytes, 1),
                                    cuda::kHostPortable | cuda::kHostDeviceMap);
    });
    if (error != cuda::kSuccess) return check(error, "allocate pinned memory");
    return buffer(data, bytes, false,
                  [data](const cuda::Driver& driver) { driver.mem_free_host(data); });
  }

  Result<std::unique_ptr<Buffer>> pin(std::byte* data, size_t bytes) override {
    const cuda::Error error = in_context([&] {
      return driver_.mem_host_register(data, bytes, cuda::kHostPortable | cuda::kHostDeviceMap);
    });
    if (error != cuda::kSuccess) return check(error, "pin host memory");
    return buffer(data, bytes, false,
                  [data](const cuda::Driver& driver) { driver.mem_host_unregister(data); });
  }

  Result<MemoryHandle> export_memory(const Buffer& exported) override {
    const auto* ours = dynamic_cast<const CudaBuffer*>(&exported);
    if (ours == nullptr || !ours->exportable())
      return failed_precondition("only memory that " + place_ + " allocated can be exported");
    cuda::IpcHandle ipc{};
    const cuda::Error error =
        in_context([&] { return driver_.ipc_get_mem_handle(&ipc, address_of(ours->data())); });
    if (error != cuda::kSuccess) return check(error, "export memory");
    const auto* first = reinterpret_cast<const std::byte*>(&ipc);
    return MemoryHandle{.ipc = {first, first + sizeof(ipc)}, .bytes = ours->bytes()};
  }

  Result<std::unique_ptr<Buffer>> import_memory(const MemoryHandle& handle) override {
    return handle.chunks.empty() ? import_ipc(handle) : import_chunks(handle);
  }

  // ---- Order ----

  Result<std::unique_ptr<Stream>> make_stream() override {
    cuda::Stream stream = nullptr;
    cuda::Error error =
        in_context([&] { return driver_.stream_create(&stream, cuda::kStreamNonBlocking); });
    if (error != cuda::kSuccess) return check(error, "make a stream");
    auto owned = std::make_unique<CudaStream>(context_, stream);
    std::optional<VerdictPlaces::Place> place = context_->places.take();
    for (; !place; place = context_->places.take()) {
      error = in_context([&] { return add_places(stream); });
      if (error != cuda::kSuccess) return check(error, "allocate for streams");
    }
    owned->place = *place;
    return std::unique_ptr<Stream>(std::move(owned));
  }

  Result<std::unique_ptr<Event>> record(Stream& stream) override {
    cuda::Event event = nullptr;
    cuda::Error error =
        in_context([&] { return driver_.event_create(&event, cuda::kEventDisableTiming); });
    if (error != cuda::kSuccess) return check(error, "make an event");
    std::unique_ptr<Event> owned = std::make_unique<CudaEvent>(context_, event);
    error = in_context([&] { return driver_.event_record(event, raw(stream)); });
    if (error != cuda::kSuccess) return check(error, "record an event");
    return Result(std::move(owned));
  }

  Status wait(Stream& stream, const Event& event) override {
    const cuda::Event awaited = static_cast<const CudaEvent&>(event).get();
    return check(in_context([&] { return driver_.stream_wait_event(raw(stream), awaited, 0); }),
                 "wait for an event");
  }

  Status wait(Stream& stream) override {
    return check(in_context([&] { return driver_.stream_synchronize(raw(stream)); }),
                 "finish queued work");
  }

  Status wait(Stream& stream, const void* word, uint64_t value) override {
    return check(in_context([&] {
                   return driver_.stream_wait_value(raw(stream), device_address(word), value,
                                                    cuda::kWaitGreaterOrEqual);
                 }),
                 "wait for a word");
  }

  using Gpu::store;
  Status store(Stream& stream, std::span<const Store> words) override {
    std::vector<cuda::StreamStore> stores;
    const cuda::Error error = in_context([&] {
      for (const Store& store : words)
        stores.push_back({.address = device_address(store.word), .value = store.value});
      return driver_.stream_batch_mem_op(raw(stream), static_cast<unsigned>(stores.size()),
                                         stores.data(), 0);
    });
    return check(error, "store words");
  }

  Status call(Stream& stream, std::function<void()> then) override {
    auto owned = std::make_unique<std::function<void()>>(std::move(then));
    const cuda::Error error = in_context(
        [&] { return driver_.launch_host_func(raw(stream), run_and_delete, owned.get()); });
    if (error == cuda::kSuccess) static_cast<void>(owned.release());
    return check(error, "call a function");
  }

  Result<bool> is_done(const Event& event) override {
    const cuda::Event asked = static_cast<const CudaEvent&>(event).get();
    const cuda::Error error = in_context([&] { return driver_.event_query(asked); });
    if (error == cuda::kNotReady) return false;
    if (error != cuda::kSuccess) return check(error, "finish queued work");
    return true;
  }

  Result<bool> is_done(Stream& stream) override {
    const cuda::Error error = in_context([&] { return driver_.stream_query(raw(stream)); });
    if (error == cuda::kNotReady) return false;
    if (error != cuda::kSuccess) return check(error, "finish queued work");
    return true;
  }

  cuda::Context context() const override { return context_->handle; }
  cuda::Stream native(Stream& stream) const override { return raw(stream); }

  void discard_by(std::function<void(std::shared_ptr<const void>)> discard) override {
    discard_ = std::move(discard);
  }

  void give_up(const std::string& what) override {
    context_->sticky = cuda::kDeviceUnavailable;
    context_->fault->set(what);
  }

  void set_cancel_word(Stream& stream, const void* word) override {
    cuda::Pointer address = 0;
    if (word != nullptr) in_context([&] { return address = device_address(word), cuda::kSuccess; });
    static_cast<CudaStream&>(stream).cancelled = static_cast<const uint64_t*>(memory_at(address));
  }

  // ---- Work ----

  Status copy(Stream& stream, void* to, const void* from, size_t bytes) override {
    if (bytes == 0) return {};
    return check(in_context([&] {
                   return driver_.memcpy_async(address_of(to), address_of(from), bytes,
                                               raw(stream));
                 }),
                 "copy");
  }

  Status reduce(Stream& stream, std::span<const Target> targets, std::span<const Operand> sources,
                const Reduction& how) override {
    if (Status s = check_reduce(targets, sources, how); !s.ok()) return s;
    if (how.count == 0) return {};
    if (Status s = check_aligned(targets, sources); !s.ok()) return s;
    if (sources.size() > kCudaSourcesMax || targets.size() > kCudaTargetsMax)
      return invalid_argument("a CUDA device reduces at most " + std::to_string(kCudaSourcesMax) +
                              " sources into " + std::to_string(kCudaTargetsMax) +
                              " targets at once, not " + std::to_string(sources.size()) + " into " +
                              std::to_string(targets.size()));
    CudaJob job{};
    std::ranges::copy(targets, job.targets);
    std::ranges::copy(sources, job.sources);
    std::ranges::copy(how.factors, job.factors);
    job.target_count = static_cast<uint32_t>(targets.size());
    job.source_count = static_cast<uint32_t>(sources.size());
    job.count = how.count;
    job.divisor = how.divisor;
    static_cast<CudaStream&>(stream).let_cancel(job);
    return launch(raw(stream), job, choose(job, how.op, !how.factors.empty()));
  }

  size_t cache_bytes() const override { return SIZE_MAX; }

 private:
  template <class Function>
  cuda::Error in_context(const Function& function) const {
    if (const cuda::Error lost = context_->sticky; lost != cuda::kSuccess) return lost;
    const cuda::Current current(driver_, context_->handle);
    return current.error() != cuda::kSuccess ? current.error() : function();
  }

  // The stream has no work yet.
  cuda::Error add_places(cuda::Stream stream) const {
    static constexpr std::array<std::byte, VerdictPlaces::kPageBytes> kZeros = {};
    cuda::Pointer page = 0;
    cuda::Error error = driver_.mem_alloc(&page, kZeros.size());
    if (error != cuda::kSuccess) return error;
    error = driver_.memcpy_async(page, address_of(kZeros.data()), kZeros.size(), stream);
    if (error == cuda::kSuccess) error = driver_.stream_synchronize(stream);
    error == cuda::kSuccess ? context_->places.add(page) : void(driver_.mem_free(page));
    return error;
  }

  Status check(cuda::Error error, const char* what) const {
    if (error == cuda::kSuccess) return {};
    if (context_->sticky != cuda::kSuccess) return context_->fault->status();
    if (cuda::is_sticky(error)) return note_fault(error);
    return cuda::status_of(driver_, error, place_ + " cannot " + what);
  }

  Status note_fault(cuda::Error error) const {
    context_->sticky = error;
    context_->fault->set(cuda::status_of(driver_, error, title_).message() +
                         "; join again, which starts a new worker; if that ends as well, look for "
                         "this GPU's XIDs in the kernel's log");
    return context_->fault->status();
  }

  std::unique_ptr<Buffer> buffer(void* data, size_t bytes, bool exportable,
                                 CudaBuffer::Free free) const {
    return std::make_unique<CudaBuffer>(context_, data, bytes, exportable, std::move(free));
  }

  // For a word in pinned memory; that of device memory is its own.
  cuda::Pointer device_address(const void* word) const {
    cuda::Pointer address = 0;
    const bool is_pinned =
        driver_.mem_host_get_device_pointer(&address, const_cast<void*>(word), 0) == cuda::kSuccess;
    return is_pinned ? address : address_of(word);
  }

  // CUDA refuses a handle of the same process. The handle's size is another process's word: the
  // driver knows better, where it says.
  Result<std::unique_ptr<Buffer>> import_ipc(const MemoryHandle& handle) {
    cuda::IpcHandle ipc{};
    if (handle.ipc.size() != sizeof(ipc))
      return invalid_argument("a CUDA memory handle has " + std::to_string(sizeof(ipc)) +
                              " bytes, not " + std::to_string(handle.ipc.size()));
    std::memcpy(&ipc, handle.ipc.data(), sizeof(ipc));
    cuda::Pointer data = 0;
    const cuda::Error error = in_context(
        [&] { return driver_.ipc_open_mem_handle(&data, ipc, cuda::kIpcLazyPeerAccess); });
    if (error != cuda::kSuccess) return check(error, "import memory");
    auto made = buffer(memory_at(data), handle.bytes, false,
                       [data](const cuda::Driver& driver) { driver.ipc_close_mem_handle(data); });
    cuda::Pointer base = 0;
    size_t bytes = 0;
    const bool is_known = in_context([&] {
                            return driver_.mem_get_address_range(&base, &bytes, data);
                          }) == cuda::kSuccess;
    if (is_known && bytes - (data - base) < handle.bytes)
      return refuse(std::move(made),
                    invalid_argument("the memory has " + std::to_string(bytes) + " bytes, not " +
                                     std::to_string(handle.bytes)));
    return Result(std::move(made));
  }

  // Maps the chunks one behind the other. The mapping keeps them alive, not the descriptors.
  Result<std::unique_ptr<Buffer>> import_chunks(const MemoryHandle& handle) {
    size_t bytes = 0;
    for (const MemoryHandle::Chunk& chunk : handle.chunks) bytes += chunk.bytes;
    if (bytes < handle.bytes) return invalid_argument("the chunks are smaller than the memory");
    cuda::Pointer base = 0;
    cuda::Error error =
        in_context([&] { return driver_.mem_address_reserve(&base, bytes, 0, 0, 0); });
    if (error != cuda::kSuccess) return check(error, "reserve addresses");
    size_t mapped = 0;
    for (const MemoryHandle::Chunk& chunk : handle.chunks) {
      error = in_context([&] { return map_chunk(base + mapped, chunk); });
      if (error != cuda::kSuccess) break;
      mapped += chunk.bytes;
    }
    const std::vector<cuda::Access> access = access_of_all();
    if (error == cuda::kSuccess)
      error = in_context(
          [&] { return driver_.mem_set_access(base, bytes, access.data(), access.size()); });
    auto made = buffer(memory_at(base), handle.bytes, false,
                       [base, bytes, mapped, handle](const cuda::Driver& driver) {
                         size_t at = 0;
                         for (const MemoryHandle::Chunk& chunk : handle.chunks) {
                           if (at < mapped) driver.mem_unmap(base + at, chunk.bytes);
                           at += chunk.bytes;
                         }
                         driver.mem_address_free(base, bytes);
                       });
    if (error != cuda::kSuccess) return refuse(std::move(made), check(error, "import memory"));
    return Result(std::move(made));
  }

  Status refuse(std::unique_ptr<Buffer> mapped, Status why) const {
    if (discard_) discard_(std::move(mapped));
    return why;
  }

  // For this GPU and all that reach its memory, also those that no rank uses yet: what peers are
  // enabled later does not extend to mapped chunks.
  std::vector<cuda::Access> access_of_all() const {
    std::vector<cuda::Access> all;
    int count = 0;
    driver_.device_get_count(&count);
    for (int ordinal = 0; ordinal < count; ++ordinal) {
      cuda::DeviceId device = 0;
      int reaches = 0;
      if (driver_.device_get(&device, ordinal) != cuda::kSuccess) continue;
      if (device != context_->device)
        driver_.device_can_access_peer(&reaches, device, context_->device);
      if (device == context_->device || reaches != 0)
        all.push_back({{cuda::kLocationDevice, device}, cuda::kAccessReadWrite});
    }
    return all;
  }

  cuda::Error map_chunk(cuda::Pointer at, const MemoryHandle::Chunk& chunk) const {
    cuda::Allocation allocation = 0;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): so the driver takes descriptors.
    void* descriptor = reinterpret_cast<void*>(static_cast<intptr_t>(chunk.fd));
    const cuda::Error imported =
        driver_.mem_import_from_shareable_handle(&allocation, descriptor, cuda::kHandleDescriptor);
    if (imported != cuda::kSuccess) return imported;
    const cuda::Error error = driver_.mem_map(at, chunk.bytes, 0, allocation, 0);
    driver_.mem_release(allocation);
    return error;
  }

  Status find_kernel(const CudaKernel& kernel) {
    return check(in_context([&] {
                   return driver_.module_get_function(&kernels_[kernel.name], module_, kernel.name);
                 }),
                 "find a kernel");
  }

  Status launch(cuda::Stream stream, CudaJob& job, const CudaKernel& kernel) {
    job.width = static_cast<uint8_t>(kernel.width);
    const auto width = static_cast<size_t>(kernel.width);
    size_t packs = all_aligned(job, kernel.width) ? job.count / width : 0;
    const size_t work = std::max(packs, job.count - packs * width);
    const size_t each = packs > kCudaSinglePacks ? cuda_packs_each(kernel.width) : 1;
    const size_t tile = kCudaThreads * each;
    const auto blocks = static_cast<unsigned>(std::min((work + tile - 1) / tile, kBlocksMax));
    std::array<void*, 2> arguments = {&job, &packs};
    return check(in_context([&] {
                   return driver_.launch_kernel(kernels_.find(kernel.name)->second, blocks, 1, 1,
                                                kCudaThreads, 1, 1, 0, stream, arguments.data(),
                                                nullptr);
                 }),
                 "reduce");
  }

  const ContextPtr context_;
  const cuda::Driver& driver_;
  const std::string place_;
  const std::string model_;
  const std::string title_;  // For people, who know GPUs by their UUIDs.
  cuda::Module module_ = nullptr;
  std::function<void(std::shared_ptr<const void>)> discard_;
  std::map<std::string, cuda::Function, std::less<>> kernels_;  // By name.
};

Result<ContextPtr> open_context(const cuda::Driver& driver, int index,
                                std::shared_ptr<GpuFault> fault) {
  cuda::DeviceId device = 0;
  cuda::Context context = nullptr;
  cuda::Error error = driver.device_get(&device, index);
  if (error == cuda::kSuccess) error = driver.device_primary_ctx_retain(&context, device);
  const std::string what = "GPU " + std::to_string(index) + " cannot be opened";
  if (error != cuda::kSuccess) return unavailable(cuda::status_of(driver, error, what).message());
  return ContextPtr(std::make_shared<PrimaryContext>(driver, device, context, std::move(fault)));
}

}  // namespace

Result<std::vector<GpuName>> list_gpus(const cuda::Driver& driver) {
  int count = 0;
  const cuda::Error error = driver.device_get_count(&count);
  if (error != cuda::kSuccess)
    return unavailable(cuda::status_of(driver, error, "no GPU can be used").message());
  std::vector<GpuName> gpus(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    GpuName& gpu = gpus[static_cast<size_t>(i)];
    cuda::DeviceId device = 0;
    std::array<char, 128> model{};
    cuda::Error asked = driver.device_get(&device, i);
    if (asked == cuda::kSuccess)
      asked = driver.device_get_name(model.data(), static_cast<int>(model.size()) - 1, device);
    if (asked == cuda::kSuccess) asked = driver.device_get_uuid(&gpu.uuid, device);
    if (asked == cuda::kSuccess) asked = driver.device_total_mem(&gpu.bytes, device);
    if (asked != cuda::kSuccess)
      return cuda::status_of(driver, asked, "cannot look at GPU " + std::to_string(i));
    gpu.model = model.data();
  }
  return gpus;
}

Result<std::unique_ptr<Gpu>> make_gpu(const cuda::Driver& driver, int index,
                                      std::shared_ptr<GpuFault> fault) {
  const Result<std::vector<GpuName>> gpus = list_gpus(driver);
  if (!gpus.ok()) return gpus.status();
  if (index < 0 || index >= static_cast<int>(gpus->size()))
    return unavailable("there is no GPU " + std::to_string(index) + ", only " +
                       std::to_string(gpus->size()) + " of them, from 0");
  Result<ContextPtr> context = open_context(driver, index, std::move(fault));
  if (!context.ok()) return context.status();
  auto gpu = std::make_unique<CudaDevice>(*context, index, (*gpus)[static_cast<size_t>(index)]);
  if (Status loaded = gpu->load_kernels(); !loaded.ok()) return loaded;
  return std::unique_ptr<Gpu>(std::move(gpu));
}

}  // namespace tutti
