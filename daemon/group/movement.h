// How an operation's values move, as far as its strategies leave it open. Pure functions of what
// the hosts of a group agree on: all decide alike, and compare what they have decided.
#pragma once

#include <cstdint>

#include "daemon/base/signature.h"
#include "daemon/group/communicator.h"

namespace tutti {

struct Movement {
  bool raw = false;          // The plan is: see schedule.h.
  uint64_t slice_bytes = 0;  // A power of two.
};

// What `auto` stands for between hosts. `any_order`: what it would stand for if the operation were
// not reproducible.
Strategy automatic_for(const Signature& signature, const Communicator& group,
                       const Strategy& any_order);

// Whether that depends on `any_order`.
bool goes_by_links(const Signature& signature, const Communicator& group);

// `slice_bytes`: as configured, a power of two.
Movement movement_of(const Signature& signature, const Strategies& strategies,
                     const Communicator& group, uint64_t slice_bytes);

}  // namespace tutti
