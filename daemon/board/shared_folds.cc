#include "daemon/board/shared_folds.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "daemon/base/strategy.h"

namespace tutti::board {
namespace {

constexpr size_t kInnerBytes = 64 << 10;                 // On the stack of a trainer's thread.
constexpr uint64_t kFoldedCountMax = uint64_t{1} << 40;  // Of no memory that is mapped.

const SegmentView* view_of(uint32_t place, const FoldMemory& memory) {
  if (place == kWirePlace) return &memory.wire;
  return place < memory.segments.size() ? &memory.segments[place] : nullptr;
}

// Once: it may change meanwhile.
uint64_t load(const uint64_t& place) {
  return std::atomic_ref(const_cast<uint64_t&>(place)).load(std::memory_order_relaxed);
}

// Null: not all of it lies in that memory.
std::byte* resolve(uint64_t packed, uint64_t bytes, const FoldMemory& memory) {
  const SegmentView* view = view_of(static_cast<uint32_t>(packed >> 48), memory);
  const uint64_t offset = packed & ((uint64_t{1} << 48) - 1);
  if (view == nullptr || view->base == nullptr) return nullptr;
  if (offset > view->bytes || bytes > view->bytes - offset) return nullptr;
  return view->base + offset;
}

bool has(const SegmentView& view, const std::byte* at, uint64_t bytes) {
  return view.base != nullptr && at >= view.base && at + bytes <= view.base + view.bytes;
}

// Types that a kernel combines: a 16-bit float's and f32.
bool go_together(uint8_t given, Dtype dtype) {
  return given < kDtypes && accumulator_of(static_cast<Dtype>(given)) == accumulator_of(dtype);
}

}  // namespace

bool is_sound(const FoldHead& fold) {
  if (fold.dtype >= kDtypes || fold.op >= kOps || fold.divisor == 0) return false;
  const auto dtype = static_cast<Dtype>(fold.dtype);
  if (!applies_to(static_cast<Op>(fold.op), dtype) || fold.count > kFoldedCountMax) return false;
  if (!go_together(fold.carry_dtype, dtype) || !go_together(fold.target_dtype, dtype)) return false;
  return fold.sources != 0 && fold.sources <= kLocalRanksMax && fold.targets != 0 &&
         fold.targets <= kLocalRanksMax && unpacked(fold.strategy).ok();
}

bool run_shared(const FoldHead& fold, const uint64_t* places, const FoldMemory& memory,
                Kernel kernel) {
  if (!is_sound(fold)) return false;
  const auto dtype = static_cast<Dtype>(fold.dtype);
  const auto target_dtype = static_cast<Dtype>(fold.target_dtype);
  const auto resolved = [&](uint64_t place, Dtype type) {
    return resolve(place, fold.count * size_of(type), memory);
  };
  std::array<const std::byte*, kLocalRanksMax> sources;  // NOLINT: filled as far as it is used.
  std::array<Target, kLocalRanksMax> targets;            // NOLINT
  for (uint32_t i = 0; i < fold.sources; ++i)
    if ((sources[i] = resolved(load(places[i]), dtype)) == nullptr) return false;
  for (uint32_t i = 0; i < fold.targets; ++i) {
    targets[i] = {resolved(load(places[fold.sources + i]), target_dtype), target_dtype};
    if (targets[i].data == nullptr) return false;
  }
  Operand carry{nullptr, static_cast<Dtype>(fold.carry_dtype)};
  if (fold.carry != kNowhere && (carry.data = resolved(fold.carry, carry.dtype)) == nullptr)
    return false;
  const PlainArithmetic plain;
  const Folds folds = local_folds(*unpacked(fold.strategy), fold.sources);
  std::array<std::byte, kInnerBytes> scratch;  // NOLINT: written before it is read.
  run_folds({.folds = folds,
             .contributions = {sources.data(), fold.sources},
             .targets = {targets.data(), fold.targets},
             .dtype = dtype,
             .op = static_cast<Op>(fold.op),
             .count = fold.count,
             .divisor = fold.divisor,
             .past_cache = fold.past_cache != 0,
             .scratch = scratch,
             .carry = carry,
             .carry_first = fold.carry_first != 0},
            [&](const FoldJob& job) { return kernel(job), true; });
  return true;
}

uint64_t place_of(const void* at, uint64_t bytes, const FoldMemory& memory) {
  const auto* address = static_cast<const std::byte*>(at);
  if (has(memory.wire, address, bytes))
    return pack_place(kWirePlace, static_cast<uint64_t>(address - memory.wire.base));
  for (uint32_t place = 0; place < memory.segments.size(); ++place)
    if (has(memory.segments[place], address, bytes))
      return pack_place(place, static_cast<uint64_t>(address - memory.segments[place].base));
  return kNowhere;
}

}  // namespace tutti::board
