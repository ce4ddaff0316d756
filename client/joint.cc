#include "client/joint.h"

#include <algorithm>
#include <cfenv>

#include "client/tutti.h"

namespace tutti::client {
namespace {

// Keeps the number of blocks within 32 bits; no ordinary memory is larger.
constexpr uint64_t kStagedCountMost = uint64_t{1} << 45;

uint64_t elements_of_block(Dtype dtype) { return kBoardBlockBytes / size_of(dtype); }

// All-gather and reduce-scatter concern a block of every rank's.
uint64_t parts_of(Collective collective, uint32_t ranks) {
  const bool each =
      collective == Collective::all_gather || collective == Collective::reduce_scatter;
  return each ? ranks : 1;
}

bool plain_strategy(uint32_t packed) { return packed == TUTTI_AUTO || packed == TUTTI_CENTRALIZED; }

bool same_question(const Request& a, const Request& b) {
  return a.verb == b.verb && a.dtype == b.dtype && a.op == b.op && a.root == b.root &&
         a.count == b.count && a.layout == b.layout && a.local_strategy == b.local_strategy &&
         a.global_strategy == b.global_strategy;
}

struct SideBytes {
  uint64_t in = 0;
  uint64_t out = 0;
};

SideBytes sides_of(const Joint& joint, uint32_t rank) {
  const uint64_t one = joint.count * size_of(joint.dtype);
  const bool at_root = rank == joint.root;
  switch (joint.collective) {
    case Collective::all_reduce:
      return {one, one};
    case Collective::reduce:
      return {one, at_root ? one : 0};
    case Collective::broadcast:
      return at_root ? SideBytes{one, 0} : SideBytes{0, one};
    case Collective::all_gather:
      return {one, one * joint.ranks};
    case Collective::reduce_scatter:
      return {one * joint.ranks, one};
    case Collective::barrier:
      break;
  }
  return {};
}

bool in_arena(uint64_t offset, uint64_t bytes, const Mapped& segment, Dtype dtype) {
  return bytes == 0 || (offset >= kArenaOffset && offset <= segment.bytes &&
                        bytes <= segment.bytes - offset && offset % size_of(dtype) == 0);
}

// Where the output begins that may share memory with the input.
uint64_t in_place_out(const Joint& joint, uint64_t in, SideBytes sides, uint32_t rank) {
  if (joint.collective == Collective::all_gather) return in - rank * sides.in;
  if (joint.collective == Collective::reduce_scatter) return in + rank * sides.out;
  return in;
}

bool read_part(const BoardEntry& entry, const Mapped& segment, Joint& joint, uint32_t rank) {
  const Request request = entry.request;
  const uint64_t in = request.in_offset;
  const uint64_t out = request.out_offset;
  const bool staged = (entry.flags & kBoardStaged) != 0;
  SideBytes sides = sides_of(joint, rank);
  const uint64_t window = kStageBlocks * kBoardBlockBytes;
  if (staged && parts_of(joint.collective, joint.ranks) != 1) return false;
  if (staged && joint.count > kStagedCountMost) return false;
  if (staged) sides = {std::min(sides.in, window), std::min(sides.out, window)};
  if (!in_arena(in, sides.in, segment, joint.dtype) ||
      !in_arena(out, sides.out, segment, joint.dtype))
    return false;
  const bool apart = in + sides.in <= out || out + sides.out <= in;
  const bool both = sides.in != 0 && sides.out != 0;
  if (both && !apart && out != in_place_out(joint, in, sides, rank)) return false;
  joint.parts[rank] = {sides.in != 0 ? segment.base + in : nullptr,
                       sides.out != 0 ? segment.base + out : nullptr, staged,
                       request.slot % kRingSlots};
  joint.bytes += sides.in + sides.out;
  joint.apart &= !both || apart;
  joint.any_staged |= staged;
  joint.anyone_waits |= (entry.flags & kBoardBlocking) != 0;
  return true;
}

// Where element `first` of a side lies, which is `block` blocks into it.
template <class Byte>
Byte* at(Byte* side, const Joint::Part& part, uint64_t first, uint32_t block, Dtype dtype) {
  return side + (part.staged ? block % kStageBlocks * kBoardBlockBytes : first * size_of(dtype));
}

// One kernel call in the making.
struct Fold {
  std::array<Operand, kBoardRanks> sources;
  std::array<Target, kBoardRanks> targets;
  size_t source_count = 0;
  size_t target_count = 0;

