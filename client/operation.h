// From a call's arguments to a request: which memory is shared as it is, which is copied or staged,
// and where.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "client/group.h"
#include "client/stage.h"

namespace tutti::client {

struct Operation {
  tutti_collective collective = TUTTI_BARRIER;
  const void* in = nullptr;
  void* out = nullptr;
  size_t count = 0;
  tutti_dtype dtype = TUTTI_F32;
  tutti_op op = TUTTI_SUM;
  int32_t root = 0;
};

// Tensors that are all_reduced as one.
struct TensorList {
  const void* const* ins = nullptr;
  void* const* outs = nullptr;
  const size_t* counts = nullptr;
  size_t size = 0;
  tutti_dtype dtype = TUTTI_F32;
  tutti_op op = TUTTI_SUM;
};

// A call with `ticket` null blocks until it is done; else it goes on when this returns. `options`
// may be null. A call that is refused keeps its place in the order: the other ranks' fails, too.
Status run(tutti_group& group, const Operation& operation, const tutti_options* options,
           std::shared_ptr<Ticket>* ticket);
Status run(tutti_group& group, const TensorList& list, const tutti_options* options,
           std::shared_ptr<Ticket>* ticket);

}  // namespace tutti::client
