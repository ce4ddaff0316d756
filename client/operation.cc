#include "client/operation.h"

#include <algorithm>
#include <cstring>

#include "client/options.h"

namespace tutti::client {
namespace {

// How many bytes each side has, and where the smaller lies in the larger when in place.
struct Sides {
  uint64_t in = 0;
  uint64_t out = 0;
  uint64_t in_within_out = 0;
  uint64_t out_within_in = 0;
};

Outcome bad(const std::string& what) { return failure(TUTTI_INVALID_ARGUMENT, what); }

// Numbers that the worker refuses have sides of no bytes: it is the one to tell all ranks.
Outcome read_sides(const tutti_group& group, const Operation& op, Sides& sides) {
  uint64_t one = 0;
  uint64_t all = 0;
  if (__builtin_mul_overflow(op.count, tutti_dtype_size(op.dtype), &one) ||
      __builtin_mul_overflow(one, group.ranks.size(), &all))
    return bad("count " + std::to_string(op.count) + " is more than any memory holds");
  const bool at_root = op.root == static_cast<int32_t>(group.rank);
  switch (op.collective) {
    case TUTTI_ALL_REDUCE:
      sides = {one, one, 0, 0};
      break;
    case TUTTI_REDUCE:
      sides = {one, at_root ? one : 0, 0, 0};
      break;
    case TUTTI_BROADCAST:
      sides = at_root ? Sides{one, 0, 0, 0} : Sides{0, one, 0, 0};
      break;
    case TUTTI_ALL_GATHER:
      sides = {one, all, group.rank * one, 0};
      break;
    case TUTTI_REDUCE_SCATTER:
      sides = {all, one, 0, group.rank * one};
      break;
    case TUTTI_BARRIER:
      break;
  }
  if ((sides.in != 0 && op.in == nullptr) || (sides.out != 0 && op.out == nullptr))
    return bad("a buffer is NULL though count is " + std::to_string(op.count));
  return {};
}

class Placement {
 public:
  Placement(Connection& connection, const Operation& operation, const Sides& sides, Ticket& ticket)
      : connection_(connection), operation_(operation), sides_(sides), ticket_(ticket) {}

  Outcome place(Request& request) {
    const bool in_shared = share(operation_.in, sides_.in, request.in_offset);
    const bool out_shared = share(operation_.out, sides_.out, request.out_offset);
    if (Outcome o = check_blocks(in_shared, out_shared); !o.ok()) return o;
    if (sides_.out >= sides_.in) {
      if (!out_shared && !stage(sides_.out, request.out_offset)) return full();
      if (!in_shared) request.in_offset = request.out_offset + sides_.in_within_out;
    } else {
      if (!in_shared && !stage(sides_.in, request.in_offset)) return full();
      if (!out_shared && in_shared && !stage(sides_.out, request.out_offset)) return full();
      if (!out_shared && !in_shared) request.out_offset = request.in_offset + sides_.out_within_in;
    }
    if (!in_shared) copy_in(request.in_offset);
    if (!out_shared) copy_out_from(request.out_offset);
    return {};
  }

 private:
  // True: the side needs no copy, for it is shared memory already, or nothing at all.
  bool share(const void* memory, uint64_t bytes, uint64_t& offset) {
    if (bytes == 0) return true;
    const std::optional<uint64_t> block = connection_.hold(memory, bytes);
    if (!block) return false;
    ticket_.blocks.push_back(*block);
    offset = connection_.offset_of(memory);
    return offset % tutti_dtype_size(operation_.dtype) == 0;
  }

  // Shared memory that was not held may exceed its block (or is not aligned, which is fine).
  Outcome check_blocks(bool in_shared, bool out_shared) {
    Outcome o;
    if (!in_shared) o = connection_.check_block("the input", operation_.in, sides_.in);
    if (o.ok() && !out_shared)
      o = connection_.check_block("the output", operation_.out, sides_.out);
    return o;
  }

  bool stage(uint64_t bytes, uint64_t& offset) {
    const std::byte* memory = connection_.allocate(bytes);
    if (memory == nullptr) return false;
    offset = connection_.offset_of(memory);
    ticket_.blocks.push_back(offset);
    return true;
  }

  void copy_in(uint64_t offset) { std::memcpy(connection_.at(offset), operation_.in, sides_.in); }

  void copy_out_from(uint64_t offset) {
    ticket_.copy_to = operation_.out;
    ticket_.copy_from = connection_.at(offset);
    ticket_.copy_bytes = sides_.out;
  }

  Outcome full() const {
    return failure(TUTTI_RESOURCE_EXHAUSTED,
                   "the segment has no room for " + std::to_string(sides_.in + sides_.out) +
                       " bytes more; wait for operations, free buffers, or raise segment_bytes");
  }

