// Builds the request of one operation, holds the memory that it needs, and submits it.
#pragma once

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "client/gpu/device_memory.h"
#include "client/operations/group.h"
#include "client/operations/input_copy.h"
#include "client/operations/passing.h"
#include "client/operations/tensor_path.h"
#include "proto/types.h"

namespace tutti::client {

// Memory that takes longer than this to copy or to make is copied and made in steps, between which
// the deadline is looked at.
inline constexpr uint64_t kCopyStepBytes = uint64_t{4} << 20;

// One operation until it is submitted: its request, and the memory that it holds.
class RequestBuilder {
 public:
  // `asynchronous`: where to store the operation; null: the caller waits for it here. `passing`:
  // where to store one whose tensors a thread passes; null: it must not.
  RequestBuilder(Group& group, std::shared_ptr<PendingOp>* asynchronous,
                 std::shared_ptr<Awaitable>* passing)
      : group_(group),
        queue_(*group.queue),
        connection_(*group.connection),
        asynchronous_(asynchronous),
        passing_(passing) {
    if (asynchronous_ != nullptr) shared_ = std::make_shared<PendingOp>();
    request_.timeout_ms = connection_.target().timeout_ms;
    op().resources.blocks.reserve(3);  // One allocation for what most operations hold.
  }

  // Releases what an operation that did not arrive holds. Detaches one that did and that nobody
  // waits for, because an exception was thrown.
  ~RequestBuilder() {
    if (!op().has_arrived) connection_.own_memory().release(op().resources.blocks);
    if (own_.has_arrived && !was_awaited_) queue_.detach(own_);
    if (shared_ != nullptr && shared_->has_arrived) queue_.detach(*shared_);
  }
  RequestBuilder(const RequestBuilder&) = delete;
  RequestBuilder& operator=(const RequestBuilder&) = delete;

  Request& request() { return request_; }
  InputCopy& input_copy() { return input_copy_; }
  void set_options(const tutti_options& given) {
    buffers_stay_ = given.buffers_stay != 0;
    if (given.on_stream != 0) stream_ = static_cast<cuda::Stream>(given.stream);
  }
  // The call as it is known here; what its tensors are is for the caller to say.
  CallShape shape() const {
    CallShape call;
    call.bytes = op().record.bytes;
    call.is_on_gpu = is_on_gpu_;
    call.is_local = queue_.group_board().is_local();
    call.hosts = group_.hosts;
    call.window_bytes = queue_.group_board().window_bytes();
    call.waits = blocks();
    call.stays = buffers_stay_;
    call.has_thread = passing_ != nullptr;
    return call;
  }
  PendingOp& op() { return shared_ != nullptr ? *shared_ : own_; }
  const PendingOp& op() const { return shared_ != nullptr ? *shared_ : own_; }
  bool blocks() const { return asynchronous_ == nullptr; }

  // The deadline counts from now on. Without this, from when the call has to wait.
  void start_clock() {
    WaitClock& clock = op().clock;
    if (clock.is_running()) return;
    clock.timeout = Millis(request_.timeout_ms);
    clock.started = Clock::now();
  }
  TimePoint deadline() const { return op().clock.deadline(); }

  // Takes the caller's memory for the operation: see MemoryInUse::take(). What is on a stream has
  // the stream's order, and a channel's broadcasts are parts of a message, which has the memory.
  Status take(std::span<const MemoryRange> sorted) {
    if (is_on_stream() || group_.is_channel) return {};
    return connection_.memory_in_use().take(sorted,
                                            name_of(static_cast<Collective>(request_.collective)),
                                            blocks() || buffers_stay_ || is_on_gpu_, op().memory);
  }
  // Allocates memory of the segment for as long as the operation needs it; nullptr: there is no
  // room. Much of it takes time, which counts: after the deadline the rest is left to be made when
  // it is touched.
  std::byte* allocate(uint64_t bytes, uint64_t& offset) {
    std::byte* memory = nullptr;
    bool cold = false;
    const bool in_steps = bytes > kCopyStepBytes;
    if (in_steps) start_clock();
    add_block([&]() -> std::optional<uint64_t> {
      memory = connection_.own_memory().allocate(bytes, in_steps ? &cold : nullptr);
      if (memory == nullptr) return std::nullopt;
      return offset = connection_.own_memory().offset_of(memory);
    });
    for (uint64_t done = 0; cold && done < bytes && !op().clock.is_late(); done += kCopyStepBytes)
      connection_.own_memory().populate(memory + done, std::min(kCopyStepBytes, bytes - done));
    return memory;
  }

