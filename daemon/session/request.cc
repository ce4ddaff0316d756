#include "daemon/session/request.h"

#include <algorithm>
#include <cstring>
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

Status check_op(Op op, Dtype dtype) {
  if (applies_to(op, dtype)) return {};
  if (op == Op::mean)
    return invalid_argument("MEAN needs a floating-point dtype; use SUM and divide");
  if (op == Op::premul_sum)
    return invalid_argument("PREMUL_SUM needs a floating-point dtype; multiply and use SUM");
  const char* name = op == Op::band ? "BAND" : op == Op::bor ? "BOR" : "BXOR";
  return invalid_argument(std::string(name) + " needs integers or bools");
}

Status read_types(const Request& request, Signature& asked) {
  if (request.dtype >= kDtypes)
    return invalid_argument("unknown dtype " + std::to_string(request.dtype));
  asked.dtype = static_cast<Dtype>(request.dtype);
  if (!reduces(asked.collective)) return {};
  if (request.op >= kOps) return invalid_argument("unknown op " + std::to_string(request.op));
  asked.op = static_cast<Op>(request.op);
  return check_op(asked.op, asked.dtype);
}

Status read_root(const Request& request, GroupPlace place, Signature& asked) {
  if (!has_root(asked.collective)) return {};
  asked.root = request.root;
  if (asked.root < place.size) return {};
  return invalid_argument("root " + std::to_string(asked.root) + " is no rank of a group of " +
                          std::to_string(place.size));
}

// A broadcast's root has one buffer, which is input and output.
Status check_broadcast(const Request& request, SideBytes bytes) {
  const uint64_t out = request.out_offset;
  if (bytes.in == 0 || out == 0 || out == request.in_offset) return {};
  return invalid_argument("the root of a broadcast has one buffer, not two");
}

// Copies the counts of the blocks, and checks that they are those of the signature.
Status read_counts(const Request& request, GroupPlace place, const std::byte* base,
                   uint64_t segment_bytes, Call& call) {
  Signature& asked = call.signature;
  const Blocks blocks{asked.collective, asked.root, place.size};
  if (!has_blocks(asked.collective))
    return invalid_argument(std::string(name_of(asked.collective)) + " has no counts");
  if (uint64_t{place.size} * place.size > kListedTensorsMax)
    return invalid_argument("a group of " + std::to_string(place.size) +
                            " ranks is too large for counts");
  const uint64_t bytes = uint64_t{blocks.count()} * sizeof(uint64_t);
  if (!in_arena(request.count, bytes, segment_bytes) || request.count % sizeof(uint64_t) != 0)
    return invalid_argument("the counts lie outside the segment");
  const auto* counts = reinterpret_cast<const uint64_t*>(base + request.count);
  call.counts = std::make_shared<const std::vector<uint64_t>>(counts, counts + blocks.count());
  if (layout_of(*call.counts) != asked.layout)
    return invalid_argument("the counts are not those of the layout");
  asked.count = std::ranges::max(*call.counts);
  return {};
}

std::optional<SideBytes> sides_of(const Call& call, GroupPlace place) {
  const Signature& asked = call.signature;
  if (call.counts == nullptr)
    return side_bytes(asked.collective, asked.dtype, asked.count, asked.root, place);
  return side_bytes(BlockSizes({asked.collective, asked.root, place.size}, *call.counts),
                    asked.dtype, place.rank);
}

// Copies the records of a list in device memory once: tensors that have `count` elements together.
Status read_listed(const Request& request, const std::byte* base, uint64_t segment_bytes,
                   DeviceCall& device) {
  if (static_cast<Collective>(request.collective) != Collective::all_reduce)
    return invalid_argument("lists of tensors are for all_reduce");
  const uint64_t offset = request.in_offset + sizeof(DeviceRequest);
  const uint64_t bytes = uint64_t{request.records} * sizeof(ListedDeviceTensor);
  if (request.records == 0 || request.records > request.count ||
      request.records > kListedTensorsMax || !in_arena(offset, bytes, segment_bytes))
    return invalid_argument("the records of a list lie outside the segment");
  device.listed.resize(request.records);
  std::memcpy(device.listed.data(), base + offset, bytes);
  uint64_t count = 0;
  for (const ListedDeviceTensor& tensor : device.listed)
    if (tensor.count == 0 || __builtin_add_overflow(count, tensor.count, &count))
      return invalid_argument("a tensor of the list has no count");
  if (count == request.count) return {};
  return invalid_argument("the list's tensors have " + std::to_string(count) +
                          " elements together, not " + std::to_string(request.count));
}

// Copies the record of a request for device memory once. Whether the memory is what it says, the
// worker finds out.
Status read_device(const Request& request, const std::byte* base, uint64_t segment_bytes,
                   Call& call) {
  DeviceCall device;
  if (!in_arena(request.in_offset, sizeof(device.asked), segment_bytes) ||
      request.in_offset % alignof(DeviceRequest) != 0)
    return invalid_argument("the record of device memory lies outside the segment");
  std::memcpy(&device.asked, base + request.in_offset, sizeof(device.asked));
  call.device = device;
  return {};
}

