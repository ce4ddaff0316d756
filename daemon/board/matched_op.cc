#include "daemon/board/matched_op.h"

#include <algorithm>
#include <array>
#include <utility>

#include "daemon/base/signature.h"
#include "daemon/board/area.h"
#include "daemon/board/sides.h"

namespace tutti::board {
namespace {

constexpr size_t kScratchBytes = 64 << 10;  // On the stack of a trainer's thread.
// Keeps the number of blocks within 31 bits; no ordinary memory is larger.
constexpr uint64_t kBlockedCountMax = uint64_t{1} << 44;

uint64_t elements_of_block(Dtype dtype) { return kBoardBlockBytes / size_of(dtype); }

uint64_t blocks_of_side(uint64_t count, Dtype dtype) {
  const uint64_t elements = elements_of_block(dtype);
  return count / elements + (count % elements != 0 ? 1 : 0);
}

// Most requests name no strategy.
bool is_strategy(uint32_t packed) { return packed == TUTTI_AUTO || unpacked(packed).ok(); }

bool has_counts(const Request& request) { return (request.flags & kRequestCounts) != 0; }

bool same_question(const Request& a, const Request& b) {
  const bool same_order = ((a.flags ^ b.flags) & (kRequestReproducible | kRequestVerify)) == 0;
  const bool same_count = has_counts(a) == has_counts(b) && (has_counts(a) || a.count == b.count);
  return a.collective == b.collective && a.dtype == b.dtype && a.op == b.op && a.root == b.root &&
         same_count && same_order && a.layout == b.layout && a.local_strategy == b.local_strategy &&
         a.global_strategy == b.global_strategy;
}

bool is_aligned_in(const SegmentView& memory, uint64_t offset, uint64_t bytes, size_t alignment) {
  return bytes == 0 || (in_arena(offset, bytes, memory.bytes) && offset % alignment == 0);
}

bool add_listed(const MemberRequest& asked, MatchedOp& op, MatchedOp::Member& member) {
  const uint64_t records = uint64_t{asked.request.records} * sizeof(ListedTensor);
  if (asked.request.records > std::min<uint64_t>(op.count, kListedTensorsMax)) return false;
  if (!is_aligned_in(asked.memory, asked.request.in_offset, records, alignof(ListedTensor)))
    return false;
  // The offset of an empty list is not checked, and not used.
  const uint64_t at = records != 0 ? asked.request.in_offset : 0;
  member.list = reinterpret_cast<const ListedTensor*>(asked.memory.base + at);
  member.tensors = asked.request.records;
  op.listed = true;
  op.bytes += 2 * op.count * size_of(op.dtype);
  op.disjoint = false;
  return true;
}

// Both sides pass through one window.
bool add_rows(const MemberRequest& asked, const SideBytes& sides, MatchedOp& op,
              MatchedOp::Member& member, GroupPlace place) {
  const StagedRows rows = staged_rows(op.sizes.blocks(), place.rank, op.dtype, op.count);
  if (op.sizes.has_counts() || rows.part == 0 || rows.rows() > INT32_MAX) return false;
  const uint64_t offset = sides.in != 0 ? asked.request.in_offset : asked.request.out_offset;
  const uint64_t element = size_of(op.dtype);
  if (sides.in != 0 && sides.out != 0 && asked.request.out_offset != offset) return false;
  if (!is_aligned_in(asked.memory, offset, rows.window_bytes(), element)) return false;
  std::byte* const at = asked.memory.base + offset;
  member.in = sides.in != 0 ? at + rows.in * element : nullptr;
  member.out = sides.out != 0 ? at + rows.out * element : nullptr;
  op.rows = rows;
  op.blocks = static_cast<uint32_t>(rows.rows());
  return true;
}

bool add_plain(const MemberRequest& asked, MatchedOp& op, MatchedOp::Member& member,
               GroupPlace place) {
  std::optional<SideBytes> sides =
      has_blocks(op.collective) ? side_bytes(op.sizes, op.dtype, place.rank)
                                : side_bytes(op.collective, op.dtype, op.count, op.root, place);
  if (!sides) return false;
  const uint64_t window = kWindowBlocks * kBoardBlockBytes;
  if (member.staged && has_blocks(op.collective)) return add_rows(asked, *sides, op, member, place);
  if (member.staged) sides = {std::min(sides->in, window), std::min(sides->out, window), 0};
  const uint64_t in = asked.request.in_offset;
  const uint64_t out = asked.request.out_offset;
  const size_t alignment = size_of(op.dtype);
  if (!is_aligned_in(asked.memory, in, sides->in, alignment) ||
      !is_aligned_in(asked.memory, out, sides->out, alignment) ||
      !may_share(op.collective, in, out, *sides))
    return false;
  member.in = sides->in != 0 ? asked.memory.base + in : nullptr;
  member.out = sides->out != 0 ? asked.memory.base + out : nullptr;
  op.bytes += sides->in + sides->out;
  const bool both = sides->in != 0 && sides->out != 0;
  op.disjoint &= !both || in + sides->in <= out || out + sides->out <= in;
  return true;
}

bool add_part(const MemberRequest& asked, MatchedOp& op, GroupPlace place) {
  MatchedOp::Member& member = op.members[place.rank];
  member = {};
  member.staged = (asked.request.flags & kRequestStaged) != 0;
  member.memory = asked.memory;
  op.any_staged |= member.staged;
  op.anyone_waits |= (asked.request.flags & kRequestBlocking) != 0;
  const bool listed = (asked.request.flags & kRequestListed) != 0;
  return listed ? add_listed(asked, op, member) : add_plain(asked, op, member, place);
}

// A rank's memory from some element of its tensor on, as far as it is contiguous.
struct Piece {
  const std::byte* in;
  std::byte* out;
  uint64_t count;
};
constexpr Piece kNoPiece{nullptr, nullptr, 0};

// Records may change at any moment: each use copies and checks them.
Piece listed_piece(const MatchedOp& op, MatchedOp::Member& member, uint64_t first) {
  if (first < member.first) member.tensor = 0, member.first = 0;
  for (; member.tensor < member.tensors; ++member.tensor) {
    auto& record = const_cast<ListedTensor&>(member.list[member.tensor]);
    const uint64_t count = std::atomic_ref(record.count).load(std::memory_order_relaxed);
    if (first - member.first < count) {
      const uint64_t in = std::atomic_ref(record.in_offset).load(std::memory_order_relaxed);
      const uint64_t out = std::atomic_ref(record.out_offset).load(std::memory_order_relaxed);
      const size_t element = size_of(op.dtype);
      uint64_t bytes = 0;
      if (__builtin_mul_overflow(count, element, &bytes) ||
          !is_aligned_in(member.memory, in, bytes, element) ||
          !is_aligned_in(member.memory, out, bytes, element))
        return kNoPiece;
      const uint64_t skip = (first - member.first) * element;
      return {member.memory.base + in + skip, member.memory.base + out + skip,
              count - (first - member.first)};
    }
    member.first += count;
  }
  return kNoPiece;
}

Piece piece_at(const MatchedOp& op, MatchedOp::Member& member, uint64_t first, uint64_t count,
               uint32_t block) {
  if (member.list != nullptr) return listed_piece(op, member, first);
  const size_t element = size_of(op.dtype);
  const uint64_t within = first % elements_of_block(op.dtype) * element;
  const uint64_t offset =
      member.staged ? block % kWindowBlocks * kBoardBlockBytes + within : first * element;
  return {member.in != nullptr ? member.in + offset : nullptr,
          member.out != nullptr ? member.out + offset : nullptr, count};
}

// Collects the sources and targets of one pass over memory, and runs it.
class Pass {
 public:
  explicit Pass(MatchedOp& op) : op_(op) {}

