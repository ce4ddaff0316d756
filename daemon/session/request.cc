#include "daemon/session/request.h"

#include <string>

namespace tutti {
namespace {

std::string side(std::string_view name, uint64_t offset, uint64_t bytes) {
  return std::string(name) + " side (" + std::to_string(bytes) + " bytes at offset " +
         std::to_string(offset) + ")";
}

Status check_side(std::string_view name, uint64_t offset, uint64_t bytes, uint64_t segment_bytes,
                  Dtype dtype) {
  if (bytes == 0) return {};
  if (!in_arena(offset, bytes, segment_bytes))
    return invalid_argument("the " + side(name, offset, bytes) + " lies outside the segment");
  if (offset % size_of(dtype) != 0)
    return invalid_argument("the " + side(name, offset, bytes) + " is not aligned for " +
                            std::string(name_of(dtype)));
  return {};
}

// Where `out` begins when the operation is in place; both sides are known to lie in the arena.
uint64_t in_place_out(const OpRequest& op, uint64_t in_offset, SideBytes bytes, GroupPlace place) {
  if (op.collective == Collective::all_gather) return in_offset - place.rank * bytes.in;
  if (op.collective == Collective::reduce_scatter) return in_offset + place.rank * bytes.out;
  return in_offset;
}

Status check_overlap(const OpRequest& op, const Request& request, SideBytes bytes,
                     GroupPlace place) {
  if (bytes.in == 0 || bytes.out == 0) return {};
  const uint64_t in = request.in_offset;
  const uint64_t out = request.out_offset;
  if (in + bytes.in <= out || out + bytes.out <= in) return {};
  if (out == in_place_out(op, in, bytes, place)) return {};
  return invalid_argument("the input and the output of " + std::string(name_of(op.collective)) +
                          " overlap in part; use separate buffers or the very same one");
}

Status read_strategy(uint32_t packed, Strategy& strategy) {
  const uint32_t kind = packed & 0xff;
  const uint32_t arity = packed >> 8;
  if (kind > TUTTI_RING) return invalid_argument("strategy " + std::to_string(kind) + " is none");
  strategy = {static_cast<StrategyKind>(kind), arity};
  if (strategy.kind == StrategyKind::tree && arity == 0)
    return invalid_argument("a tree's arity must be >= 1");
  if (strategy.kind != StrategyKind::tree && arity != 0)
    return invalid_argument("only a tree has an arity");
  return {};
}

Status read_types(const Request& request, OpRequest& op) {
  if (request.dtype >= kDtypes)
    return invalid_argument("dtype " + std::to_string(request.dtype) + " is none");
  op.dtype = static_cast<Dtype>(request.dtype);
  if (!reduces(op.collective)) return {};
  if (request.op >= kOps) return invalid_argument("op " + std::to_string(request.op) + " is none");
  op.op = static_cast<Op>(request.op);
  if (op.op == Op::mean && !is_floating(op.dtype))
    return invalid_argument("MEAN needs a floating-point dtype; use SUM and divide");
  return {};
}

Status read_root(const Request& request, GroupPlace place, OpRequest& op) {
  if (!has_root(op.collective)) return {};
  op.root = request.root;
  if (op.root < place.size) return {};
  return invalid_argument("root " + std::to_string(op.root) + " is no rank of a group of " +
                          std::to_string(place.size));
}

// A broadcast's root has one buffer: what it sends is what it ends with.
Status check_broadcast(const Request& request, SideBytes bytes) {
  const uint64_t out = request.out_offset;
  if (bytes.in == 0 || out == 0 || out == request.in_offset) return {};
  return invalid_argument("the root of a broadcast has one buffer, not two");
}

Status read_sides(const Request& request, GroupPlace place, std::byte* base, uint64_t segment_bytes,
                  OpRequest& op) {
  const Result<SideBytes> bytes = side_bytes(op.collective, op.dtype, op.count, op.root, place);
  if (!bytes.ok()) return bytes.status();
  const uint64_t in = request.in_offset;
  const uint64_t out = request.out_offset;
  if (Status s = check_side("input", in, bytes->in, segment_bytes, op.dtype); !s.ok()) return s;
  if (Status s = check_side("output", out, bytes->out, segment_bytes, op.dtype); !s.ok()) return s;
  if (Status s = check_overlap(op, request, *bytes, place); !s.ok()) return s;
  op.in = bytes->in == 0 ? nullptr : base + in;
  op.out = bytes->out == 0 ? nullptr : base + out;
  if (op.collective != Collective::broadcast || op.root != place.rank) return {};
  op.out = op.in;
  return check_broadcast(request, *bytes);
}

Status read_fields(const Request& request, GroupPlace place, std::byte* base,
                   uint64_t segment_bytes, OpRequest& op) {
  if (request.reserved_byte != 0)
    return invalid_argument("reserved fields of the request must be 0");
  if (Status s = read_strategy(request.local_strategy, op.strategies.local); !s.ok()) return s;
  if (Status s = read_strategy(request.global_strategy, op.strategies.global); !s.ok()) return s;
  if (op.collective == Collective::barrier) return {};
  op.count = request.count;
  if (Status s = read_types(request, op); !s.ok()) return s;
  if (Status s = read_root(request, place, op); !s.ok()) return s;
  return read_sides(request, place, base, segment_bytes, op);
}

}  // namespace

Result<SideBytes> side_bytes(Collective collective, Dtype dtype, uint64_t count, uint32_t root,
                             GroupPlace place) {
  uint64_t one = 0;
  uint64_t all = 0;
  if (__builtin_mul_overflow(count, size_of(dtype), &one) ||
      __builtin_mul_overflow(one, uint64_t{place.size}, &all))
    return invalid_argument("count " + std::to_string(count) + " is more than any memory holds");
  const bool at_root = place.rank == root;
  switch (collective) {
    case Collective::all_reduce:
      return SideBytes{one, one};
    case Collective::reduce:
      return SideBytes{one, at_root ? one : 0};
    case Collective::broadcast:
      return at_root ? SideBytes{one, 0} : SideBytes{0, one};
    case Collective::all_gather:
      return SideBytes{one, all};
    case Collective::reduce_scatter:
      return SideBytes{all, one};
    case Collective::barrier:
      break;
  }
  return SideBytes{};
}

bool in_arena(uint64_t offset, uint64_t bytes, uint64_t segment_bytes) {
  return offset >= kArenaOffset && offset <= segment_bytes && bytes <= segment_bytes - offset;
}

OpRequest read_request(const Request& request, GroupPlace place, std::byte* base,
                       uint64_t segment_bytes) {
  OpRequest op;
  op.slot = request.slot;
  op.group = request.group;
  op.collective = static_cast<Collective>(request.verb);
  op.layout = request.layout;
  op.following = request.following;
  op.timeout_ms = request.timeout_ms;
  op.invalid = read_fields(request, place, base, segment_bytes, op);
  if (!op.invalid.ok()) op.in = op.out = nullptr;
  return op;
}

}  // namespace tutti
