#include "client/operation.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "client/options.h"
#include "daemon/base/strategy.h"
#include "proto/types.h"

namespace tutti::client {
namespace {

// Smaller tensors are copied as a whole.
constexpr uint64_t kStagedBytesLeast = 2 * kBoardBlockBytes;

const std::byte* bytes_at(const void* memory) { return static_cast<const std::byte*>(memory); }
std::byte* bytes_at(void* memory) { return static_cast<std::byte*>(memory); }

Status read_options(const tutti_options* options, Request& request) {
  tutti_options given = tutti_defaults();
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

Status fill(const tutti_group& group, const Operation& op, Request& request) {
  request.verb = static_cast<uint8_t>(op.collective);
  if (op.root < 0 || static_cast<size_t>(op.root) >= group.ranks.size())
    return invalid_argument("root " + std::to_string(op.root) + " is no rank of a group of " +
                            std::to_string(group.ranks.size()));
  if (static_cast<uint32_t>(op.dtype) >= kDtypes)
    return invalid_argument("dtype " + std::to_string(op.dtype) + " is none");
  if (static_cast<uint32_t>(op.op) >= kOps)
    return invalid_argument("op " + std::to_string(op.op) + " is none");
  request.dtype = static_cast<uint8_t>(op.dtype);
  request.op = static_cast<uint8_t>(op.op);
  request.root = static_cast<uint32_t>(op.root);
  request.count = op.count;
  return {};
}

// A call on its way to the board.
class Submission {
 public:
  Submission(tutti_group& group, std::shared_ptr<Ticket>* ticket)
      : group_(group), connection_(*group.connection), asynchronous_(ticket) {
    if (asynchronous_ != nullptr) shared_ = std::make_shared<Ticket>();
    request_.timeout_ms = connection_.target().timeout_ms;
    // With room for these, no block that is held is forgotten where memory runs out.
    this->ticket().blocks.reserve(3);
    if (asynchronous_ == nullptr) request_.flags = kRequestBlocking;
  }

  // What did not arrive holds nothing; what nobody will wait for is left to the board.
  ~Submission() {
    if (!ticket().arrived) connection_.release(ticket().blocks);
    if (own_.arrived) group_.calls->disown(own_);
    if (shared_ != nullptr && shared_->arrived) group_.calls->disown(*shared_);
  }
  Submission(const Submission&) = delete;
  Submission& operator=(const Submission&) = delete;

  Request& request() { return request_; }
  bool blocks() const { return asynchronous_ == nullptr; }

  // The request is complete.
  Status go() {
    if (Status s = group_.calls->arrive(request_, ticket()); !s.ok()) return s;
    if (blocks()) return group_.calls->wait(ticket(), -1);
    *asynchronous_ = std::move(shared_);
    return {};
  }

  // Through a window of the segment, and waits; nothing where there is no room for one.
  std::optional<Status> go_staged(std::span<const TensorSides> tensors, bool has_in, bool has_out) {
    const uint64_t window_bytes = group_.calls->window_bytes();
    std::byte* window = connection_.allocate(std::min(window_bytes, ticket().bytes));
    if (window == nullptr) return std::nullopt;
    const uint64_t at = connection_.offset_of(window);
    ticket().blocks.push_back(at);
    ticket().is_staging = true;
    ticket().taken = 0;
    request_.flags |= kRequestStaged | kRequestBlocking;
    request_.in_offset = has_in ? at : 0;
    request_.out_offset = has_out ? at : 0;
    if (Status s = group_.calls->arrive(request_, ticket()); !s.ok()) return s;
    const Staged staged{tensors, window, static_cast<uint32_t>(window_bytes / kBoardBlockBytes),
                        request_.count, static_cast<Dtype>(request_.dtype)};
    const Status outcome = Stage(*group_.calls, ticket(), staged).run(Backoff(connection_.cores()));
    if (blocks()) return outcome;
    *asynchronous_ = std::move(shared_);
    return Status();
  }

  // Fails for everyone, at once, and here with `why`: the others must not take this rank's next
  // call for this one.
  Status refuse(const Status& why) {
    connection_.release(std::exchange(ticket().blocks, {}));
    const std::string words = why.message().substr(0, kMessageBytes - 1);
    Request refused = refusal(why.code());
    if (std::byte* text = connection_.allocate(words.size()); text != nullptr) {
      std::memcpy(text, words.data(), words.size());
      refused.in_offset = connection_.offset_of(text);
      refused.count = words.size();
    }
    auto ticket = std::make_shared<Ticket>();
    if (refused.count != 0) ticket->blocks.push_back(refused.in_offset);
    if (group_.calls->arrive(refused, *ticket).ok())
      group_.calls->abandon(ticket);
    else
      connection_.release(ticket->blocks);
    return why;
  }

  // Likewise where memory has run out: without words, and without memory.
  void refuse_quietly() {
    if (ticket().arrived) return;
    connection_.release(std::exchange(ticket().blocks, {}));
    static_cast<void>(group_.calls->arrive(refusal(Code::resource_exhausted), own_));
  }

  // Memory of the segment that lasts as long as the call; nullptr: there is no room.
  std::byte* take(uint64_t bytes) {
    std::vector<uint64_t>& blocks = ticket().blocks;
    blocks.reserve(blocks.size() + 1);  // Before: nothing throws once there is a block.
    std::byte* memory = connection_.allocate(bytes);
    if (memory != nullptr) blocks.push_back(connection_.offset_of(memory));
    return memory;
  }
  Ticket& ticket() { return shared_ != nullptr ? *shared_ : own_; }

 private:
  Request refusal(Code code) const {
    Request refused{};
    refused.verb = request_.verb;
    refused.flags = kRequestRefused | kRequestBlocking;
    refused.timeout_ms = request_.timeout_ms;
    refused.root = static_cast<uint32_t>(code);
    return refused;
  }

  tutti_group& group_;
  Connection& connection_;
  std::shared_ptr<Ticket>* const asynchronous_;
  std::shared_ptr<Ticket> shared_;
  Ticket own_;
  Request request_{};
};

Status full(uint64_t bytes) {
  return resource_exhausted(
      "the segment has no room for " + std::to_string(bytes) +
      " bytes more; wait for operations, free buffers, or raise segment_bytes");
}

// Where each side of a single tensor lies: shared memory as it is, else a copy.
class Placement {
 public:
  Placement(Connection& connection, Submission& submission, const Operation& op, SideBytes bytes,
            GroupPlace place)
      : connection_(connection),
        submission_(submission),
        op_(op),
        bytes_(bytes),
        within_(in_place_offset(static_cast<Collective>(op.collective), bytes, place)) {}

  Status place(Request& request) {
    const bool in_shared = share(op_.in, bytes_.in, request.in_offset);
    const bool out_shared = share(op_.out, bytes_.out, request.out_offset);
    if (Status s = check_blocks(in_shared, out_shared); !s.ok()) return s;
    if (bytes_.out >= bytes_.in) {
      if (!out_shared && !copy(bytes_.out, request.out_offset)) return full(bytes_.out);
      if (!in_shared) request.in_offset = request.out_offset + within_;
    } else {
      if (!in_shared && !copy(bytes_.in, request.in_offset)) return full(bytes_.in);
      if (!out_shared && in_shared && !copy(bytes_.out, request.out_offset))
        return full(bytes_.out);
      if (!out_shared && !in_shared) request.out_offset = request.in_offset + within_;
    }
    if (!in_shared) copy_bytes(connection_.at(request.in_offset), op_.in, bytes_.in);
    if (!out_shared)
      submission_.ticket().copies.push_back(
          {op_.out, connection_.at(request.out_offset), bytes_.out});
    return {};
  }

 private:
  // True: the side needs no copy, for it is shared memory already, or nothing at all.
  bool share(const void* memory, uint64_t bytes, uint64_t& offset) {
    if (bytes == 0) return true;
    const std::optional<uint64_t> block = connection_.hold(memory, bytes);
    if (!block) return false;
    submission_.ticket().blocks.push_back(*block);
    offset = connection_.offset_of(memory);
    return offset % tutti_dtype_size(op_.dtype) == 0;
  }

  // Shared memory that was not held may exceed its block (or is not aligned, which is fine).
  Status check_blocks(bool in_shared, bool out_shared) {
    Status s;
    if (!in_shared) s = connection_.check_block("the input", op_.in, bytes_.in);
    if (s.ok() && !out_shared) s = connection_.check_block("the output", op_.out, bytes_.out);
    return s;
  }

  bool copy(uint64_t bytes, uint64_t& offset) {
    const std::byte* memory = submission_.take(bytes);
    if (memory != nullptr) offset = connection_.offset_of(memory);
    return memory != nullptr;
  }

  Connection& connection_;
  Submission& submission_;
  const Operation& op_;
  const SideBytes bytes_;
  const uint64_t within_;
};

Status read_sides(const tutti_group& group, const Operation& op, SideBytes& bytes) {
  if (op.collective == TUTTI_BARRIER) return {};
  const std::optional<SideBytes> sides = side_bytes(
      static_cast<Collective>(op.collective), static_cast<Dtype>(op.dtype), op.count,
      static_cast<uint32_t>(op.root), {group.rank, static_cast<uint32_t>(group.ranks.size())});
  if (!sides)
    return invalid_argument("count " + std::to_string(op.count) + " is more than any memory holds");
  if ((sides->in != 0 && op.in == nullptr) || (sides->out != 0 && op.out == nullptr))
    return invalid_argument("a buffer is NULL though count is " + std::to_string(op.count));
  bytes = *sides;
  return {};
}

// Whether ordinary memory may pass block by block: the elements of both sides must correspond. A
// window between hosts holds whole slices of the engine's, which grow with the hosts.
bool can_stage(const tutti_group& group, uint64_t bytes) {
  if (group.calls->is_local()) return bytes > kStagedBytesLeast;
  const uint64_t window_bytes = group.calls->window_bytes();
  return bytes > window_bytes / kWindowSlices && group.hosts * kSlicePartBytes <= window_bytes;
}

Status check_member(const tutti_group& group) {
  if (!group.left) return {};
  return failed_precondition("this rank left the group; join again");
}

// FNV-1a over whole words.
uint64_t layout_of(const TensorList& list) {
  uint64_t hash = 14695981039346656037ull;
  for (size_t i = 0; i < list.size; ++i) {
    hash = (hash ^ list.counts[i]) * 1099511628211ull;
    hash ^= hash >> 32;
  }
  return pack_layout(list.size, hash);
}

Status read_list(Connection& connection, const TensorList& list, std::vector<TensorSides>& tensors,
                 uint64_t& count) {
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

// As they are, where all of them are shared memory: by records of where they lie.
std::optional<Status> go_listed(Submission& submission, Connection& connection,
                                std::span<const TensorSides> tensors) {
  std::vector<uint64_t>& blocks = submission.ticket().blocks;
  // With room for it before: what is held is not forgotten where memory runs out.
  const auto hold = [&](const void* memory, uint64_t bytes) {
    blocks.push_back(0);
    const std::optional<uint64_t> block = connection.hold(memory, bytes);
    if (block)
      blocks.back() = *block;
    else
      blocks.pop_back();
    return block.has_value();
  };
  const auto hold_both = [&](const TensorSides& tensor) {
    return hold(tensor.in, tensor.bytes) && hold(tensor.out, tensor.bytes);
  };
  Request& request = submission.request();
  const size_t element = size_of(static_cast<Dtype>(request.dtype));
  const auto aligned = [&](const TensorSides& tensor) {
    return (connection.offset_of(tensor.in) | connection.offset_of(tensor.out)) % element == 0;
  };
  std::byte* memory = nullptr;
  if (std::ranges::all_of(tensors, hold_both) && std::ranges::all_of(tensors, aligned))
    memory = submission.take(tensors.size() * sizeof(ListedTensor));
  if (memory == nullptr) {
    connection.release(blocks);
    blocks.clear();  // Its room is kept, for the window that may come.
    return std::nullopt;
  }
  auto* record = reinterpret_cast<ListedTensor*>(memory);
  for (const TensorSides& tensor : tensors)
    *record++ = {connection.offset_of(tensor.in), connection.offset_of(tensor.out),
                 tensor.bytes / element};
  request.flags |= kRequestListed;
  request.in_offset = connection.offset_of(memory);
  request.records = static_cast<uint32_t>(tensors.size());
  return submission.go();
}

// End to end in one copy.
Status pack(Submission& submission, Connection& connection, std::span<const TensorSides> tensors) {
  uint64_t bytes = 0;
  for (const TensorSides& tensor : tensors) bytes += tensor.bytes;
  Request& request = submission.request();
  request.count = bytes / size_of(static_cast<Dtype>(request.dtype));
  submission.ticket().bytes = bytes;
  if (bytes == 0) return {};
  std::byte* memory = submission.take(bytes);
  if (memory == nullptr) return full(bytes);
  request.in_offset = request.out_offset = connection.offset_of(memory);
  for (const TensorSides& tensor : tensors) {
    copy_bytes(memory, tensor.in, tensor.bytes);
    submission.ticket().copies.push_back({tensor.out, memory, tensor.bytes});
    memory += tensor.bytes;
  }
  return {};
}

Status submit(tutti_group& group, const Operation& op, const tutti_options* options,
              Submission& submission) {
  Request& request = submission.request();
  SideBytes bytes;
  if (Status s = read_options(options, request); !s.ok()) return submission.refuse(s);
  if (Status s = fill(group, op, request); !s.ok()) return submission.refuse(s);
  if (Status s = read_sides(group, op, bytes); !s.ok()) return submission.refuse(s);
  submission.ticket().bytes = op.count * tutti_dtype_size(op.dtype);
  Connection& connection = *group.connection;
  const auto collective = static_cast<Collective>(op.collective);
  const bool common = !has_blocks(collective) && collective != Collective::barrier;
  if (common && submission.blocks() && can_stage(group, std::max(bytes.in, bytes.out)) &&
      !connection.is_shared(op.in) && !connection.is_shared(op.out)) {
    const TensorSides tensor{bytes.in != 0 ? bytes_at(op.in) : nullptr,
                             bytes.out != 0 ? bytes_at(op.out) : nullptr,
                             submission.ticket().bytes};
    if (std::optional<Status> staged =
            submission.go_staged({&tensor, 1}, bytes.in != 0, bytes.out != 0))
      return *staged;
  }
  const GroupPlace place{group.rank, static_cast<uint32_t>(group.ranks.size())};
  Status placed = Placement(connection, submission, op, bytes, place).place(request);
  return placed.ok() ? submission.go() : submission.refuse(placed);
}

Status submit(tutti_group& group, const TensorList& list, const tutti_options* options,
              Submission& submission) {
  Request& request = submission.request();
  std::vector<TensorSides> tensors;
  const Operation op{TUTTI_ALL_REDUCE, nullptr, nullptr, 0, list.dtype, list.op, 0};
  if (Status s = read_options(options, request); !s.ok()) return submission.refuse(s);
  if (Status s = fill(group, op, request); !s.ok()) return submission.refuse(s);
  if (Status s = read_list(*group.connection, list, tensors, request.count); !s.ok())
    return submission.refuse(s);
  request.layout = layout_of(list);
  const uint64_t bytes = request.count * tutti_dtype_size(list.dtype);
  submission.ticket().bytes = bytes;
  if (group.calls->is_local() && bytes != 0)
    if (std::optional<Status> listed = go_listed(submission, *group.connection, tensors))
      return *listed;
  const bool stages = can_stage(group, bytes);
  if (stages && submission.blocks())
    if (std::optional<Status> staged = submission.go_staged(tensors, true, true)) return *staged;
  const Status packed = pack(submission, *group.connection, tensors);
  if (packed.ok()) return submission.go();
  // No room for the whole: it is waited for here.
  if (stages)
    if (std::optional<Status> staged = submission.go_staged(tensors, true, true)) return *staged;
  return submission.refuse(packed);
}

// What is thrown, for want of memory, fails for the other ranks, too.
template <class Asked>
Status run_any(tutti_group& group, const Asked& asked, const tutti_options* options,
               std::shared_ptr<Ticket>* ticket) {
  if (Status s = check_member(group); !s.ok()) return s;
  if (Status s = group.connection->usable(); !s.ok()) return s;
  Submission submission(group, ticket);
  try {
    return submit(group, asked, options, submission);
  } catch (...) {
    submission.refuse_quietly();
    throw;
  }
}

}  // namespace

Status run(tutti_group& group, const Operation& op, const tutti_options* options,
           std::shared_ptr<Ticket>* ticket) {
  return run_any(group, op, options, ticket);
}

Status run(tutti_group& group, const TensorList& list, const tutti_options* options,
           std::shared_ptr<Ticket>* ticket) {
  return run_any(group, list, options, ticket);
}

}  // namespace tutti::client
