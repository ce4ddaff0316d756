#include "client/operations/submission.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <utility>

#include "client/operations/device_sides.h"
#include "client/operations/request_builder.h"
#include "client/operations/verification.h"
#include "client/rank/options.h"
#include "daemon/base/signature.h"
#include "daemon/base/strategy.h"
#include "proto/types.h"

namespace tutti::client {
namespace {

const std::byte* bytes_at(const void* memory) { return static_cast<const std::byte*>(memory); }
std::byte* bytes_at(void* memory) { return static_cast<std::byte*>(memory); }

// A call's options, or why they cannot be read.
struct GivenOptions : tutti_options {
  explicit GivenOptions(const tutti_options* options) : tutti_options(tutti_defaults()) {
    constexpr size_t kLeast = offsetof(tutti_options, timeout_ms) + sizeof(timeout_ms);
    tutti_options& given = *this;
    fault = no_throw([&] { return read_sized(options, kLeast, "tutti_defaults()", given); });
  }
  // Where the caller wants no work, but does not wait either.
  bool is_on_stream() const { return fault.ok() && on_stream != 0; }

  Status fault;
};

Status read_options(const GivenOptions& given, Request& request) {
  if (!given.fault.ok()) return given.fault;
  Status choices = check_choice("reproducible", given.reproducible, "tutti_defaults()");
  if (choices.ok()) choices = check_choice("verify", given.verify, "tutti_defaults()");
  if (!choices.ok()) return choices;
  if (given.timeout_ms > 0) request.timeout_ms = static_cast<uint32_t>(given.timeout_ms);
  if (given.strategy == nullptr) return {};
  const Result<Strategies> strategies = parse_strategies(given.strategy);
  if (!strategies.ok()) return strategies.status();
  request.local_strategy = packed(strategies->local);
  request.global_strategy = packed(strategies->global);
  return {};
}

Status fill(const Group& group, const CollectiveArgs& op, Request& request) {
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

// Reads the arguments that all operations have.
Status read_args(const Group& group, const CollectiveArgs& args, const GivenOptions& given,
                 RequestBuilder& builder) {
  builder.request().collective = static_cast<uint8_t>(args.collective);
  if (args.fault != nullptr) return Status(args.fault_code, args.fault);
  if (Status s = read_options(given, builder.request()); !s.ok()) return s;
  builder.set_options(given);
  if (Status s = fill(group, args, builder.request()); !s.ok()) return s;
  const JoinTarget& join = group.connection->target();
  const auto collective = static_cast<Collective>(args.collective);
  const bool reproducible = given.reproducible == 0 ? join.reproducible : given.reproducible > 0;
  if (reproducible && reduces(collective)) builder.request().flags |= kRequestReproducible;
  const bool verifies = given.verify == 0 ? join.verifies : given.verify > 0;
  const bool is_verified = verifies && is_common(collective) && !group.is_channel;
  if (is_verified && builder.is_on_gpu() && given.verify > 0)
    return {Code::unimplemented, "verify is for results in the host's memory; leave it out here"};
  if (is_verified && !builder.is_on_gpu()) builder.request().flags |= kRequestVerify;
  const auto dtype = static_cast<Dtype>(args.dtype);
  if (args.op == TUTTI_PREMUL_SUM && is_floating(dtype))
    builder.input_copy() = InputCopy(dtype, given.factor);
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
Status allocate_copies(RequestBuilder& builder, Copies copies, const SideBytes& bytes) {
  Request& request = builder.request();
  const auto collective = static_cast<Collective>(request.collective);
  const bool in_in_out = copies.in && bytes.in <= bytes.out && has_in_place(collective);
  const bool out_in_in = copies.in && copies.out && !in_in_out && has_in_place(collective);
  if (copies.in && !in_in_out && builder.allocate(bytes.in, request.in_offset) == nullptr)
    return segment_full(bytes.in);
  if (copies.out && !out_in_in && builder.allocate(bytes.out, request.out_offset) == nullptr)
    return segment_full(bytes.out);
  if (in_in_out) request.in_offset = request.out_offset + bytes.own_block;
  if (out_in_in) request.out_offset = request.in_offset + bytes.own_block;
  return {};
}

// Chooses the shared memory for both sides of a tensor: the caller's own, or else a copy. An input
// that is scaled is copied, too: to the output's memory, which may be its own.
Status place_sides(RequestBuilder& builder, Connection& connection, const CollectiveArgs& args,
                   const SideBytes& bytes) {
  Request& request = builder.request();
  const InputCopy& copy_input = builder.input_copy();
  const auto find = [&](const char* side, const void* memory, uint64_t side_bytes, uint64_t& offset,
                        bool& needs_copy) {
    needs_copy = side_bytes != 0 && (needs_copy || !builder.hold(memory, side_bytes, offset));
    return needs_copy ? connection.own_memory().check_block(side, memory, side_bytes) : Status();
  };
  Copies copies;
  copies.in = copy_input.scales();
  Status found = find("the input", args.in, bytes.in, request.in_offset, copies.in);
  if (found.ok() && args.out == args.in && bytes.out == bytes.in && !copies.in)
    request.out_offset = request.in_offset;  // One block, which is held.
  else if (found.ok())
    found = find("the output", args.out, bytes.out, request.out_offset, copies.out);
  if (!found.ok()) return found;
  if (Status s = allocate_copies(builder, copies, bytes); !s.ok()) return s;
  if (copies.out) {
    builder.op().memory.last_until_end();
    builder.op().resources.copies.push_back(
        {args.out, connection.own_memory().at(request.out_offset), bytes.out});
  }
  if (!copies.in) return {};
  return builder.copy_in(connection.own_memory().at(request.in_offset), bytes_at(args.in),
                         bytes.in);
}

// Copies the counts of blocks to the segment, and completes the request with them.
Status place_counts(RequestBuilder& builder, const CollectiveArgs& args) {
  if (args.counts.empty()) return {};
  Request& request = builder.request();
  std::byte* memory = builder.allocate(args.counts.size_bytes(), request.count);
  if (memory == nullptr) return segment_full(args.counts.size_bytes());
  std::memcpy(memory, args.counts.data(), args.counts.size_bytes());
  request.flags |= kRequestCounts;
  request.layout = layout_of(args.counts);
  return {};
}

std::optional<SideBytes> sides_of(const Group& group, const CollectiveArgs& op) {
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
Status read_sides(const Group& group, const CollectiveArgs& op, SideBytes& bytes) {
  if (op.collective == TUTTI_BARRIER) return {};
  const std::optional<SideBytes> sides = sides_of(group, op);
  if (!sides) return invalid_argument(count_text(op) + " is more than any memory holds");
  if ((sides->in != 0 && op.in == nullptr) || (sides->out != 0 && op.out == nullptr))
    return invalid_argument("a buffer is NULL though " + count_text(op) + " is not 0");
  bytes = *sides;
  return {};
}

// Takes the memory of both sides for the operation.
Status take_sides(RequestBuilder& builder, const CollectiveArgs& args, const SideBytes& bytes) {
  std::array<MemoryRange, 2> ranges;
  size_t count = 0;
  const auto add = [&](const void* memory, uint64_t size, bool is_written) {
    const auto begin = reinterpret_cast<uintptr_t>(memory);
    if (size != 0) ranges[count++] = {begin, begin + size, 0, is_written};
  };
  if (args.in != args.out || bytes.in > bytes.out) add(args.in, bytes.in, false);
  add(args.out, bytes.out, true);
  if (count == 2 && ranges[1].begin < ranges[0].begin) std::swap(ranges[0], ranges[1]);
  return builder.take({ranges.data(), count});
}

// How the two sides may overlap, on the program's own addresses: in the worker's, memory in two
// offers has two. The sides of an all_to_all in ordinary memory may in any way: both are copied.
// What the segment has no room for is refused for that, as it is where nothing overlaps.
Status check_overlap(const Group& group, const RequestBuilder& builder, const CollectiveArgs& args,
                     const SideBytes& bytes) {
  const auto collective = static_cast<Collective>(args.collective);
  if (may_share(collective, reinterpret_cast<uintptr_t>(args.in),
                reinterpret_cast<uintptr_t>(args.out), bytes))
    return {};
  Connection& connection = *group.connection;
  const bool is_copied = !connection.own_memory().is_shared(args.in) &&
                         !connection.own_memory().is_shared(args.out) &&
                         !group.device_memory->is_device(args.in);
  if (!has_in_place(collective) && is_copied) return {};
  if (Status s = connection.own_memory().check_block("the input", args.in, bytes.in); !s.ok())
    return s;
  if (Status s = connection.own_memory().check_block("the output", args.out, bytes.out); !s.ok())
    return s;
  CallShape call = builder.shape();
  call.bytes = std::max(bytes.in, bytes.out);
  call.waits = true;
  if (is_copied && choose_path(call).way == TensorPath::Way::whole &&
      call.bytes > connection.own_memory().segment()->bytes())
    return segment_full(call.bytes);
  return invalid_argument(sides_overlap(collective));
}

// Submits a list whose tensors are all aligned shared memory, as records of their offsets; inputs
// that are scaled, in their outputs. nullopt: they are not, or there is no room for the records.
std::optional<Status> submit_listed(RequestBuilder& builder, Connection& connection,
                                    std::span<const TensorSides> tensors, TensorPath::By by) {
  Request& request = builder.request();
  uint64_t offset = 0;
  const auto hold_both = [&](const TensorSides& tensor) {
    return builder.hold(tensor.in, tensor.bytes, offset) &&
           builder.hold(tensor.out, tensor.bytes, offset);
  };
  std::byte* memory = nullptr;
  if (std::ranges::all_of(tensors, hold_both))
    memory = builder.allocate(tensors.size() * sizeof(ListedTensor), request.in_offset);
  if (memory == nullptr) {
    connection.own_memory().release(builder.op().resources.blocks);
    builder.op().resources.blocks.clear();
    return std::nullopt;
  }
  auto* record = reinterpret_cast<ListedTensor*>(memory);
  const InputCopy& copy_input = builder.input_copy();
  for (const TensorSides& tensor : tensors) {
    if (copy_input.scales()) copy_input(tensor.out, tensor.in, tensor.bytes);
    const std::byte* in = copy_input.scales() ? tensor.out : tensor.in;
    *record++ = {connection.own_memory().offset_of(in),
                 connection.own_memory().offset_of(tensor.out),
                 tensor.bytes / size_of(static_cast<Dtype>(request.dtype))};
  }
  request.flags |= kRequestListed;
  request.records = static_cast<uint32_t>(tensors.size());
  return builder.submit(by);
}

// Copies the tensors of a list, concatenated, to the segment.
Status concatenate(RequestBuilder& builder, std::span<const TensorSides> tensors) {
  uint64_t bytes = 0;
  for (const TensorSides& tensor : tensors) bytes += tensor.bytes;
  Request& request = builder.request();
  request.count = bytes / size_of(static_cast<Dtype>(request.dtype));
  builder.op().record.bytes = bytes;
  if (bytes == 0) return {};
  builder.op().memory.last_until_end();
  std::byte* memory = builder.allocate(bytes, request.in_offset);
  if (memory == nullptr) return segment_full(bytes);
  request.out_offset = request.in_offset;
  for (const TensorSides& tensor : tensors) {
    if (Status s = builder.copy_in(memory, tensor.in, tensor.bytes); !s.ok()) return s;
    builder.op().resources.copies.push_back({tensor.out, memory, tensor.bytes});
    memory += tensor.bytes;
  }
  return {};
}

Status submit_device(Group& group, const CollectiveArgs& args, const SideBytes& bytes,
                     RequestBuilder& builder) {
  DeviceMemory& device = *group.device_memory;
  const void* memory = bytes.in != 0 ? args.in : bytes.out != 0 ? args.out : nullptr;
  builder.start_clock();
  const TimePoint limit = builder.deadline();
  Words words;
  if (Status s = take_words(device, builder.stream(), memory, limit, words); !s.ok())
    return builder.refuse(s);
  DeviceRequest sides{};
  std::shared_ptr<StagedSides> staged;
  Status found = find_device_side(device, "the input", args.in, bytes.in, limit, sides.in);
  if (found.ok())
    found = find_device_side(device, "the output", args.out, bytes.out, limit, sides.out);
  if (found.ok()) found = check_device_sides(builder, args.in, args.out, bytes);
  if (found.ok()) found = check_overlap(group, builder, args, bytes);
  if (found.ok()) found = take_sides(builder, args, bytes);
  if (found.ok()) found = stage_sides(builder, device, args, bytes, limit, sides, staged);
  if (found.ok()) found = place_counts(builder, args);
  if (found.ok()) return builder.submit_device(sides, {}, memory, words, std::move(staged));
  device.words().give_back(words);
  return builder.refuse(found);
}

// Completes the request with a list whose tensors are known, and takes their memory.
Status take_list(RequestBuilder& builder, const TensorListArgs& args, TensorList& list) {
  if (Status s = check_apart(args, list); !s.ok()) return s;
  builder.request().count = list.count;
  builder.request().layout = list.layout;
  builder.op().record.bytes = list.count * tutti_dtype_size(args.dtype);
  return builder.take(list.ranges);
}

Status submit_device(Group& group, const TensorListArgs& args, TensorList& list,
                     RequestBuilder& builder) {
  DeviceMemory& device = *group.device_memory;
  const void* memory = list.tensors.front().in;
  builder.start_clock();
  const TimePoint limit = builder.deadline();
  Words words;
  if (Status s = take_words(device, builder.stream(), memory, limit, words); !s.ok())
    return builder.refuse(s);
  std::vector<ListedDeviceTensor> records;
  std::shared_ptr<StagedSides> staged;
  Status found;
  const auto find_all = [&] {
    records.resize(list.tensors.size());
    for (size_t i = 0; i < records.size() && found.ok(); ++i)
      found = find_listed(builder, device, args, list.tensors[i], limit, records[i]);
  };
  find_all();
  if (found.ok()) found = take_list(builder, args, list);
  if (found.ok() && records.size() != list.tensors.size()) find_all();
  if (found.ok()) found = stage_listed(builder, device, list.tensors, limit, records, staged);
  if (found.ok()) return builder.submit_device({}, records, memory, words, std::move(staged));
  device.words().give_back(words);
  return builder.refuse(found);
}

// Whether the call is for GPU memory. A call without elements is not, on any rank.
bool is_for_gpu(Group& group, const CollectiveArgs& args, const GivenOptions& given) {
  if (args.collective == TUTTI_BARRIER || (args.counts.empty() && args.count == 0)) return false;
  Connection& connection = *group.connection;
  const auto is_device = [&](const void* memory) {
    return memory != nullptr && !connection.own_memory().is_shared(memory) &&
           group.device_memory->is_device(memory);
  };
  return is_device(args.in) || is_device(args.out) || given.is_on_stream();
}

// What is wrong with the list is found later. For a tensor without elements, nothing counts.
bool is_for_gpu(Group& group, const TensorListArgs& args, const GivenOptions& given) {
  if (args.ins == nullptr || args.outs == nullptr || args.counts == nullptr) return false;
  if (std::all_of(args.counts, args.counts + args.size, [](size_t n) { return n == 0; }))
    return false;
  if (given.is_on_stream()) return true;
  DeviceMemory& device = *group.device_memory;
  if (!device.has_driver()) return false;
  for (size_t i = 0; i < args.size; ++i)
    if (args.counts[i] != 0 && (device.is_device(args.ins[i]) || device.is_device(args.outs[i])))
      return true;
  return false;
}

// Blocks of one size pass through windows. Not those of an all_to_all whose sides overlap: all of
// its input is read before any of its output is written.
StagedRows rows_of(const Group& group, const CollectiveArgs& args, const SideBytes& bytes) {
  const auto collective = static_cast<Collective>(args.collective);
  const bool may = has_blocks(collective) && args.counts.empty() &&
                   may_share(collective, reinterpret_cast<uintptr_t>(args.in),
                             reinterpret_cast<uintptr_t>(args.out), bytes);
  if (!may) return {};
  const Blocks blocks{collective, static_cast<uint32_t>(args.root),
                      static_cast<uint32_t>(group.ranks.size())};
  const auto dtype = static_cast<Dtype>(args.dtype);
  const GroupBoard& board = group.queue->group_board();
  if (board.is_local()) return staged_rows(blocks, group.rank, dtype, args.count);
  const StagedRows rows =
      staged_rows_between_hosts(blocks, group.rank, dtype, args.count, board.window_bytes());
  return rows.part == 0 || rows.rows() == 1 ? StagedRows() : rows;
}

std::optional<Status> run_staged(RequestBuilder& builder, const CollectiveArgs& args,
                                 const SideBytes& bytes, const StagedRows& rows,
                                 TensorPath::By by) {
  const size_t block = args.count * tutti_dtype_size(args.dtype);
  const TensorSides tensor{bytes.in != 0 ? bytes_at(args.in) : nullptr,
                           bytes.out != 0 ? bytes_at(args.out) : nullptr, block};
  StagedTensors staged;
  staged.tensors = {&tensor, 1};
  staged.rows = rows;
  staged.in_blocks = bytes.in / block;
  staged.out_blocks = bytes.out / block;
  return builder.run_staged(staged, bytes.in != 0, bytes.out != 0, by);
}

Status submit(Group& group, const CollectiveArgs& args, const GivenOptions& given,
              RequestBuilder& builder) {
  SideBytes bytes;
  if (Status s = read_args(group, args, given, builder); !s.ok()) return builder.refuse(s);
  if (Status s = read_sides(group, args, bytes); !s.ok()) return builder.refuse(s);
  builder.op().record.bytes = args.counts.empty() ? args.count * tutti_dtype_size(args.dtype)
                                                  : std::min(bytes.in, bytes.out);
  CallShape call = builder.shape();
  const auto collective = static_cast<Collective>(args.collective);
  call.is_elementwise = !has_blocks(collective) && collective != Collective::barrier;
  const StagedRows rows = rows_of(group, args, bytes);
  call.has_rows = rows.part != 0;
  Connection& connection = *group.connection;
  call.is_shared =
      connection.own_memory().is_shared(args.in) || connection.own_memory().is_shared(args.out);
  if (call.has_rows && !call.is_shared) call.bytes = std::max(bytes.in, bytes.out);
  TensorPath path = choose_path(call);
  if (path.way == TensorPath::Way::device) return submit_device(group, args, bytes, builder);
  if (Status s = check_overlap(group, builder, args, bytes); !s.ok()) return builder.refuse(s);
  if (Status s = take_sides(builder, args, bytes); !s.ok()) return builder.refuse(s);
  if (path.way == TensorPath::Way::window) {
    if (std::optional<Status> outcome = run_staged(builder, args, bytes, rows, path.by))
      return *outcome;
    call.lacks_window = true;
    path = choose_path(call);
  }
  Status placed = place_sides(builder, connection, args, bytes);
  if (placed.ok()) placed = place_counts(builder, args);
  return placed.ok() ? builder.submit(path.by) : builder.refuse(placed);
}

// Each way that the segment has no room for leads to another.
Status submit_list(RequestBuilder& builder, Connection& connection,
                   std::span<const TensorSides> tensors, CallShape call) {
  using Way = TensorPath::Way;
  Status copied;
  for (;;) {
    const TensorPath path = choose_path(call);
    if (path.way == Way::records) {
      if (const auto outcome = submit_listed(builder, connection, tensors, path.by))
        return *outcome;
      call.lacks_records = true;
    } else if (path.way == Way::window) {
      if (const auto outcome = builder.run_staged({.tensors = tensors}, true, true, path.by))
        return *outcome;
      call.lacks_window = true;
    } else if (path.way == Way::whole) {
      copied = concatenate(builder, tensors);
      if (copied.ok()) return builder.submit(path.by);
      if (copied.code() == Code::deadline_exceeded) return builder.refuse(copied);
      call.lacks_copy = true;
    } else {
      return builder.refuse(copied);
    }
  }
}

Status submit(Group& group, const TensorListArgs& args, const GivenOptions& given,
              RequestBuilder& builder) {
  TensorList list;
  const CollectiveArgs all_reduce{TUTTI_ALL_REDUCE, nullptr, nullptr, 0, args.dtype, args.op, 0};
  if (Status s = read_args(group, all_reduce, given, builder); !s.ok()) return builder.refuse(s);
  if (Status s = read_list(*group.connection, args, list); !s.ok()) return builder.refuse(s);
  if (builder.is_on_gpu()) return submit_device(group, args, list, builder);
  if (Status s = take_list(builder, args, list); !s.ok()) return builder.refuse(s);
  CallShape call = builder.shape();
  call.is_list = true;
  return submit_list(builder, *group.connection, list.tensors, call);
}

using Bytes = std::span<const std::byte>;

// The memory of the result of an operation that is_common(), which has succeeded.
std::vector<Bytes> result_of(const Group& group, const CollectiveArgs& args) {
  const std::optional<SideBytes> sides = sides_of(group, args);
  return {{bytes_at(args.out), std::max(sides->in, sides->out)}};
}

// An output that is listed again counts once, as ranks may list it differently often.
std::vector<Bytes> result_of(const Group&, const TensorListArgs& args) {
  std::vector<Bytes> result;
  std::set<const void*> known;
  for (size_t i = 0; i < args.size; ++i)
    if (args.counts[i] != 0 && known.insert(args.outs[i]).second)
      result.push_back({bytes_at(args.outs[i]), args.counts[i] * tutti_dtype_size(args.dtype)});
  return result;
}

// Waits for the result of an operation that has begun, and compares it with the other ranks'. A
// rank without the memory for that refuses the comparison, which then fails on all.
template <class Args>
Status verify(Group& group, const Args& args, const tutti_options* options, Collective collective,
              std::shared_ptr<PendingOp>* op, std::shared_ptr<Awaitable>* passing) {
  Status status;
  if (passing != nullptr && *passing != nullptr)
    status = (*passing)->wait(-1);
  else if (op != nullptr)
    status = group.queue->wait(**op, -1);
  if (!status.ok()) return status;
  uint64_t own = 0;
  std::vector<uint64_t> checksums;
  CollectiveArgs gather{TUTTI_ALL_GATHER, &own, nullptr, 1, TUTTI_U64};
  try {
    own = checksum_of(result_of(group, args), static_cast<Dtype>(args.dtype));
    checksums.resize(group.ranks.size());
  } catch (const std::bad_alloc&) {
    gather.fault = "there is no memory to compare results";
    gather.fault_code = Code::resource_exhausted;
  }
  gather.out = checksums.data();
  const tutti_options given = options_of_part(options);
  status = run(group, gather, &given, nullptr);
  if (!status.ok()) return status;
  return without_throwing(Code::data_loss,
                          [&] { return compare_checksums(group, collective, checksums); });
}

// If an exception is thrown, because memory ran out, the operation fails on the other ranks, too.
template <class Args>
Status run_any(Group& group, const Args& args, const tutti_options* options,
               std::shared_ptr<PendingOp>* op, std::shared_ptr<Awaitable>* passing,
               Request& request) {
  if (group.left) return failed_precondition("this rank left the group; join again");
  StreamFailure& failure = *group.stream_failure;
  Connection& connection = *group.connection;
  if (Status s = connection.usable(); !s.ok()) return failure.first_failure(connection, s);
  // An operation on a GPU is watched by a thread, whether or not the caller waits here.
  const GivenOptions given(options);
  const bool is_on_gpu = is_for_gpu(group, args, given);
  std::shared_ptr<PendingOp> own;
  RequestBuilder builder(group, is_on_gpu && op == nullptr ? &own : op, passing);
  if (is_on_gpu) builder.set_on_gpu();
  if (op == nullptr && given.is_on_stream()) builder.keep_failure();
  try {
    if (Status s = failure.take(); !s.ok()) return builder.refuse(s);
    Status status = failure.first_failure(connection, submit(group, args, given, builder));
    request = builder.request();
    if (!status.ok() || own == nullptr || given.is_on_stream()) return status;
    return group.queue->wait(*own, -1);
  } catch (...) {
    builder.refuse_without_memory();
    throw;
  }
}

template <class Args>
Status run_and_verify(Group& group, const Args& args, const tutti_options* options,
                      std::shared_ptr<PendingOp>* op, std::shared_ptr<Awaitable>* passing) {
  Request request{};
  const Status status = run_any(group, args, options, op, passing, request);
  if (!status.ok() || (request.flags & kRequestVerify) == 0) return status;
  return verify(group, args, options, static_cast<Collective>(request.collective), op, passing);
}

}  // namespace

Status run(Group& group, const CollectiveArgs& args, const tutti_options* options,
           std::shared_ptr<PendingOp>* op, std::shared_ptr<Awaitable>* passing) {
  return run_and_verify(group, args, options, op, passing);
}

Status run(Group& group, const TensorListArgs& args, const tutti_options* options,
           std::shared_ptr<PendingOp>* op, std::shared_ptr<Awaitable>* passing) {
  return run_and_verify(group, args, options, op, passing);
}

}  // namespace tutti::client