  void read(const std::byte* data) { sources_[source_count_++] = {data, op_.dtype}; }
  void write(std::byte* data) {
    // Skips a copy onto itself, except of bools, which become 0 or 1.
    const bool itself =
        source_count_ == 1 && sources_[0].data == data && op_.dtype != Dtype::boolean;
    if (!itself) targets_[target_count_++] = {data, op_.dtype};
  }
  // Reduces the sources as the operation says, or copies the one source.
  void run(uint64_t count, Kernel kernel) const {
    if (target_count_ == 0 || source_count_ == 0 || count == 0) return;
    const bool combines = reduces(op_.collective);
    const auto ranks = static_cast<uint32_t>(op_.members.size());
    const uint32_t divisor = combines && op_.op == Op::mean ? ranks : 1;
    if (combines && !op_.folds.empty()) return run_folds(count, divisor, kernel);
    kernel({targets_.data(), target_count_, sources_.data(), source_count_, count,
            combines ? op_.op : Op::sum, divisor, op_.past_cache});
  }

 private:
  void run_folds(uint64_t count, uint32_t divisor, Kernel kernel) const {
    std::array<const std::byte*, kLocalRanksMax> from;  // NOLINT: filled as far as it is used.
    std::transform(
        sources_.begin(), sources_.begin() + source_count_, from.begin(),
        [](const Operand& source) { return static_cast<const std::byte*>(source.data); });
    if (op_.collective == Collective::reduce)
      std::rotate(from.begin(), from.begin() + op_.root, from.begin() + op_.root + 1);
    std::array<std::byte, kScratchBytes> scratch;  // NOLINT: written before it is read.
    tutti::run_folds({.folds = op_.folds,
                      .contributions = {from.data(), source_count_},
                      .targets = {targets_.data(), target_count_},
                      .dtype = op_.dtype,
                      .op = op_.op,
                      .count = count,
                      .divisor = divisor,
                      .past_cache = op_.past_cache,
                      .scratch = scratch},
                     [&](const FoldJob& job) { return kernel(job), true; });
  }

