// Memory, and copies and reductions on it: one interface for the host and for CUDA, with one
// contract suite for both.
//
// Work is queued on a Stream, runs in its order and is complete after wait(). The host device does
// the work at once, on the calling thread. Pointers belong to the device that made or imported
// them. Streams are used by one thread at a time; a Device by any.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "daemon/base/status.h"
#include "daemon/cuda/cuda.h"
#include "daemon/device/driver_thread.h"  // IWYU pragma: export
#include "daemon/kernel/kernel.h"
#include "proto/types.h"

namespace tutti {

class Stream {
 public:
  virtual ~Stream() = default;
};

class Event {
 public:
  virtual ~Event() = default;
};

// Owned or imported memory, freed or unmapped with the object. Aligned to 4096 where owned.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual std::byte* data() const = 0;
  virtual size_t bytes() const = 0;
};

// How another process names exported memory: a descriptor on the host; on CUDA an IPC handle, or
// the descriptors of consecutive chunks. Descriptors are borrowed.
struct MemoryHandle {
  struct Chunk {
    int fd = -1;
    size_t bytes = 0;
  };
  int fd = -1;
  std::vector<std::byte> ipc;
  std::vector<Chunk> chunks;
  size_t bytes = 0;
};

struct Reduction {
  size_t count = 0;
  Op op = Op::sum;
  uint32_t divisor = 1;
  bool past_cache = false;  // A hint: the result will not be read soon, and no target is a source.
  std::span<const double> factors = {};  // Of premul_sum: of each source; empty: none.
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;  // "host", "cuda:0 (NVIDIA H200)".

  virtual Result<std::unique_ptr<Buffer>> allocate(size_t bytes) = 0;  // RESOURCE_EXHAUSTED
  virtual Result<MemoryHandle> export_memory(const Buffer& buffer) = 0;
  virtual Result<std::unique_ptr<Buffer>> import_memory(const MemoryHandle& handle) = 0;

  virtual Result<std::unique_ptr<Stream>> make_stream() = 0;
  virtual Result<std::unique_ptr<Event>> record(Stream& stream) = 0;
  virtual Status wait(Stream& stream, const Event& event) = 0;  // Later work waits for the event.
  virtual Status wait(Stream& stream) = 0;                      // The caller waits for all work.

  // Copies between any two regions that this device can reach (a CUDA device: host memory too).
  // They must not overlap.
  virtual Status copy(Stream& stream, void* to, const void* from, size_t bytes) = 0;

  // target = (sources[0] op sources[1] op ...) / divisor, element by element, strictly in this
  // order, into every target (>= 1, all of one type). One pass over memory whatever the number of
  // sources (>= 1) and targets. A target may be one of the sources, exactly; partial overlap is not
  // allowed. `op` mean and premul_sum sum; bitwise ones need targets that are not floating;
  // divisor 1 means no division; others need floating targets. 16-bit floats are accumulated and
  // divided in f32 and rounded once, to nearest even, when stored as 16 bits; sources and targets
  // may mix a 16-bit type with f32. Integers wrap. Bools: sum, max and bor are true where any
  // source is, prod, min and band where all are, bxor where an odd number is; stored as 0 or 1.
  // min/max: a NaN in any source gives NaN. With one source this converts, divides or copies.
  // Factors multiply the sources before, as scale() of kernel.h does: 16-bit floats are rounded.
  // INVALID_ARGUMENT on CUDA devices: values that are not aligned for their type.
  virtual Status reduce(Stream& stream, std::span<const Target> targets,
                        std::span<const Operand> sources, const Reduction& how) = 0;

  // Size of the last-level cache; larger results should be stored past it. SIZE_MAX: unknown.
  virtual size_t cache_bytes() const = 0;
};

std::unique_ptr<Device> make_host_device();

// The first error after which this process can do no more work on its GPUs. By the driver's
// documentation only a new process can; so nothing of the GPUs is freed any more, since the driver
// might wait for ever for work that never ends. Any thread.
class GpuFault {
 public:
  // `on_set` is called once, from inside a call of a device, and must not call its functions.
  // `who`: for the message, as "the worker of host a".
  explicit GpuFault(std::string who = "this process", std::function<void()> on_set = nullptr)
      : who_(std::move(who)), on_set_(std::move(on_set)) {}
  bool is_set() const { return is_set_; }
  Status status() const;  // OK: there was none.
  // `what` says which GPU, what happened to it, and what to do. Later ones change nothing.
  void set(const std::string& what);
  // `on_set` is not called any more.
  void tell_nobody();

