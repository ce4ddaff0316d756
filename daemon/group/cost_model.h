// Which strategy `auto` means: the cheapest by a small model of rounds and bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/schedule/schedule.h"

namespace tutti {

// What a message and a byte cost between hosts.
struct LinkCost {
  double message_us = 60.0;  // A wake-up at the other end.
  double byte_us = 0.0005;   // 2 GB/s.
};

// `asked` with every `automatic` level decided, for tensors of that many bytes on hosts so
// occupied. Local auto is always centralized: the engine folds all ranks of a host in one pass over
// memory, which no other local plan can beat. Global auto is the least of rounds * message + sent
// bytes * byte over the candidates.
Strategies choose(const Strategies& asked, Collective collective, uint64_t bytes,
                  const std::vector<std::vector<int>>& hosts, const LinkCost& cost = {});

}  // namespace tutti
