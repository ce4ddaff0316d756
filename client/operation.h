// From a call's arguments to a request: which memory is shared as it is, which is copied, and
// where.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "client/group.h"

namespace tutti::client {

struct Operation {
  tutti_collective collective = TUTTI_BARRIER;
  const void* in = nullptr;
  void* out = nullptr;
  size_t count = 0;
  tutti_dtype dtype = TUTTI_F32;
  tutti_op op = TUTTI_SUM;
  int32_t root = 0;
  uint64_t layout = 0;     // Of the list of tensors this is a part of; 0: none.
  uint32_t following = 0;  // Operations of that list to come.
  // Not the first of the list. Ranks that list different tensors cut them into different numbers of
  // parts: so the board counts the first alone, and the worker sees to the others.
  bool continues = false;
};

// `blocking`: the caller does nothing but wait for it next, and so can take part in the work.
enum class Manner { background, blocking };

// Copies in what must be copied, and submits; what is blocking may be done already. `options` may
// be null.
Outcome submit(tutti_group& group, const Operation& operation, const tutti_options* options,
               Manner manner, std::shared_ptr<Ticket>& ticket);

// A request that carries `bytes` bytes of shared memory in, such as a list of ranks.
Outcome submit_subgroup(tutti_group& group, const uint32_t* ranks, size_t count,
                        std::shared_ptr<Ticket>& ticket);

}  // namespace tutti::client
