#include "client/submission.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "client/options.h"
#include "client/passing.h"
#include "daemon/base/signature.h"
#include "daemon/base/strategy.h"
#include "proto/types.h"

namespace tutti::client {
namespace {

// In groups on one host, tensors of at most this size are copied as a whole.
constexpr uint64_t kCopiedBytesMax = 2 * kBoardBlockBytes;
// And where the caller does not wait, tensors of at most this size: to wake a thread costs more.
constexpr uint64_t kUnpassedBytesMax = 8 * kBoardBlockBytes;

const std::byte* bytes_at(const void* memory) { return static_cast<const std::byte*>(memory); }
std::byte* bytes_at(void* memory) { return static_cast<std::byte*>(memory); }

Status read_options(const tutti_options* options, Request& request, tutti_options& given) {
  constexpr size_t kLeast = offsetof(tutti_options, timeout_ms) + sizeof(given.timeout_ms);
  if (Status s = read_sized(options, kLeast, "tutti_defaults()", given); !s.ok()) return s;
  if (given.timeout_ms > 0) request.timeout_ms = static_cast<uint32_t>(given.timeout_ms);
  if (given.strategy == nullptr) return {};
  const Result<Strategies> strategies = parse_strategies(given.strategy);
  if (!strategies.ok()) return strategies.status();
  request.local_strategy = packed(strategies->local);
  request.global_strategy = packed(strategies->global);
  return {};
}

Status fill(const tutti_group& group, const CollectiveArgs& op, Request& request) {
  request.collective = static_cast<uint8_t>(op.collective);
  if (op.root < 0 || static_cast<size_t>(op.root) >= group.ranks.size())
    return invalid_argument("root " + std::to_string(op.root) + " is no rank of a group of " +
                            std::to_string(group.ranks.size()));
  if (static_cast<uint32_t>(op.dtype) >= kDtypes)
    return invalid_argument("unknown dtype " + std::to_string(op.dtype));
  if (static_cast<uint32_t>(op.op) >= kOps)
    return invalid_argument("unknown op " + std::to_string(op.op));
  request.dtype = static_cast<uint8_t>(op.dtype);
  request.op = static_cast<uint8_t>(op.op);
  request.root = static_cast<uint32_t>(op.root);
  request.count = op.count;
  return {};
}

// One operation until it is submitted: its request, and the memory that it holds.
class Submission {
 public:
  // `asynchronous`: where to store the operation; null: the caller waits for it here. `passing`:
  // where to store one whose tensors a thread passes; null: it must not.
  Submission(tutti_group& group, std::shared_ptr<PendingOp>* asynchronous,
             std::shared_ptr<Awaitable>* passing)
      : group_(group),
        queue_(*group.queue),
        connection_(*group.connection),
        asynchronous_(asynchronous),
        passing_(passing) {
    if (asynchronous_ != nullptr) shared_ = std::make_shared<PendingOp>();
    request_.timeout_ms = connection_.target().timeout_ms;
    op().blocks.reserve(3);  // One allocation for what most operations hold.
    if (blocks()) request_.flags = kRequestBlocking;
  }

  // Releases what an operation that did not arrive holds. Detaches one that did and that nobody
  // waits for, because an exception was thrown.
  ~Submission() {
    if (!op().has_arrived) connection_.release(op().blocks);
    if (own_.has_arrived) queue_.detach(own_);
    if (shared_ != nullptr && shared_->has_arrived) queue_.detach(*shared_);
  }
  Submission(const Submission&) = delete;
  Submission& operator=(const Submission&) = delete;

  Request& request() { return request_; }
  InputCopy& input_copy() { return input_copy_; }
  void set_buffers_stay(bool stay) { buffers_stay_ = stay; }
  // Whether large tensors may be staged: by the caller, who waits here, or by a thread.
  bool may_stage() const {
    return blocks() || (passing_ != nullptr && buffers_stay_ && op().bytes > kUnpassedBytesMax);
  }
  PendingOp& op() { return shared_ != nullptr ? *shared_ : own_; }
  const PendingOp& op() const { return shared_ != nullptr ? *shared_ : own_; }
  bool blocks() const { return asynchronous_ == nullptr; }

  // Allocates memory of the segment for as long as the operation needs it; nullptr: there is no
  // room.
  std::byte* allocate(uint64_t bytes, uint64_t& offset) {
    std::byte* memory = nullptr;
    add_block([&]() -> std::optional<uint64_t> {
      memory = connection_.allocate(bytes);
      if (memory == nullptr) return std::nullopt;
      return offset = connection_.offset_of(memory);
    });
    return memory;
  }

