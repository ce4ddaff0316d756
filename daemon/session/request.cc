#include "daemon/session/request.h"

#include <algorithm>
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

Status check_overlap(const OpRequest& op, const Request& request, SideBytes bytes,
                     GroupPlace place) {
  if (may_share(op.collective, request.in_offset, request.out_offset, bytes, place)) return {};
  return invalid_argument("the input and the output of " + std::string(name_of(op.collective)) +
                          " overlap in part; use separate buffers or the very same one");
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
  std::optional<SideBytes> bytes = side_bytes(op.collective, op.dtype, op.count, op.root, place);
  if (!bytes)
    return invalid_argument("count " + std::to_string(op.count) + " is more than any memory holds");
  if (op.ranks_only) return {};
  if (op.window_bytes != 0) {
    if (has_blocks(op.collective))
      return invalid_argument("tensors of " + std::string(name_of(op.collective)) +
                              " do not pass through windows");
    bytes = {std::min(bytes->in, op.window_bytes), std::min(bytes->out, op.window_bytes)};
  }
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

// The library says why it refused the call.
Status read_refusal(const Request& request, const std::byte* base, uint64_t segment_bytes) {
  const Code code = code_of(static_cast<int>(request.root));
  const uint64_t length = std::min<uint64_t>(request.count, kMessageBytes - 1);
  std::string why = "the call was refused";
  if (length != 0 && in_arena(request.in_offset, length, segment_bytes))
    why.assign(reinterpret_cast<const char*>(base + request.in_offset), length);
  for (char& c : why)
    if (static_cast<unsigned char>(c) < ' ') c = '?';
  return {code == Code::ok ? Code::unknown : code, why};
}

Status read_fields(const Request& request, GroupPlace place, std::byte* base,
                   uint64_t segment_bytes, OpRequest& op) {
  if (request.verb >= kCollectives)
    return invalid_argument("verb " + std::to_string(request.verb) + " is none");
  op.collective = static_cast<Collective>(request.verb);
  if ((request.flags & kRequestRefused) != 0) return read_refusal(request, base, segment_bytes);
  const Result<Strategy> local = unpacked(request.local_strategy);
  const Result<Strategy> global = unpacked(request.global_strategy);
  if (!local.ok()) return local.status();
  if (!global.ok()) return global.status();
  op.strategies = {*local, *global};
  if (op.collective == Collective::barrier) return {};
  op.count = request.count;
  if (Status s = read_types(request, op); !s.ok()) return s;
  if (Status s = read_root(request, place, op); !s.ok()) return s;
  return read_sides(request, place, base, segment_bytes, op);
}

}  // namespace

OpRequest read_request(const Request& request, GroupPlace place, std::byte* base,
                       uint64_t segment_bytes, uint64_t window_bytes) {
  OpRequest op;
  op.layout = request.layout;
  op.timeout_ms = request.timeout_ms;
  op.blocking = (request.flags & kRequestBlocking) != 0;
  const bool staged = (request.flags & kRequestStaged) != 0;
  const bool windowed = staged && window_bytes != 0;
  op.ranks_only = (request.flags & kRequestListed) != 0 || (staged && !windowed);
  if (windowed) op.window_bytes = window_bytes;
  op.invalid = read_fields(request, place, base, segment_bytes, op);
  if (!op.invalid.ok()) op.in = op.out = nullptr;
  return op;
}

}  // namespace tutti