  Connection& connection_;
  const Operation& operation_;
  const Sides& sides_;
  Ticket& ticket_;
};

Outcome read_options(const tutti_options* options, Request& request) {
  tutti_options given = tutti_defaults();
  constexpr size_t kLeast = offsetof(tutti_options, timeout_ms) + sizeof(given.timeout_ms);
  if (Outcome o = read_sized(options, kLeast, "tutti_defaults()", given); !o.ok()) return o;
  if (given.timeout_ms > 0) request.timeout_ms = static_cast<uint32_t>(given.timeout_ms);
  if (given.strategy == nullptr) return {};
  PackedStrategies strategies;
  Outcome parsed = parse_strategies(given.strategy, strategies);
  request.local_strategy = strategies.local;
  request.global_strategy = strategies.global;
  return parsed;
}

Outcome fill(const tutti_group& group, const Operation& op, Request& request) {
  if (op.root < 0) return bad("root " + std::to_string(op.root) + " is no rank");
  if (static_cast<uint32_t>(op.dtype) > UINT8_MAX || static_cast<uint32_t>(op.op) > UINT8_MAX)
    return bad("no such dtype or op");
  request.verb = static_cast<uint8_t>(op.collective);
  request.dtype = static_cast<uint8_t>(op.dtype);
  request.op = static_cast<uint8_t>(op.op);
  request.group = group.number;
  request.root = static_cast<uint32_t>(op.root);
  request.count = op.count;
  request.layout = op.layout;
  request.following = op.following;
  return {};
}

// To the board, else to the worker.
Outcome hand_over(tutti_group& group, const Operation& operation, const Request& request,
                  uint32_t flags, const std::shared_ptr<Ticket>& ticket) {
  bool met = false;
  Outcome submitted;
  if (!operation.continues) submitted = group.connection->meet(request, flags, ticket, met);
  if (submitted.ok() && !met) submitted = group.connection->submit(request, ticket);
  if (!submitted.ok()) group.connection->release(ticket->blocks);
  return submitted;
}

// Smaller tensors are copied as a whole.
constexpr uint64_t kStagedBytesLeast = 2 * kBoardBlockBytes;

// Whether an ordinary tensor may pass through the segment block by block: the elements of both
// sides must correspond.
bool can_stage(const tutti_group& group, const Operation& op, const Sides& sides, Manner manner) {
  const bool common = op.collective == TUTTI_ALL_REDUCE || op.collective == TUTTI_REDUCE ||
                      op.collective == TUTTI_BROADCAST;
  return manner == Manner::blocking && common && group.number == 0 &&
         group.connection->has_board() && std::max(sides.in, sides.out) > kStagedBytesLeast &&
         !group.connection->is_shared(op.in) && !group.connection->is_shared(op.out);
}

// True: done, or over. False: the worker has to do it; the ticket has its number by then, if
// anything came of it.
bool run_staged(tutti_group& group, const Operation& op, const Sides& sides, Request request,
                const std::shared_ptr<Ticket>& ticket, Outcome& outcome) {
  Connection& connection = *group.connection;
  std::byte* window = connection.allocate(kStageBlocks * kBoardBlockBytes);
  if (window == nullptr) return false;
  request.in_offset = request.out_offset = connection.offset_of(window);
  ticket->blocks.push_back(request.in_offset);
  const Staged staged{sides.in == 0 ? nullptr : static_cast<const std::byte*>(op.in),
                      sides.out == 0 ? nullptr : static_cast<std::byte*>(op.out), window, op.count,
                      static_cast<Dtype>(op.dtype)};
  bool met = false;
  outcome = connection.meet(request, kBoardBlocking | kBoardStaged, ticket, met);
  return !outcome.ok() || (met && connection.run_staged(*ticket, staged));
}

// What has its place in the order of the operations fails for all ranks: without tensors the worker
// refuses it.
void give_up(Connection& connection, Request request, const std::shared_ptr<Ticket>& ticket) {
  request.in_offset = request.out_offset = 0;
  if (ticket->number && connection.submit(request, ticket).ok()) return connection.abandon(ticket);
  connection.release(ticket->blocks);
}

Outcome check_member(const tutti_group& group) {
  if (!group.left) return {};
  return failure(TUTTI_FAILED_PRECONDITION, "this rank left the group; join again");
}

// A window, an input and an output at most: with room for them, no block that is held is forgotten
// where memory runs out.
std::shared_ptr<Ticket> make_ticket() {
  auto ticket = std::make_shared<Ticket>();
  ticket->blocks.reserve(3);
  return ticket;
}

}  // namespace

Outcome submit(tutti_group& group, const Operation& operation, const tutti_options* options,
               Manner manner, std::shared_ptr<Ticket>& ticket) {
  Request request{};
  Sides sides;
  if (Outcome o = check_member(group); !o.ok()) return o;
  if (Outcome o = read_options(options, request); !o.ok()) return o;
  if (Outcome o = fill(group, operation, request); !o.ok()) return o;
  if (Outcome o = read_sides(group, operation, sides); !o.ok()) return o;
  ticket = make_ticket();
  ticket->bytes = operation.count * tutti_dtype_size(operation.dtype);
  Outcome outcome;
  if (can_stage(group, operation, sides, manner) &&
      run_staged(group, operation, sides, request, ticket, outcome)) {
    if (!outcome.ok()) group.connection->release(ticket->blocks);
    return outcome;
  }
  outcome = Placement(*group.connection, operation, sides, *ticket).place(request);
  const uint32_t flags = manner == Manner::blocking ? kBoardBlocking : 0;
  if (outcome.ok()) return hand_over(group, operation, request, flags, ticket);
  give_up(*group.connection, request, ticket);
  return outcome;
}

Outcome submit_subgroup(tutti_group& group, const uint32_t* ranks, size_t count,
                        std::shared_ptr<Ticket>& ticket) {
  if (Outcome o = check_member(group); !o.ok()) return o;
  ticket = make_ticket();
  std::byte* list = group.connection->allocate(count * sizeof(uint32_t));
  if (list == nullptr) return failure(TUTTI_RESOURCE_EXHAUSTED, "the segment is full");
  std::memcpy(list, ranks, count * sizeof(uint32_t));
  Request request{};
  request.verb = kVerbSubgroup;
  request.group = group.number;
  request.count = count;
  request.in_offset = group.connection->offset_of(list);
  ticket->blocks.push_back(request.in_offset);
  Outcome submitted = group.connection->submit(request, ticket);
  if (!submitted.ok()) group.connection->release(ticket->blocks);
  return submitted;
}

}  // namespace tutti::client