 private:
  const std::string who_;
  mutable std::mutex mutex_;
  std::function<void()> on_set_;
  Status status_;
  std::atomic<bool> is_set_ = false;
};

// A GPU: a device whose work runs beside the processor, in order with the work of other processes.
// What orders it are words of 64 bits in host memory that both sides have pinned. Once a GpuFault
// is set by this device, its functions return that and call the driver no more.
class Gpu : public Device {
 public:
  using Device::wait;
  // Later work of the stream waits until the word is `value` or more, as a signed difference.
  // Anyone may store the word, so a stream that waits can always be released.
  virtual Status wait(Stream& stream, const void* word, uint64_t value) = 0;
  struct Store {
    void* word;
    uint64_t value;
  };
  // Stores up to 255 words, in any order, once all earlier work of the stream is done.
  virtual Status store(Stream& stream, std::span<const Store> words) = 0;
  Status store(Stream& stream, void* word, uint64_t value) {
    const Store one{word, value};
    return store(stream, {&one, 1});
  }
  // Calls `then` on a thread of the driver once all earlier work of the stream is done; never, if
  // the GPU fails before. It must not use the device.
  virtual Status call(Stream& stream, std::function<void()> then) = 0;
  virtual Result<bool> is_done(const Event& event) = 0;
  virtual Result<bool> is_done(Stream& stream) = 0;  // All that was queued so far.
  // Reductions queued from now on do nothing if the word, in pinned memory, is not 0 when they
  // start. Null: no such word.
  virtual void set_cancel_word(Stream& stream, const void* word) = 0;

  // For libraries that queue work of their own on a stream of this device.
  virtual cuda::Context context() const = 0;
  virtual cuda::Stream native(Stream& stream) const = 0;

  // Who frees memory that import_memory() refuses when it is mapped, since the driver may wait for
  // all streams then. Otherwise it is freed at once.
  virtual void discard_by(std::function<void(std::shared_ptr<const void>)> discard) = 0;

  // Another one says that the device has failed; sets its GpuFault. Calls the driver no more.
  virtual void give_up(const std::string& what) = 0;

  // Lets work of this device reach the memory of another one. UNAVAILABLE: the machine cannot.
  virtual Status reach(Gpu& peer) = 0;

  // Host memory that the device reaches.
  virtual Result<std::unique_ptr<Buffer>> allocate_pinned(size_t bytes) = 0;
  // Makes host memory such memory for as long as the Buffer lives.
  virtual Result<std::unique_ptr<Buffer>> pin(std::byte* data, size_t bytes) = 0;
};

// A GPU by which it is known in every process: its place in lists differs.
struct GpuName {
  std::string model;
  cuda::Uuid uuid;
  size_t bytes = 0;  // Of its memory.
};
// The GPUs that this process can use, without making a context on any.
Result<std::vector<GpuName>> list_gpus(const cuda::Driver& driver);
// Opens one of them, which makes a context there. UNAVAILABLE, saying why, where there is no such
// GPU, or where Tutti was built without nvcc. `fault` is shared by all GPUs of a process.
Result<std::unique_ptr<Gpu>> make_gpu(
    const cuda::Driver& driver, int index,
    std::shared_ptr<GpuFault> fault = std::make_shared<GpuFault>());

// The GPUs that this process has opened, and what operations use of them. The loop's thread alone.
class GpuSet {
 public:
  // What one operation uses of a GPU. Its memory and streams are used again by later ones.
  struct Lane {
    int gpu = 0;
    std::unique_ptr<Stream> stream;  // Its work does nothing once cancel() was called.
    std::atomic<uint64_t>* cancel_word = nullptr;  // Pinned; the set's.
    std::unique_ptr<Buffer> scratch;               // Null: nothing needed it yet.
  };
  struct Pinned {
    std::byte* data = nullptr;
    size_t bytes = 0;  // A power of two.
  };
  using CancelWords = std::vector<std::atomic<uint64_t>*>;
  // A GPU that is open, with its first lanes, and not the set's yet. Destroyed from the last to the
  // first.
  struct Opened {
    const cuda::Driver* driver = nullptr;
    int number = 0;
    std::string uuid;  // "GPU-...".
    std::unique_ptr<Gpu> gpu;
    std::unique_ptr<Buffer> cancel_page;
    CancelWords cancel_words;  // There; no lane's.
    std::vector<std::unique_ptr<Lane>> lanes;
  };