  void read(const std::byte* data, Dtype dtype) { sources[source_count++] = {data, dtype}; }
  void write(std::byte* data, Dtype dtype) {
    // A copy onto itself; but a bool becomes 0 or 1.
    const bool itself = source_count == 1 && sources[0].data == data && dtype != Dtype::boolean;
    if (!itself) targets[target_count++] = {data, dtype};
  }
  // `op` and its division are the joint's where it reduces; else the one source is copied.
  void run(const Joint& joint, uint64_t count, Kernel kernel) const {
    if (target_count == 0 || count == 0) return;
    const bool combines = reduces(joint.collective);
    const uint32_t divisor = combines && joint.op == Op::mean ? joint.ranks : 1;
    kernel({targets.data(), target_count, sources.data(), source_count, count,
            combines ? joint.op : Op::sum, divisor, joint.past_cache});
  }
};

// All-reduce, reduce and broadcast: the same elements on both sides.
void run_common(const Joint& joint, uint32_t block, Kernel kernel) {
  const StagedBlock range = staged_block(joint.count, joint.dtype, block);
  const auto sides = [&](Fold& fold, bool reading) {
    for (uint32_t rank = 0; rank < joint.ranks; ++rank) {
      const Joint::Part& part = joint.parts[rank];
      if (reading && part.in != nullptr)
        fold.read(at(part.in, part, range.first, block, joint.dtype), joint.dtype);
      if (!reading && part.out != nullptr)
        fold.write(at(part.out, part, range.first, block, joint.dtype), joint.dtype);
    }
  };
  Fold fold;
  sides(fold, true);
  sides(fold, false);
  fold.run(joint, range.count, kernel);
}

// A block of what belongs to `owner`: one rank's input for all, or one rank's share of the sum.
void run_share(const Joint& joint, uint32_t owner, uint32_t block, Kernel kernel) {
  const StagedBlock range = staged_block(joint.count, joint.dtype, block);
  const size_t element = size_of(joint.dtype);
  const uint64_t within_all = (owner * joint.count + range.first) * element;
  const bool gathers = joint.collective == Collective::all_gather;
  Fold fold;
  if (gathers) fold.read(joint.parts[owner].in + range.first * element, joint.dtype);
  for (uint32_t rank = 0; rank < joint.ranks; ++rank) {
    const Joint::Part& part = joint.parts[rank];
    gathers ? fold.write(part.out + within_all, joint.dtype)
            : fold.read(part.in + within_all, joint.dtype);
  }
  if (!gathers) fold.write(joint.parts[owner].out + range.first * element, joint.dtype);
  fold.run(joint, range.count, kernel);
}

}  // namespace

bool suits_board(const Request& request, uint32_t ranks) {
  if (!plain_strategy(request.local_strategy) || !plain_strategy(request.global_strategy))
    return false;
  if (request.verb >= kCollectives || request.dtype >= kDtypes) return false;
  const auto collective = static_cast<Collective>(request.verb);
  if (collective == Collective::barrier) return true;
  const auto dtype = static_cast<Dtype>(request.dtype);
  if (has_root(collective) && request.root >= ranks) return false;
  if (reduces(collective) && request.op >= kOps) return false;
  if (reduces(collective) && request.op == TUTTI_MEAN && !is_floating(dtype)) return false;
  uint64_t all = 0;
  return !__builtin_mul_overflow(request.count, size_of(dtype) * ranks, &all);
}

uint32_t block_count(const Joint& joint) {
  const uint64_t blocks = board_blocks(joint.count, size_of(joint.dtype));
  return static_cast<uint32_t>(blocks * parts_of(joint.collective, joint.ranks));
}

bool read_joint(const BoardEntry* entries, const Mapped* segments, uint32_t ranks, Joint& joint) {
  const Request first = entries[0].request;
  if (!suits_board(first, ranks)) return false;
  joint.collective = static_cast<Collective>(first.verb);
  joint.dtype = static_cast<Dtype>(first.dtype);
  joint.op = static_cast<Op>(first.op);
  joint.root = first.root;
  joint.count = joint.collective == Collective::barrier ? 0 : first.count;
  joint.ranks = ranks;
  joint.bytes = 0;
  joint.any_staged = joint.anyone_waits = joint.past_cache = false;
  joint.apart = true;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    if (!same_question(entries[rank].request, first)) return false;
    if (!read_part(entries[rank], segments[rank], joint, rank)) return false;
  }
  joint.blocks = block_count(joint);
  return true;
}

// Whoever folds a block, in whatever mode its process computes, the bits are the same.
class PlainArithmetic {
 public:
  PlainArithmetic() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  PlainArithmetic(const PlainArithmetic&) = delete;
  PlainArithmetic& operator=(const PlainArithmetic&) = delete;
  ~PlainArithmetic() { std::fesetenv(&before_); }

 private:
  std::fenv_t before_{};
};

void run_block(const Joint& joint, uint32_t block, Kernel kernel) {
  const PlainArithmetic plain;
  if (parts_of(joint.collective, joint.ranks) == 1) return run_common(joint, block, kernel);
  const auto each = static_cast<uint32_t>(board_blocks(joint.count, size_of(joint.dtype)));
  run_share(joint, block / each, block % each, kernel);
}

StagedBlock staged_block(uint64_t count, Dtype dtype, uint32_t block) {
  const uint64_t first = block * elements_of_block(dtype);
  return {first, std::min(count - first, elements_of_block(dtype)),
          block % kStageBlocks * kBoardBlockBytes};
}

uint32_t staged_blocks(uint64_t count, Dtype dtype) {
  return static_cast<uint32_t>(board_blocks(count, size_of(dtype)));
}

}  // namespace tutti::client
