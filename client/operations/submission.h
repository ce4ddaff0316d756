// Turns the arguments of a call into a request and submits it: checks them, and decides whether
// memory is used as it is, copied to the segment, or staged (see staged_op.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "client/operations/awaitable.h"
#include "client/operations/group.h"
#include "client/operations/tensor_list.h"

namespace tutti::client {

// The arguments of one collective, as in tutti.h.
struct CollectiveArgs {
  tutti_collective collective = TUTTI_BARRIER;
  const void* in = nullptr;
  void* out = nullptr;
  size_t count = 0;
  tutti_dtype dtype = TUTTI_F32;
  tutti_op op = TUTTI_SUM;
  int32_t root = 0;
  // Where the blocks have counts of their own: of each block (daemon/base/blocks.h); else empty.
  std::span<const uint64_t> counts = {};
  const char* fault = nullptr;  // Why the call is refused, where its function knows.
  Code fault_code = Code::invalid_argument;
};

// Runs an operation of this rank on the group. `options` may be null. If `op` is null, blocks until
// the operation has ended and returns its outcome; otherwise returns once it has started, and sets
// `*op`, or `*passing` if a thread passes its tensors, which the options must allow.
// An operation that is refused keeps its place in the order, and fails on the other ranks.
Status run(Group& group, const CollectiveArgs& args, const tutti_options* options,
           std::shared_ptr<PendingOp>* op, std::shared_ptr<Awaitable>* passing = nullptr);
Status run(Group& group, const TensorListArgs& args, const tutti_options* options,
           std::shared_ptr<PendingOp>* op, std::shared_ptr<Awaitable>* passing = nullptr);

}  // namespace tutti::client