  explicit GpuSet(const cuda::Driver& driver,
                  std::shared_ptr<GpuFault> fault = std::make_shared<GpuFault>());
  ~GpuSet();
  GpuSet(const GpuSet&) = delete;
  GpuSet& operator=(const GpuSet&) = delete;

  // Opens a GPU, which may take seconds. Any thread. NOT_FOUND: there is none. Otherwise as
  // make_gpu().
  static Result<Opened> prepare(const cuda::Driver& driver, const cuda::Uuid& uuid,
                                const std::shared_ptr<GpuFault>& fault);
  // Makes it one of the set's, which it is not yet: the number by which the set knows it.
  // UNAVAILABLE: it and another one do not reach each other.
  Result<int> add(Opened opened);
  // Both, if it is not open.
  Result<int> open(const cuda::Uuid& uuid);
  // The number of a GPU that is open, by its UUID ("GPU-...").
  std::optional<int> find(const std::string& uuid) const;
  Gpu& gpu(int number) { return *gpus_.at(number); }
  // How many are open.
  size_t size() const { return gpus_.size(); }

  // The GPU has failed, as another one says, who knows it by its UUID ("GPU-..."). Nothing happens
  // if it is not open.
  void give_up(const std::string& uuid, const std::string& what);
  // Asks the driver whether the lanes that operations use have met a fault, which nothing else
  // tells while the processor waits for them.
  void look_for_faults();
  const GpuFault& fault() const { return *fault_; }
  const cuda::Driver& driver() const { return driver_; }

  Result<std::unique_ptr<Lane>> take_lane(int gpu);
  // Reductions on the lane's stream that have not started do nothing. Asks nothing of the driver,
  // so a GPU that is busy or hangs does not delay it.
  static void cancel(Lane& lane) { lane.cancel_word->store(1); }
  // The lane's work must be done; its stream is used again.
  void give_back(std::unique_ptr<Lane> lane);
  // Instead, where its work does not end: nothing of the GPUs is freed any more, and `used`, which
  // it may go on using, is kept until the process ends.
  void abandon(std::unique_ptr<Lane> lane, std::vector<std::shared_ptr<const void>> used);
  bool has_abandoned() const { return has_abandoned_; }
  // At least `bytes` of memory for the lane's work, one piece at a time.
  Result<std::byte*> scratch(Lane& lane, size_t bytes);
  // Frees what the driver gave once no lane is in use, on a thread of its own: to free, the driver
  // may wait for all streams, and lanes wait for ranks, which may wait for this thread. After a
  // fault it is kept until the process ends.
  void free_later(std::shared_ptr<const void> resource);
  // Frees everything, within DriverThread::kEndBound; no GPU can be used afterwards. False: a
  // fault is set, or the GPUs still work, so the driver is left alone and may hold up the process's
  // end: use _Exit().
  bool close();

  // Pinned host memory that all open GPUs reach.
  Result<Pinned> take_pinned(size_t bytes);
  void give_back(const Pinned& pinned) { spare_pinned_[pinned.bytes].push_back(pinned.data); }

 private:
  static constexpr size_t kLeastPinnedBytes = 4096;
  static constexpr size_t kCancelWordBytes = 64;  // A cache line each.
  // Made when a GPU is opened: to make one, the driver may wait for all streams.
  static constexpr size_t kFirstLanes = 4;

  static void add_cancel_words(std::byte* page, CancelWords& words);
  static Status make_first_lanes(Opened& opened);
  // `words` has one for it.
  static Result<std::unique_ptr<Lane>> make_lane(Gpu& device, int gpu, CancelWords& words);
  Status reach_others(Gpu& gpu);
  Status make_cancel_words();

  const cuda::Driver& driver_;
  const std::shared_ptr<GpuFault> fault_;
  std::map<int, std::unique_ptr<Gpu>> gpus_;
  std::map<std::string, int> numbers_;  // By UUID.
  std::set<Lane*> lanes_in_use_;
  std::map<int, std::vector<std::unique_ptr<Lane>>> spare_lanes_;  // By GPU.
  std::vector<std::unique_ptr<Buffer>> pinned_;
  std::map<size_t, std::vector<std::byte*>> spare_pinned_;  // By size.
  CancelWords spare_cancel_words_;
  std::vector<std::shared_ptr<const void>> freed_later_;
  bool has_abandoned_ = false;
  const std::unique_ptr<DriverThread> freeing_;
};

}  // namespace tutti
