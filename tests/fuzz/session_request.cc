// A trainer's request as it is copied out of shared memory. What is accepted lies inside the
// segment and is what was asked for; what must be refused is.
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "daemon/session/request.h"
#include "tests/fuzz/input.h"

namespace tutti {
namespace {

using Wide = unsigned __int128;

alignas(64) std::array<std::byte, kArenaOffset + (4 << 20)> segment;

struct Ask {
  GroupPlace place;
  uint64_t segment_bytes;
  uint64_t window_bytes;  // 0: none.
  Request request;
  Collective collective;
  std::vector<uint64_t> counts;  // Of the blocks; empty: they have none of their own.
};

bool is_by_rank(Collective collective) {
  return collective != Collective::all_reduce && collective != Collective::reduce &&
         collective != Collective::broadcast && collective != Collective::barrier;
}

// Writes sound counts to the segment, if the request is for some and they fit.
void write_counts(fuzz::Input& input, Ask& ask) {
  if ((ask.request.flags & kRequestCounts) == 0 || !is_by_rank(ask.collective)) return;
  ask.place.size = ask.place.size % 6 + 1;
  ask.place.rank %= ask.place.size;
  const bool pairs = ask.collective == Collective::all_to_all;
  for (uint32_t i = 0; i < ask.place.size * (pairs ? ask.place.size : 1); ++i)
    ask.counts.push_back(input.take<uint16_t>() >> input.take<uint8_t>() % 16);
  const uint64_t offset = ask.request.count = ask.request.count % segment.size();
  const uint64_t bytes = ask.counts.size() * sizeof(uint64_t);
  if (offset + bytes <= segment.size())
    std::memcpy(segment.data() + offset, ask.counts.data(), bytes);
  if (input.take<uint8_t>() % 8 != 0) ask.request.layout = layout_of(ask.counts);
}

Ask take_ask(fuzz::Input& input) {
  Ask ask;
  ask.place.size = input.take<uint16_t>() + 1u;
  ask.place.rank = input.take<uint16_t>() % ask.place.size;
  const uint64_t segment_bytes = input.take<uint16_t>();
  const uint16_t window = input.take<uint16_t>();
  const bool for_rows = (window & 0x8000) != 0;  // Their windows are large.
  ask.segment_bytes = kArenaOffset + segment_bytes * (for_rows ? 64 : 1);
  ask.window_bytes = window % 32 * (for_rows ? 64 * 1024 : 512);
  ask.request = input.take<Request>();
  const bool known = ask.request.collective < kCollectives;
  ask.collective = known ? static_cast<Collective>(ask.request.collective) : Collective::barrier;
  write_counts(input, ask);
  return ask;
}

// The sum of every `step`-th count from `first` on.
Wide sum_of_counts(const Ask& ask, size_t first, size_t step, size_t number) {
  Wide sum = 0;
  for (size_t i = 0; i < number; ++i) sum += ask.counts[first + i * step];
  return sum;
}

// Elements of a side whose blocks have counts; `blocks`: it has a block for each rank.
Wide uneven_elements(const Ask& ask, bool blocks, bool is_input) {
  const size_t ranks = ask.place.size;
  const size_t rank = ask.place.rank;
  if (!blocks) return ask.counts[rank];
  if (ask.collective != Collective::all_to_all) return sum_of_counts(ask, 0, 1, ranks);
  return is_input ? sum_of_counts(ask, rank * ranks, 1, ranks)
                  : sum_of_counts(ask, rank, ranks, ranks);
}

// How many bytes a side has, by the collectives' definition. `one`: of a tensor, or of a block; of
// an element where blocks have counts.
Wide in_bytes(const Ask& ask, Wide one) {
  if (ask.collective == Collective::barrier) return 0;
  const bool from_root =
      ask.collective == Collective::broadcast || ask.collective == Collective::scatter;
  if (from_root && ask.request.root != ask.place.rank) return 0;
  const bool all = ask.collective == Collective::reduce_scatter ||
                   ask.collective == Collective::scatter ||
                   ask.collective == Collective::all_to_all;
  if (!ask.counts.empty()) return one * uneven_elements(ask, all, true);
  return all ? one * ask.place.size : one;
}

Wide out_bytes(const Ask& ask, Wide one) {
  if (ask.collective == Collective::barrier) return 0;
  const bool to_root = ask.collective == Collective::reduce || ask.collective == Collective::gather;
  if (to_root && ask.request.root != ask.place.rank) return 0;
  const bool all = ask.collective == Collective::all_gather ||
                   ask.collective == Collective::gather || ask.collective == Collective::all_to_all;
  if (!ask.counts.empty()) return one * uneven_elements(ask, all, false);
  return all ? one * ask.place.size : one;
}

bool lies_inside(const std::byte* side, Wide bytes, const Ask& ask, size_t alignment) {
  if (bytes == 0) return side == nullptr;
  if (side == nullptr) return false;
  const auto offset = static_cast<size_t>(side - segment.data());
  return offset >= kArenaOffset && offset + bytes <= ask.segment_bytes && offset % alignment == 0;
}

bool overlap(const Call& op, Wide in, Wide out) {
  if (op.in == nullptr || op.out == nullptr) return false;
  const Wide in_at = op.in - segment.data();
  const Wide out_at = op.out - segment.data();
  return in_at < out_at + out && out_at < in_at + in;
}

// Where its own part of the longer side is the shorter one.
bool is_in_place(const Call& op, const Ask& ask, Wide one) {
  const Wide before =
      ask.counts.empty() ? ask.place.rank : sum_of_counts(ask, 0, 1, ask.place.rank);
  const auto shift = static_cast<ptrdiff_t>(one * before);
  if (ask.collective == Collective::all_to_all) return false;
  if (ask.collective == Collective::all_gather || ask.collective == Collective::gather)
    return op.in - op.out == shift;
  if (ask.collective == Collective::reduce_scatter || ask.collective == Collective::scatter)
    return op.out - op.in == shift;
  return op.in == op.out;
}

void check_strategy(const Strategy& strategy, uint32_t packed) {
  require(pack_strategy(static_cast<uint32_t>(strategy.kind), strategy.arity) == packed,
          "a strategy is what was packed");
  require(strategy.kind <= StrategyKind::ring, "a strategy is one of ours");
  require((strategy.kind == StrategyKind::tree) == (strategy.arity >= 1), "trees have an arity");
}

// Where the tensors are the worker finds out.
void check_device(const Ask& ask, const Call& op) {
  require(op.in == nullptr && op.out == nullptr, "an address is not the board's to give");
  uint64_t count = 0;
  for (const ListedDeviceTensor& tensor : op.device->listed) count += tensor.count;
  const bool listed = (ask.request.flags & kRequestListed) != 0;
  require(listed ? count == op.signature.count : op.device->listed.empty(), "a list is whole");
}

// Both sides lie in one window, each at its place there.
void check_rows(const Ask& ask, const Call& op) {
  const size_t element = size_of(op.signature.dtype);
  const StagedRows& rows = op.rows;
  require(op.counts == nullptr && rows.part != 0, "blocks that pass in rows have one size");
  require(rows.places >= 2 && rows.places * rows.place_bytes <= ask.window_bytes,
          "the rows' places are in the window");
  require((op.in != nullptr) == (in_bytes(ask, 1) != 0 && op.signature.count != 0), "an input");
  require((op.out != nullptr) == (out_bytes(ask, 1) != 0 && op.signature.count != 0), "an output");
  const std::byte* in = op.in != nullptr ? op.in - rows.in * element : nullptr;
  const std::byte* out = op.out != nullptr ? op.out - rows.out * element : nullptr;
  const Wide window = op.in != nullptr || op.out != nullptr ? rows.window_bytes() : 0;
  require(in == nullptr || out == nullptr || in == out, "there is one window");
  require(lies_inside(in != nullptr ? in : out, window, ask, element), "it lies in the arena");
}

void check_accepted(const Ask& ask, const Call& op) {
  check_strategy(op.signature.strategies.local, ask.request.local_strategy);
  check_strategy(op.signature.strategies.global, ask.request.global_strategy);
  require(ask.request.collective < kCollectives, "the collective is known");
  require((ask.request.flags & kRequestRefused) == 0, "what the library refused stays so");
  if (ask.collective == Collective::barrier) return;
  require(ask.request.dtype < kDtypes && op.signature.dtype == Dtype{ask.request.dtype},
          "the dtype is known");
  const bool reduced = reduces(ask.collective);
  require(!reduced || (ask.request.op < kOps && op.signature.op == Op{ask.request.op}),
          "ops are ours");
  require(!reduced || applies_to(op.signature.op, op.signature.dtype), "ops are for the dtype");
  require(!has_root(ask.collective) || ask.request.root < ask.place.size, "a root is a rank");
  const bool uneven = (ask.request.flags & kRequestCounts) != 0;
  require(uneven == (op.counts != nullptr), "counts are what was asked for");
  require(!uneven || *op.counts == ask.counts, "counts are copied");
  require(op.signature.count == (uneven ? std::ranges::max(ask.counts) : ask.request.count),
          "a count is what was asked for");
  const bool staged = (ask.request.flags & kRequestStaged) != 0;
  const bool listed = (ask.request.flags & kRequestListed) != 0;
  require(op.window_bytes == (staged ? ask.window_bytes : 0), "a window is what both agreed on");
  const bool on_device = (ask.request.flags & kRequestDevice) != 0;
  const bool by_ranks = (listed && !on_device) || (staged && ask.window_bytes == 0);
  require(op.ranks_only == by_ranks, "lists and windows of no size are the ranks'");
  if (by_ranks) return require(op.in == nullptr && op.out == nullptr, "they are not followed here");
  require(on_device == op.device.has_value(), "device memory is what was asked for");
  if (on_device) return check_device(ask, op);
  if (op.window_bytes != 0 && is_by_rank(ask.collective)) return check_rows(ask, op);
  const Wide elements = uneven ? 1 : op.signature.count;
  const Wide all = elements * size_of(op.signature.dtype);
  const Wide one = op.window_bytes != 0 ? std::min<Wide>(all, op.window_bytes) : all;
  const Wide in = in_bytes(ask, one);
  const bool at_root =
      ask.collective == Collective::broadcast && op.signature.root == ask.place.rank;
  const Wide out = at_root ? in : out_bytes(ask, one);
  require(lies_inside(op.in, in, ask, size_of(op.signature.dtype)), "an input lies in the arena");
  require(lies_inside(op.out, out, ask, size_of(op.signature.dtype)),
          "an output lies in the arena");
  require(!overlap(op, in, out) || is_in_place(op, ask, one), "no overlap in part");
}

// What is sound by every rule is accepted: refusing everything would be safe, and useless.
bool must_be_accepted(const Ask& ask) {
  const Request& request = ask.request;
  return ask.collective == Collective::all_reduce && request.flags <= kRequestBlocking &&
         request.dtype < kDtypes && request.op == TUTTI_SUM &&
         request.local_strategy == TUTTI_RING && request.global_strategy == 0 &&
         request.in_offset == kArenaOffset && request.out_offset == kArenaOffset &&
         request.count <= 8 && ask.segment_bytes >= kArenaOffset + 64;
}

}  // namespace
}  // namespace tutti

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti;
  fuzz::Input input(data, size);
  const Ask ask = take_ask(input);
  const Call op =
      read_request(ask.request, ask.place, segment.data(), ask.segment_bytes, ask.window_bytes);
  require(op.signature.collective == ask.collective, "the collective is the one asked for");
  if (op.invalid.ok()) {
    check_accepted(ask, op);
    return 0;
  }
  require(!must_be_accepted(ask), "a sound request is accepted");
  const bool refused = (ask.request.flags & kRequestRefused) != 0;
  require(refused || op.invalid.code() == Code::invalid_argument, "a code that fits");
  require(!op.invalid.message().empty(), "says why");
  require(op.in == nullptr && op.out == nullptr, "what is refused has no memory");
  return 0;
}