  // Holds shared memory of the caller for as long as the operation needs it. False: the memory is
  // not in one block of the segment, or is not aligned.
  bool hold(const void* memory, uint64_t bytes, uint64_t& offset) {
    if (!add_block([&] { return connection_.hold(memory, bytes); })) return false;
    offset = connection_.offset_of(memory);
    return offset % size_of(static_cast<Dtype>(request_.dtype)) == 0;
  }

  // Submits the complete request, and waits for it if the call blocks. Where its caller will wait
  // soon, a small operation is left to the ranks that wait: the worker, which may have no core of
  // its own, need not be woken.
  Status submit() {
    if (buffers_stay_ && queue_.is_local() && op().bytes <= kUnpassedBytesMax)
      request_.flags |= kRequestBlocking;
    if (Status s = queue_.submit(request_, op()); !s.ok()) return s;
    if (blocks()) return queue_.wait(op(), -1);
    *asynchronous_ = std::move(shared_);
    return {};
  }

  // Submits the request with tensors that pass through a window, and waits for it. nullopt: the
  // segment has no room for a window.
  std::optional<Status> run_staged(std::span<const TensorSides> tensors, bool has_in,
                                   bool has_out) {
    const uint64_t window_bytes = queue_.window_bytes();
    uint64_t offset = 0;
    std::byte* window = allocate(std::min(window_bytes, op().bytes), offset);
    if (window == nullptr) return std::nullopt;
    op().is_staging = true;
    op().copied_out = 0;
    request_.flags |= kRequestStaged | kRequestBlocking;
    request_.in_offset = has_in ? offset : 0;
    request_.out_offset = has_out ? offset : 0;
    const StagedTensors staged{tensors,
                               window,
                               static_cast<uint32_t>(window_bytes / kBoardBlockBytes),
                               request_.count,
                               static_cast<Dtype>(request_.dtype),
                               input_copy_};
    if (!blocks() && may_stage()) return start_passing(staged);
    if (Status s = queue_.submit(request_, op()); !s.ok()) return s;
    const Status outcome = StagedOp(queue_, op(), staged).run(Backoff(connection_.cores()));
    if (blocks()) return outcome;
    *asynchronous_ = std::move(shared_);
    return Status();
  }

  // Submits a request that fails on all ranks with `why`, and returns that. Without it the other
  // ranks would match this rank's next operation with this one.
  Status refuse(const Status& why) {
    connection_.release(std::exchange(op().blocks, {}));
    const std::string message = why.message().substr(0, kMessageBytes - 1);
    Request refused = refusal(why.code());
    if (std::byte* text = connection_.allocate(message.size()); text != nullptr) {
      std::memcpy(text, message.data(), message.size());
      refused.in_offset = connection_.offset_of(text);
      refused.count = message.size();
    }
    auto op = std::make_shared<PendingOp>();
    if (refused.count != 0) op->blocks.push_back(refused.in_offset);
    if (queue_.submit(refused, *op).ok())
      queue_.abandon(op);
    else
      connection_.release(op->blocks);
    return why;
  }

  // Likewise after memory has run out: allocates nothing and sends no message.
  void refuse_without_memory() {
    if (op().has_arrived) return;
    connection_.release(std::exchange(op().blocks, {}));
    static_cast<void>(queue_.submit(refusal(Code::resource_exhausted), own_));
  }

 private:
  // Submits the request, and lets the group's thread pass the tensors.
  Status start_passing(const StagedTensors& staged) {
    auto passing = std::make_shared<Passing>(group_.connection, group_.queue, shared_, staged);
    std::function<void()> task = [passing] { passing->run(); };
    op().started = Clock::now();
    if (Status s = queue_.submit(request_, op()); !s.ok()) return s;
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
    std::vector<uint64_t>& blocks = op().blocks;
    blocks.push_back(0);
    const std::optional<uint64_t> block = get();
    if (block)
      blocks.back() = *block;
    else
      blocks.pop_back();
    return block.has_value();
  }