  // Copies an input to memory of the segment. DEADLINE_EXCEEDED: not all of it until the deadline.
  Status copy_in(std::byte* to, const std::byte* from, uint64_t bytes) {
    if (bytes > kCopyStepBytes) start_clock();
    for (uint64_t done = 0; done < bytes; done += kCopyStepBytes) {
      if (op().clock.is_late()) return too_slow();
      input_copy_(to + done, from + done, std::min(kCopyStepBytes, bytes - done));
    }
    return {};
  }

  // Holds shared memory of the caller for as long as the operation needs it. False: the memory is
  // not in one block of the segment, or is not aligned.
  bool hold(const void* memory, uint64_t bytes, uint64_t& offset) {
    if (!add_block([&] { return connection_.own_memory().hold(memory, bytes); })) return false;
    offset = connection_.own_memory().offset_of(memory);
    return offset % size_of(static_cast<Dtype>(request_.dtype)) == 0;
  }

  // Submits the complete request, and waits for it if the call blocks.
  Status submit(TensorPath::By by) {
    if (by != TensorPath::By::worker) request_.flags |= kRequestBlocking;
    if (Status s = arrive(); !s.ok()) return s;
    if (blocks()) {
      Status outcome = queue_.wait(op(), -1);
      was_awaited_ = own_.has_outcome;
      return outcome;
    }
    *asynchronous_ = std::move(shared_);
    return {};
  }

  void set_on_gpu() { is_on_gpu_ = true; }
  bool is_on_gpu() const { return is_on_gpu_; }
  bool is_on_stream() const { return stream_.has_value(); }
  // Nobody will wait for the operation, which goes on with a stream: its failure is kept.
  void keep_failure() { keeps_failure_ = true; }

  cuda::Stream stream() const { return stream_.value_or(nullptr); }
  // Submits a request whose tensors are in the memory of GPUs. `memory`: some of it, or null.
  // `staged`: null: no tensor is. Gives the words back where the call is refused.
  // `listed`: of a list, whose tensors these are; else empty.
  Status submit_device(DeviceRequest request, std::span<const ListedDeviceTensor> listed,
                       const void* memory, Words words, std::shared_ptr<StagedSides> staged) {
    DeviceMemory& device = *group_.device_memory;
    std::byte* record = allocate(sizeof(DeviceRequest) + listed.size_bytes(), request_.in_offset);
    Status status =
        record != nullptr ? Status() : resource_exhausted("the segment has no room for a record");
    if (status.ok() && staged != nullptr) status = staged->copy_in();
    if (status.ok()) status = device.words().store_ready(stream(), memory, words);
    if (!status.ok()) {
      device.words().give_back(words);
      return refuse(status);
    }
    place(words, request);
    request.factor = input_copy_.factor();
    std::memcpy(record, &request, sizeof(request));
    request_.flags |= kRequestDevice;
    if (!listed.empty()) {
      std::memcpy(record + sizeof(request), listed.data(), listed.size_bytes());
      request_.flags |= kRequestListed;
      request_.records = static_cast<uint32_t>(listed.size());
    }
    if (staged != nullptr && !is_on_stream()) {
      op().memory.last_until_end();
      op().resources.copy_last = [staged] { return staged->copy_out_now(); };
    }
    const bool is_copied_out = staged != nullptr && is_on_stream();  // By the stream.
    op().is_on_gpus = [&words_of = device.words(), words, is_copied_out](PendingOp::OnBoard board) {
      if (board == PendingOp::OnBoard::done) return is_copied_out && !words_of.has_resumed(words);
      return words_of.is_in_use(words, board == PendingOp::OnBoard::failed);
    };
    if (Status s = arrive(); !s.ok()) {
      device.words().retire(words);
      return s;
    }
    words.resumes = is_on_stream();
    *asynchronous_ = shared_;
    const auto poll = [queue = group_.queue, op = shared_] {
      return queue->poll(*op) ? &std::as_const(op->outcome) : nullptr;
    };
    const auto release = [queue = group_.queue, op = shared_] {
      static_cast<void>(queue->release(*op));
    };
    device.watch(
        {poll, release, words, keeps_failure_ ? group_.stream_failure->begin() : nullptr, staged});
    shared_.reset();
    return is_on_stream() ? resume_stream(memory, words, staged.get()) : Status();
  }

