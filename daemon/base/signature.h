// The signature of a call: everything the ranks of an operation must agree on before data moves.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "daemon/base/strategy.h"
#include "proto/types.h"

namespace tutti {

struct Signature {
  Collective collective = Collective::barrier;
  Dtype dtype = Dtype::f32;
  Op op = Op::sum;
  uint64_t count = 0;  // Of the largest block, where the blocks have counts of their own.
  uint32_t root = 0;
  Strategies strategies;
  uint64_t layout = 0;        // pack_layout() of proto/board.h.
  bool on_device = false;     // The tensors are in the memory of GPUs.
  bool reproducible = false;  // The result is a function of the ranks' values alone.
  bool verifies = false;      // The ranks compare their results afterwards.
  bool operator==(const Signature&) const = default;
};

// Bytes of a rank's tensor; 0 for a barrier.
uint64_t bytes_of(const Signature& signature);

// The layout of a list of tensors, or of blocks, with these counts. Counts that differ give layouts
// that differ, except by chance or malice: memory safety must not depend on it.
uint64_t layout_of(std::span<const uint64_t> counts);

// "reduce f32[1000] sum root=2 strategy=ring", "all_reduce f32[1000] sum of a list of 12 tensors
// (layout 5d0e)", "all_gather f32[1000] with counts (layout 5d0e)": the fields that the collective
// uses.
std::string to_string(const Signature& signature);

// The signature with all fields cleared that its collective does not use, so that they cannot
// differ.
Signature canonical(Signature signature);

// A hash of everything the hosts of an operation must agree on before data moves: the canonical()
// signature, the strategies in force, the slices, hash_of() the members, whether the values go by
// NCCL, and whether the plan is raw.
uint64_t agreement_of(const Signature& signature, const Strategies& strategies,
                      uint64_t slice_bytes, uint64_t members, bool by_nccl = false,
                      bool raw = false);
uint64_t hash_of(const std::vector<int>& members);

}  // namespace tutti