  tutti_group& group_;
  OpQueue& queue_;
  Connection& connection_;
  std::shared_ptr<PendingOp>* const asynchronous_;
  std::shared_ptr<Awaitable>* const passing_;
  bool buffers_stay_ = false;
  std::shared_ptr<PendingOp> shared_;
  PendingOp own_;
  Request request_{};
  InputCopy input_copy_;
};

// Reads the arguments that all operations have.
Status read_args(const tutti_group& group, const CollectiveArgs& args, const tutti_options* options,
                 Submission& submission) {
  tutti_options given = tutti_defaults();
  if (args.fault != nullptr) return invalid_argument(args.fault);
  if (Status s = read_options(options, submission.request(), given); !s.ok()) return s;
  submission.set_buffers_stay(given.buffers_stay != 0);
  if (Status s = fill(group, args, submission.request()); !s.ok()) return s;
  const auto dtype = static_cast<Dtype>(args.dtype);
  if (args.op == TUTTI_PREMUL_SUM && is_floating(dtype))
    submission.input_copy() = InputCopy(dtype, given.factor);
  return {};
}

Status segment_full(uint64_t bytes) {
  return resource_exhausted(
      "the segment has no room for " + std::to_string(bytes) +
      " bytes more; wait for operations, free buffers, or raise segment_bytes");
}

// The sides of a tensor that are not in shared memory, so that they need a copy there.
struct Copies {
  bool in = false;
  bool out = false;
};

// Allocates the copies. Where the collective may be in place, they overlap as if the call were, and
// an input that is no larger is copied to the output's memory.
Status allocate_copies(Submission& submission, Copies copies, const SideBytes& bytes) {
  Request& request = submission.request();
  const auto collective = static_cast<Collective>(request.collective);
  const bool in_in_out = copies.in && bytes.in <= bytes.out && has_in_place(collective);
  const bool out_in_in = copies.in && copies.out && !in_in_out && has_in_place(collective);
  if (copies.in && !in_in_out && submission.allocate(bytes.in, request.in_offset) == nullptr)
    return segment_full(bytes.in);
  if (copies.out && !out_in_in && submission.allocate(bytes.out, request.out_offset) == nullptr)
    return segment_full(bytes.out);
  if (in_in_out) request.in_offset = request.out_offset + bytes.own_block;
  if (out_in_in) request.out_offset = request.in_offset + bytes.own_block;
  return {};
}

// Chooses the shared memory for both sides of a tensor: the caller's own, or else a copy. An input
// that is scaled is copied, too: to the output's memory, which may be its own. If it overlaps the
// output in part, it is left as it is, and the call is refused like any other.
Status place_sides(Submission& submission, Connection& connection, const CollectiveArgs& args,
                   const SideBytes& bytes) {
  Request& request = submission.request();
  const auto collective = static_cast<Collective>(args.collective);
  const InputCopy& copy_input = submission.input_copy();
  const auto find = [&](const char* side, const void* memory, uint64_t side_bytes, uint64_t& offset,
                        bool& needs_copy) {
    needs_copy = side_bytes != 0 && (needs_copy || !submission.hold(memory, side_bytes, offset));
    return needs_copy ? connection.check_block(side, memory, side_bytes) : Status();
  };
  Copies copies;
  copies.in = copy_input.scales() && may_share(collective, reinterpret_cast<uintptr_t>(args.in),
                                               reinterpret_cast<uintptr_t>(args.out), bytes);
  Status found = find("the input", args.in, bytes.in, request.in_offset, copies.in);
  if (found.ok()) found = find("the output", args.out, bytes.out, request.out_offset, copies.out);
  if (!found.ok()) return found;
  if (Status s = allocate_copies(submission, copies, bytes); !s.ok()) return s;
  if (copies.in) copy_input(connection.at(request.in_offset), bytes_at(args.in), bytes.in);
  if (copies.out)
    submission.op().copies.push_back({args.out, connection.at(request.out_offset), bytes.out});
  return {};
}

// Copies the counts of blocks to the segment, and completes the request with them.
Status place_counts(Submission& submission, const CollectiveArgs& args) {
  if (args.counts.empty()) return {};
  Request& request = submission.request();
  std::byte* memory = submission.allocate(args.counts.size_bytes(), request.count);
  if (memory == nullptr) return segment_full(args.counts.size_bytes());
  std::memcpy(memory, args.counts.data(), args.counts.size_bytes());
  request.flags |= kRequestCounts;
  request.layout = layout_of(args.counts);
  return {};
}

std::optional<SideBytes> sides_of(const tutti_group& group, const CollectiveArgs& op) {
  const auto collective = static_cast<Collective>(op.collective);
  const auto dtype = static_cast<Dtype>(op.dtype);
  const auto root = static_cast<uint32_t>(op.root);
  const auto ranks = static_cast<uint32_t>(group.ranks.size());
  if (op.counts.empty()) return side_bytes(collective, dtype, op.count, root, {group.rank, ranks});
  return side_bytes(BlockSizes({collective, root, ranks}, op.counts), dtype, group.rank);
}

std::string count_text(const CollectiveArgs& op) {
  if (op.counts.empty()) return "count " + std::to_string(op.count);
  return "the sum of the counts";
}

// The sizes of this rank's sides. INVALID_ARGUMENT: a side is NULL or too large.
Status read_sides(const tutti_group& group, const CollectiveArgs& op, SideBytes& bytes) {
  if (op.collective == TUTTI_BARRIER) return {};
  const std::optional<SideBytes> sides = sides_of(group, op);
  if (!sides) return invalid_argument(count_text(op) + " is more than any memory holds");
  if ((sides->in != 0 && op.in == nullptr) || (sides->out != 0 && op.out == nullptr))
    return invalid_argument("a buffer is NULL though " + count_text(op) + " is not 0");
  bytes = *sides;
  return {};
}

// Whether tensors of this size are staged. Between hosts the window must hold a whole slice of the
// engine, whose size grows with the number of hosts.
bool can_stage(const tutti_group& group, uint64_t bytes) {
  if (group.queue->is_local()) return bytes > kCopiedBytesMax;
  const uint64_t window_bytes = group.queue->window_bytes();
  return bytes > window_bytes / kWindowSlices && group.hosts * kSlicePartBytes <= window_bytes;
}

// The tensors of a list that have elements, and the number of their elements.
Status read_list(Connection& connection, const TensorListArgs& list,
                 std::vector<TensorSides>& tensors, uint64_t& count) {
  if (list.size > kListedTensorsMax)
    return invalid_argument("a list of " + std::to_string(list.size) +
                            " tensors; it may have at most " + std::to_string(kListedTensorsMax));
  if (list.size != 0 && (list.ins == nullptr || list.outs == nullptr || list.counts == nullptr))
    return invalid_argument("a list of tensors is NULL");
  const size_t element = tutti_dtype_size(list.dtype);
  uint64_t total = 0;
  for (size_t i = 0; i < list.size; ++i) {
    size_t bytes = 0;
    const std::string which = "tensor " + std::to_string(i) + " of the list: ";
    if (__builtin_mul_overflow(list.counts[i], element, &bytes) ||
        __builtin_add_overflow(total, bytes, &total))
      return invalid_argument(which + "count " + std::to_string(list.counts[i]) +
                              " is more than any memory holds");
    if (bytes == 0) continue;
    if (list.ins[i] == nullptr || list.outs[i] == nullptr)
      return invalid_argument(which + "a buffer is NULL though count is " +
                              std::to_string(list.counts[i]));
    Status fits = connection.check_block("the input", list.ins[i], bytes);
    if (fits.ok()) fits = connection.check_block("the output", list.outs[i], bytes);
    if (!fits.ok()) return Status(fits.code(), which + fits.message());
    tensors.push_back({bytes_at(list.ins[i]), bytes_at(list.outs[i]), bytes});
  }
  count = element == 0 ? 0 : total / element;
  return {};
}

// Submits a list whose tensors are all aligned shared memory, as records of their offsets; inputs
// that are scaled, in their outputs. nullopt: they are not, or there is no room for the records.
std::optional<Status> submit_listed(Submission& submission, Connection& connection,
                                    std::span<const TensorSides> tensors) {
  Request& request = submission.request();
  uint64_t offset = 0;
  const auto hold_both = [&](const TensorSides& tensor) {
    return submission.hold(tensor.in, tensor.bytes, offset) &&
           submission.hold(tensor.out, tensor.bytes, offset);
  };
  std::byte* memory = nullptr;
  if (std::ranges::all_of(tensors, hold_both))
    memory = submission.allocate(tensors.size() * sizeof(ListedTensor), request.in_offset);
  if (memory == nullptr) {
    connection.release(submission.op().blocks);
    submission.op().blocks.clear();
    return std::nullopt;
  }
  auto* record = reinterpret_cast<ListedTensor*>(memory);
  const InputCopy& copy_input = submission.input_copy();
  for (const TensorSides& tensor : tensors) {
    if (copy_input.scales()) copy_input(tensor.out, tensor.in, tensor.bytes);
    const std::byte* in = copy_input.scales() ? tensor.out : tensor.in;
    *record++ = {connection.offset_of(in), connection.offset_of(tensor.out),
                 tensor.bytes / size_of(static_cast<Dtype>(request.dtype))};
  }
  request.flags |= kRequestListed;
  request.records = static_cast<uint32_t>(tensors.size());
  return submission.submit();
}

// Copies the tensors of a list, concatenated, to the segment.
Status concatenate(Submission& submission, std::span<const TensorSides> tensors) {
  uint64_t bytes = 0;
  for (const TensorSides& tensor : tensors) bytes += tensor.bytes;
  Request& request = submission.request();
  request.count = bytes / size_of(static_cast<Dtype>(request.dtype));
  submission.op().bytes = bytes;
  if (bytes == 0) return {};
  std::byte* memory = submission.allocate(bytes, request.in_offset);
  if (memory == nullptr) return segment_full(bytes);
  request.out_offset = request.in_offset;
  for (const TensorSides& tensor : tensors) {
    submission.input_copy()(memory, tensor.in, tensor.bytes);
    submission.op().copies.push_back({tensor.out, memory, tensor.bytes});
    memory += tensor.bytes;
  }
  return {};
}

Status submit(tutti_group& group, const CollectiveArgs& args, const tutti_options* options,
              Submission& submission) {
  SideBytes bytes;
  if (Status s = read_args(group, args, options, submission); !s.ok()) return submission.refuse(s);
  if (Status s = read_sides(group, args, bytes); !s.ok()) return submission.refuse(s);
  submission.op().bytes = args.counts.empty() ? args.count * tutti_dtype_size(args.dtype)
                                              : std::min(bytes.in, bytes.out);
  Connection& connection = *group.connection;
  const auto collective = static_cast<Collective>(args.collective);
  const bool is_elementwise = !has_blocks(collective) && collective != Collective::barrier;
  if (is_elementwise && submission.may_stage() && can_stage(group, std::max(bytes.in, bytes.out)) &&
      !connection.is_shared(args.in) && !connection.is_shared(args.out)) {
    const TensorSides tensor{bytes.in != 0 ? bytes_at(args.in) : nullptr,
                             bytes.out != 0 ? bytes_at(args.out) : nullptr, submission.op().bytes};
    if (std::optional<Status> outcome =
            submission.run_staged({&tensor, 1}, bytes.in != 0, bytes.out != 0))
      return *outcome;
  }
  Status placed = place_sides(submission, connection, args, bytes);
  if (placed.ok()) placed = place_counts(submission, args);
  return placed.ok() ? submission.submit() : submission.refuse(placed);
}

Status submit(tutti_group& group, const TensorListArgs& args, const tutti_options* options,
              Submission& submission) {
  Request& request = submission.request();
  std::vector<TensorSides> tensors;
  const CollectiveArgs all_reduce{TUTTI_ALL_REDUCE, nullptr, nullptr, 0, args.dtype, args.op, 0};
  if (Status s = read_args(group, all_reduce, options, submission); !s.ok())
    return submission.refuse(s);
  if (Status s = read_list(*group.connection, args, tensors, request.count); !s.ok())
    return submission.refuse(s);
  request.layout = layout_of({args.counts, args.size});
  const uint64_t bytes = request.count * tutti_dtype_size(args.dtype);
  submission.op().bytes = bytes;
  if (group.queue->is_local() && bytes != 0)
    if (std::optional<Status> outcome = submit_listed(submission, *group.connection, tensors))
      return *outcome;
  const auto run_staged = [&]() -> std::optional<Status> {
    if (!can_stage(group, bytes)) return std::nullopt;
    return submission.run_staged(tensors, true, true);
  };
  if (submission.may_stage())
    if (std::optional<Status> outcome = run_staged()) return *outcome;
  const Status copied = concatenate(submission, tensors);
  if (copied.ok()) return submission.submit();
  // The segment has no room for the whole list, so it is staged, and this call blocks.
  if (std::optional<Status> outcome = run_staged()) return *outcome;
  return submission.refuse(copied);
}

// If an exception is thrown, because memory ran out, the operation fails on the other ranks, too.
template <class Args>
Status run_any(tutti_group& group, const Args& args, const tutti_options* options,
               std::shared_ptr<PendingOp>* op, std::shared_ptr<Awaitable>* passing) {
  if (group.left) return failed_precondition("this rank left the group; join again");
  if (Status s = group.connection->usable(); !s.ok()) return s;
  Submission submission(group, op, passing);
  try {
    return submit(group, args, options, submission);
  } catch (...) {
    submission.refuse_without_memory();
    throw;
  }
}

}  // namespace

Status run(tutti_group& group, const CollectiveArgs& args, const tutti_options* options,
           std::shared_ptr<PendingOp>* op, std::shared_ptr<Awaitable>* passing) {
  return run_any(group, args, options, op, passing);
}

Status run(tutti_group& group, const TensorListArgs& args, const tutti_options* options,
           std::shared_ptr<PendingOp>* op, std::shared_ptr<Awaitable>* passing) {
  return run_any(group, args, options, op, passing);
}

}  // namespace tutti::client