  // Submits the request with tensors that pass through a window, and waits for it, or lets the
  // group's thread do so. nullopt: the segment has no room for a window.
  // `staged`: the tensors, and the rows of one with blocks.
  std::optional<Status> run_staged(StagedTensors staged, bool has_in, bool has_out,
                                   TensorPath::By by) {
    const uint64_t window_bytes = queue_.group_board().window_bytes();
    const bool has_rows = staged.rows.part != 0;
    uint64_t offset = 0;
    staged.window =
        allocate(used_window_bytes(staged.rows, window_bytes, op().record.bytes), offset);
    if (staged.window == nullptr) return std::nullopt;
    op().memory.last_until_end();
    op().window.is_staging = true;
    op().window.copied_out = 0;
    request_.flags |= kRequestStaged | kRequestBlocking;
    request_.in_offset = has_in ? offset : 0;
    request_.out_offset = has_out ? offset : 0;
    staged.window_blocks =
        static_cast<uint32_t>(has_rows ? staged.rows.places : window_bytes / kBoardBlockBytes);
    staged.count = request_.count;
    staged.dtype = static_cast<Dtype>(request_.dtype);
    staged.input_copy = input_copy_;
    if (by == TensorPath::By::thread) return start_passing(staged);
    start_clock();
    if (Status s = arrive(); !s.ok()) return s;
    const Status outcome = StagedOp(queue_, op(), staged).run(Backoff(connection_.cores()));
    if (blocks()) return outcome;
    *asynchronous_ = std::move(shared_);
    return Status();
  }

  // Submits a request that fails on all ranks with `why`, and returns that. Without it the other
  // ranks would match this rank's next operation with this one.
  Status refuse(const Status& why) {
    connection_.own_memory().release(std::exchange(op().resources.blocks, {}));
    const std::string message = why.message().substr(0, kMessageBytes - 1);
    Request refused = refusal(why.code());
    if (std::byte* text = connection_.own_memory().allocate(message.size()); text != nullptr) {
      std::memcpy(text, message.data(), message.size());
      refused.in_offset = connection_.own_memory().offset_of(text);
      refused.count = message.size();
    }
    auto op = std::make_shared<PendingOp>();
    if (refused.count != 0) op->resources.blocks.push_back(refused.in_offset);
    queue_.keep_place(refused, op);
    return why;
  }

  // The same after memory has run out: allocates nothing and sends no message.
  void refuse_without_memory() {
    if (op().has_arrived) return;
    connection_.own_memory().release(std::exchange(op().resources.blocks, {}));
    const Status refused = queue_.submit(refusal(Code::resource_exhausted), own_);
    if (!refused.ok()) connection_.mark_lost(refused);  // The order of operations is.
  }

 private:
  // Submits the complete request. Where no slot is free until its deadline, the call fails and
  // keeps its place in the order.
  Status arrive() {
    Status arrived = queue_.submit(request_, op());
    const bool is_given_up = arrived.code() == Code::deadline_exceeded && connection_.usable().ok();
    return is_given_up ? refuse(arrived) : arrived;
  }

  Status too_slow() const {
    return deadline_exceeded("to copy the tensor to shared memory took all of the " +
                             std::to_string(request_.timeout_ms) +
                             " ms; give it more, or pass memory of tutti_alloc()");
  }

  // What the stream does when the operation has ended.
  Status resume_stream(const void* memory, const Words& words, StagedSides* staged) {
    StreamWords& device = group_.device_memory->words();
    Status status = device.wait_for_done(stream(), memory, words);
    if (status.ok() && staged != nullptr) status = staged->copy_out();
    return status.ok() ? device.store_resumed(stream(), memory, words) : status;
  }

  // Submits the request, and lets the group's thread pass the tensors.
  Status start_passing(const StagedTensors& staged) {
    auto passing = std::make_shared<Passing>(group_.connection, group_.queue, shared_, staged);
    std::function<void()> task = [passing] { passing->run(); };
    start_clock();
    if (Status s = arrive(); !s.ok()) return s;
    shared_.reset();
    if (!group_.passer->add(std::move(task)).ok()) passing->run();  // Without a thread: here.
    *passing_ = std::move(passing);
    return {};
  }

  Request refusal(Code code) const {
    Request refused{};
    refused.collective = request_.collective;
    refused.flags = kRequestRefused | kRequestBlocking;
    refused.timeout_ms = request_.timeout_ms;
    refused.root = static_cast<uint32_t>(code);
    return refused;
  }

  // Adds the block that `get` returns. Makes room for it first, so that no block is lost if memory
  // runs out.
  template <class Get>
  bool add_block(const Get& get) {
    std::vector<uint64_t>& blocks = op().resources.blocks;
    blocks.push_back(0);
    const std::optional<uint64_t> block = get();
    if (block)
      blocks.back() = *block;
    else
      blocks.pop_back();
    return block.has_value();
  }

  Group& group_;
  OpQueue& queue_;
  Connection& connection_;
  std::shared_ptr<PendingOp>* const asynchronous_;
  std::shared_ptr<Awaitable>* const passing_;
  bool buffers_stay_ = false;
  bool keeps_failure_ = false;
  bool is_on_gpu_ = false;
  bool was_awaited_ = false;  // Until its outcome: the queue has forgotten it.
  std::optional<cuda::Stream> stream_;
  std::shared_ptr<PendingOp> shared_;
  PendingOp own_;
  Request request_{};
  InputCopy input_copy_;
};

}  // namespace tutti::client
