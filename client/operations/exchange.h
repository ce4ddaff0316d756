// An all_to_all with a count for each pair of ranks.
//
// A rank knows only what it sends and receives itself. The ranks gather these counts first, so that
// all know and check all of them, and disagreements fail on every rank alike.
#pragma once

#include <cstddef>
#include <memory>

#include "client/operations/awaitable.h"
#include "client/operations/group.h"

namespace tutti::client {

// The arguments of tutti_all_to_all_v().
struct ExchangeArgs {
  const void* in = nullptr;
  const size_t* in_counts = nullptr;
  void* out = nullptr;
  const size_t* out_counts = nullptr;
  tutti_dtype dtype = TUTTI_F32;
};

// See run() in submission.h. Waits for all ranks' calls, also if `op` is given.
Status run(Group& group, const ExchangeArgs& args, const tutti_options* options,
           std::shared_ptr<PendingOp>* op, std::shared_ptr<Awaitable>* passing = nullptr);

}  // namespace tutti::client
