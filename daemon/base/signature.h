// What a rank asked for: all that the ranks of an operation must agree on before data moves.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/base/strategy.h"
#include "proto/types.h"

namespace tutti {

struct Signature {
  Collective collective = Collective::barrier;
  Dtype dtype = Dtype::f32;
  Op op = Op::sum;
  uint64_t count = 0;
  uint32_t root = 0;
  Strategies strategies;
  uint64_t layout = 0;  // pack_layout() of proto/board.h.
  bool operator==(const Signature&) const = default;
};

// Of a rank's tensor; a barrier has none.
uint64_t bytes_of(const Signature& signature);

// "reduce f32[1000] sum root=2 strategy=ring", "all_reduce f32[1000] sum of a list of 12 tensors
// (layout 5d0e)": only what matters to the collective.
std::string to_string(const Signature& signature);

// The signature with the fields its collective does not use cleared, so that they cannot disagree.
Signature canonical(Signature signature);

// What all hosts of an operation must agree on before data moves, hashed: what is asked for (as
// canonical() gives it), which strategies run it, how it is cut, and who takes part.
uint64_t agreement_of(const Signature& signature, const Strategies& strategies,
                      uint64_t slice_bytes, uint64_t members);
uint64_t hash_of(const std::vector<int>& members);

}  // namespace tutti