// Both sides of a tensor with blocks pass through one window, row by row.
Status read_rows(const Request& request, const SideBytes& bytes, GroupPlace place,
                 const board::SegmentView& segment, Call& call) {
  const auto& [collective, dtype, op, count, root, strategies, layout, on_device, reproducible,
               verifies] = call.signature;
  const Blocks blocks{collective, root, place.size};
  call.rows = staged_rows_between_hosts(blocks, place.rank, dtype, count, call.window_bytes);
  if (call.rows.part == 0 || call.counts != nullptr)
    return invalid_argument("such tensors of " + std::string(name_of(collective)) +
                            " do not pass through windows");
  if (bytes.in == 0 && bytes.out == 0) return {};
  const uint64_t offset = bytes.in != 0 ? request.in_offset : request.out_offset;
  if (bytes.in != 0 && bytes.out != 0 && request.out_offset != offset)
    return invalid_argument("the sides of " + std::string(name_of(collective)) +
                            " are in two windows");
  const uint64_t window = call.rows.window_bytes();
  if (Status s = check_side("window", offset, window, segment.bytes, dtype); !s.ok()) return s;
  const size_t element = size_of(dtype);
  if (bytes.in != 0) call.in = segment.base + offset + call.rows.in * element;
  if (bytes.out != 0) call.out = segment.base + offset + call.rows.out * element;
  return {};
}

Status read_sides(const Request& request, GroupPlace place, std::byte* base, uint64_t segment_bytes,
                  Call& call) {
  const auto& [collective, dtype, op, count, root, strategies, layout, on_device, reproducible,
               verifies] = call.signature;
  std::optional<SideBytes> bytes = sides_of(call, place);
  if (!bytes)
    return invalid_argument("count " + std::to_string(count) + " is more than any memory holds");
  if (call.ranks_only) return {};
  if (on_device) {
    call.device->in_bytes = bytes->in;
    call.device->out_bytes = bytes->out;
    call.device->own_block = bytes->own_block;
    const bool listed = (request.flags & kRequestListed) != 0;
    return listed ? read_listed(request, base, segment_bytes, *call.device) : Status();
  }
  const std::string name(name_of(collective));
  if (call.window_bytes != 0 && has_blocks(collective))
    return read_rows(request, *bytes, place, {base, segment_bytes}, call);
  if (call.window_bytes != 0)
    bytes = {std::min(bytes->in, call.window_bytes), std::min(bytes->out, call.window_bytes), 0};
  const uint64_t in = request.in_offset;
  const uint64_t out = request.out_offset;
  if (Status s = check_side("input", in, bytes->in, segment_bytes, dtype); !s.ok()) return s;
  if (Status s = check_side("output", out, bytes->out, segment_bytes, dtype); !s.ok()) return s;
  if (!may_share(collective, in, out, *bytes))
    return invalid_argument("the input and the output of " + name +
                            " overlap in part; use separate buffers or the very same one");
  call.in = bytes->in == 0 ? nullptr : base + in;
  call.out = bytes->out == 0 ? nullptr : base + out;
  if (collective != Collective::broadcast || root != place.rank) return {};
  call.out = call.in;
  return check_broadcast(request, *bytes);
}

// The reason that the library wrote where it refused the call.
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
                   uint64_t segment_bytes, Call& call) {
  Signature& asked = call.signature;
  if (request.collective >= kCollectives)
    return invalid_argument("unknown collective " + std::to_string(request.collective));
  asked.collective = static_cast<Collective>(request.collective);
  if ((request.flags & kRequestRefused) != 0) return read_refusal(request, base, segment_bytes);
  asked.on_device =
      (request.flags & kRequestDevice) != 0 && asked.collective != Collective::barrier;
  // First: the rank's stream waits, whatever else is wrong.
  if (asked.on_device)
    if (Status s = read_device(request, base, segment_bytes, call); !s.ok()) return s;
  const auto strategies = unpacked(request.local_strategy, request.global_strategy);
  if (!strategies.ok()) return strategies.status();
  asked.strategies = *strategies;
  asked.reproducible = (request.flags & kRequestReproducible) != 0 && reduces(asked.collective);
  asked.verifies = (request.flags & kRequestVerify) != 0 && is_common(asked.collective);
  if (asked.collective == Collective::barrier) return {};
  if (asked.on_device && (request.flags & kRequestStaged) != 0)
    return invalid_argument("device memory passes through no window");
  asked.count = request.count;
  if (Status s = read_types(request, asked); !s.ok()) return s;
  if (Status s = read_root(request, place, asked); !s.ok()) return s;
  if ((request.flags & kRequestCounts) != 0)
    if (Status s = read_counts(request, place, base, segment_bytes, call); !s.ok()) return s;
  return read_sides(request, place, base, segment_bytes, call);
}

}  // namespace

Call read_request(const Request& request, GroupPlace place, std::byte* base, uint64_t segment_bytes,
                  uint64_t window_bytes) {
  Call call;
  call.signature.layout = request.layout;
  call.timeout_ms = request.timeout_ms;
  const bool staged = (request.flags & kRequestStaged) != 0;
  const bool windowed = staged && window_bytes != 0;
  const bool on_device = (request.flags & kRequestDevice) != 0;
  const bool listed = (request.flags & kRequestListed) != 0;
  call.ranks_only = (listed && !on_device) || (staged && !windowed);
  if (windowed) call.window_bytes = window_bytes;
  call.invalid = read_fields(request, place, base, segment_bytes, call);
  if (!call.invalid.ok()) call.in = call.out = nullptr;
  return call;
}

}  // namespace tutti
