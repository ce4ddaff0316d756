#include "daemon/group/movement.h"

#include <algorithm>
#include <bit>

#include "daemon/base/blocks.h"
#include "daemon/schedule/schedule.h"
#include "daemon/tuning/tuning.h"
#include "proto/board.h"

namespace tutti {
namespace {

// Up to here rounds may cost more than bytes. Beyond it `auto` takes the ring's movement, which
// spreads a tensor's bytes best.
constexpr uint64_t kSmallBytes = 64 * 1024;
// Slices of a reproducible reduction for each host, where its tensor is long enough: the hosts of a
// chain have a slice one after the other, so it takes several to keep all of them busy. Beyond
// kChainSlicesMax in all, twice the default of slices_in_flight, more would only wait.
constexpr uint64_t kChainSlices = 4;
constexpr uint64_t kChainSlicesMax = 32;

// For a reproducible operation under Centralized.
bool can_be_raw(const Signature& signature, const Communicator& group) {
  const auto ranks = static_cast<uint64_t>(group.size());
  const bool is_foldable = ranks <= kLocalRanksMax;  // At once.
  if (!signature.reproducible || !is_foldable || bytes_of(signature) > kRawBytesMax) return false;
  const uint64_t blocks = signature.collective == Collective::reduce_scatter ? ranks : 1;
  return bytes_of(signature) * blocks * ranks <= kRawBytesMax;
}

// Whether it goes by a raw plan, reproducible or not.
bool is_raw_anyway(const Signature& signature, const Strategy& global, const Communicator& group) {
  const Workload work{signature.collective, bytes_of(signature),
                      static_cast<int>(group.hosts().size()), group.size()};
  return !signature.on_device && goes_raw(work, global);
}

bool is_raw(const Signature& signature, const Strategy& global, const Communicator& group) {
  const bool is_small = global.kind == StrategyKind::centralized && can_be_raw(signature, group);
  return is_small || is_raw_anyway(signature, global, group);
}

// Where every host has one rank, a ring's chunks keep all hosts busy.
bool passes_in_small_slices(const Signature& signature, const Strategies& strategies,
                            const Communicator& group) {
  return signature.reproducible && !has_blocks(signature.collective) && !signature.on_device &&
         !(strategies.global.kind == StrategyKind::ring && has_lone_ranks(group.topology()));
}

}  // namespace

bool goes_by_links(const Signature& signature, const Communicator& group) {
  if (!signature.reproducible) return true;
  const bool is_small = bytes_of(signature) <= kSmallBytes ||
                        is_raw_anyway(signature, {StrategyKind::centralized}, group);
  return is_small && !can_be_raw(signature, group) && has_lone_ranks(group.topology());
}

Strategy automatic_for(const Signature& signature, const Communicator& group,
                       const Strategy& any_order) {
  if (!signature.reproducible) return any_order;
  const bool splits = goes_by_links(signature, group) ? any_order.kind == StrategyKind::ring
                                                      : bytes_of(signature) > kSmallBytes;
  return {splits ? StrategyKind::ring : StrategyKind::centralized};
}

Movement movement_of(const Signature& signature, const Strategies& strategies,
                     const Communicator& group, uint64_t slice_bytes) {
  Movement movement{is_raw(signature, strategies.global, group), slice_bytes};
  if (!passes_in_small_slices(signature, strategies, group)) return movement;
  const uint64_t slices = std::min(kChainSlices * group.hosts().size(), kChainSlicesMax);
  const uint64_t share = bytes_of(signature) / slices;
  movement.slice_bytes =
      std::clamp(std::bit_floor(share), std::min(kBoardBlockBytes, slice_bytes), slice_bytes);
  return movement;
}

}  // namespace tutti