  MatchedOp& op_;
  std::array<Operand, kLocalRanksMax> sources_;  // NOLINT: filled as far as it is used.
  std::array<Target, kLocalRanksMax> targets_;   // NOLINT
  size_t source_count_ = 0;
  size_t target_count_ = 0;
};

// For all_reduce, reduce and broadcast: both sides have the same elements. A list is folded in runs
// that are contiguous on every rank.
void run_common(MatchedOp& op, uint32_t block, Kernel kernel) {
  const StagedBlock range = staged_block(op.count, op.dtype, block);
  for (uint64_t done = 0; done < range.count;) {
    uint64_t count = range.count - done;
    std::array<Piece, kLocalRanksMax> pieces;  // NOLINT: filled as far as it is used.
    for (size_t rank = 0; rank < op.members.size(); ++rank) {
      pieces[rank] = piece_at(op, op.members[rank], range.first + done, count, block);
      count = std::min(count, pieces[rank].count);
    }
    if (count == 0) return;  // The list has changed.
    Pass pass(op);
    for (size_t rank = 0; rank < op.members.size(); ++rank)
      if (pieces[rank].in != nullptr) pass.read(pieces[rank].in);
    for (size_t rank = 0; rank < op.members.size(); ++rank)
      if (pieces[rank].out != nullptr) pass.write(pieces[rank].out);
    pass.run(count, kernel);
    done += count;
  }
}

// For collectives with blocks: a part of one of them.
void run_share(MatchedOp& op, uint32_t share, const StagedBlock& range, Kernel kernel) {
  const Blocks& blocks = op.sizes.blocks();
  const size_t element = size_of(op.dtype);
  const auto offset = [&](const MatchedOp::Member& member, uint64_t first, uint32_t index) {
    if (!member.staged) return (first + range.first) * element;
    return op.rows.offset(range.first / op.rows.part) + index * op.rows.part * element;
  };
  const RankRange senders = blocks.senders(share);
  const RankRange receivers = blocks.receivers(share);
  Pass pass(op);
  for (uint32_t rank = senders.begin; rank < senders.end; ++rank)
    pass.read(op.members[rank].in + offset(op.members[rank], op.sizes.first_in_input(share),
                                           blocks.index_in_input(share)));
  for (uint32_t rank = receivers.begin; rank < receivers.end; ++rank)
    pass.write(op.members[rank].out + offset(op.members[rank], op.sizes.first_in_output(share),
                                             blocks.index_in_output(share)));
  pass.run(range.count, kernel);
}

void run_row(MatchedOp& op, uint32_t row, Kernel kernel) {
  for (uint32_t share = 0; share < op.sizes.blocks().count(); ++share)
    run_share(op, share, {op.rows.first(row), op.rows.elements(row)}, kernel);
}

// The block of the tensors that a block of the board is a part of, and which part.
std::pair<uint32_t, uint32_t> share_of(const MatchedOp& op, uint32_t block) {
  if (op.part_ends.empty()) {
    const auto each = static_cast<uint32_t>(blocks_of_side(op.count, op.dtype));
    return {block / each, block % each};
  }
  const auto share = std::ranges::upper_bound(op.part_ends, block) - op.part_ends.begin();
  const uint32_t first = share == 0 ? 0 : op.part_ends[static_cast<size_t>(share) - 1];
  return {static_cast<uint32_t>(share), block - first};
}

// Copies the counts of the blocks. Another process may change them meanwhile; false, unless they
// have the layout.
bool read_counts(const MemberRequest& asked, const Blocks& blocks, MatchedOp& op) {
  if (uint64_t{blocks.ranks} * blocks.ranks > kListedTensorsMax) return false;
  const uint64_t bytes = uint64_t{blocks.count()} * sizeof(uint64_t);
  if (!is_aligned_in(asked.memory, asked.request.count, bytes, sizeof(uint64_t))) return false;
  const auto* counts = reinterpret_cast<const uint64_t*>(asked.memory.base + asked.request.count);
  op.sizes.assign(blocks, {counts, blocks.count()});
  if (layout_of(op.sizes.counts()) != asked.request.layout) return false;
  op.count = op.sizes.largest();
  uint64_t parts = 0;
  for (const uint64_t count : op.sizes.counts()) {
    parts += std::min(blocks_of_side(count, op.dtype), kBlockedCountMax);
    op.part_ends.push_back(static_cast<uint32_t>(parts));
    if (parts > INT32_MAX) return false;
  }
  op.blocks = static_cast<uint32_t>(parts);
  return true;
}

// Reads the sizes of the tensors, and so the number of blocks to fold, from one member's request.
bool read_count(const MemberRequest& asked, uint32_t ranks, MatchedOp& op) {
  const Request& request = asked.request;
  const Blocks blocks{op.collective, op.root, ranks};
  op.part_ends.clear();
  if (has_blocks(op.collective) && has_counts(request)) return read_counts(asked, blocks, op);
  op.count = op.collective == Collective::barrier ? 0 : request.count;
  op.sizes.assign(blocks, op.count);
  const uint64_t shares = has_blocks(op.collective) ? blocks.count() : 1;
  op.blocks = static_cast<uint32_t>(blocks_of_side(op.count, op.dtype) * shares);
  return true;
}

void choose_folds(const Request& request, MatchedOp& op) {
  const uint32_t local = request.local_strategy;
  op.folds.clear();
  if ((request.flags & kRequestReproducible) != 0) return;
  if (local == TUTTI_AUTO || local == TUTTI_CENTRALIZED || !reduces(op.collective)) return;
  op.folds = local_folds(*unpacked(local), static_cast<int>(op.members.size()));
}

}  // namespace

bool can_fold(const Request& request, uint32_t ranks) {
  if ((request.flags & (kRequestRefused | kRequestDevice)) != 0) return false;
  if (!is_strategy(request.local_strategy) || !is_strategy(request.global_strategy)) return false;
  if (request.collective >= kCollectives || request.dtype >= kDtypes) return false;
  const auto collective = static_cast<Collective>(request.collective);
  if (collective == Collective::barrier) return true;
  const auto dtype = static_cast<Dtype>(request.dtype);
  if (has_root(collective) && request.root >= ranks) return false;
  if (reduces(collective) && request.op >= kOps) return false;
  if (reduces(collective) && !applies_to(static_cast<Op>(request.op), dtype)) return false;
  const bool listed = (request.flags & kRequestListed) != 0;
  if (listed && collective != Collective::all_reduce) return false;
  if (has_counts(request)) return has_blocks(collective) && !listed;
  uint64_t all = 0;
  const uint64_t shares = has_blocks(collective) ? Blocks{collective, 0, ranks}.count() : 1;
  return request.count <= kBlockedCountMax / std::max<uint64_t>(ranks, shares) &&
         !__builtin_mul_overflow(request.count, size_of(dtype) * ranks, &all);
}

bool match(std::span<const MemberRequest> asked, MatchedOp& op) {
  const Request& first = asked.front().request;
  const auto ranks = static_cast<uint32_t>(asked.size());
  if (!can_fold(first, ranks)) return false;
  op.collective = static_cast<Collective>(first.collective);
  op.dtype = static_cast<Dtype>(first.dtype);
  op.op = static_cast<Op>(first.op);
  op.root = first.root;
  op.bytes = 0;
  op.listed = op.any_staged = op.anyone_waits = op.past_cache = false;
  op.disjoint = true;
  op.rows = {};
  op.members.resize(ranks);
  const auto agrees = [&](const MemberRequest& other) {
    return same_question(other.request, first) && can_fold(other.request, ranks);
  };
  if (!std::ranges::all_of(asked.subspan(1), agrees) || !read_count(asked.front(), ranks, op))
    return false;
  for (uint32_t rank = 0; rank < ranks; ++rank)
    if (!add_part(asked[rank], op, {rank, ranks})) return false;
  choose_folds(first, op);
  return true;
}

// A small operation is folded by the last rank to arrive alone.
Decision decide(const MatchedOp& op) {
  if (op.blocks == 0) return {Phase::done, 0, false};
  const bool small = op.bytes <= uint64_t{2} * op.members.size() * kBoardBlockBytes;
  return {Phase::folding, op.blocks, small && !op.any_staged};
}

void run_block(MatchedOp& op, uint32_t block, Kernel kernel) {
  const PlainArithmetic plain;
  if (!has_blocks(op.collective)) return run_common(op, block, kernel);
  if (op.rows.part != 0) return run_row(op, block, kernel);
  const auto [share, part] = share_of(op, block);
  run_share(op, share, staged_block(op.sizes.count(share), op.dtype, part), kernel);
}

StagedBlock staged_block(uint64_t count, Dtype dtype, uint32_t block) {
  const uint64_t first = block * elements_of_block(dtype);
  return {first, std::min(count - first, elements_of_block(dtype))};
}

uint32_t staged_blocks(uint64_t count, Dtype dtype) {
  return static_cast<uint32_t>(blocks_of_side(count, dtype));
}

}  // namespace tutti::board
