// The list of tensors of tutti_all_reduce_many(): checked, and each tensor once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "client/operations/staged_op.h"
#include "client/rank/connection.h"
#include "client/rank/overlap.h"

namespace tutti::client {

// The arguments of tutti_all_reduce_many().
struct TensorListArgs {
  const void* const* ins = nullptr;
  void* const* outs = nullptr;
  const size_t* counts = nullptr;
  size_t size = 0;
  tutti_dtype dtype = TUTTI_F32;
  tutti_op op = TUTTI_SUM;
};

struct TensorList {
  std::vector<TensorSides> tensors;  // Those with elements.
  uint64_t count = 0;                // Of their elements.
  uint64_t layout = 0;               // See layout_of().
  std::vector<MemoryRange> ranges;   // Of all, sorted.
};

// INVALID_ARGUMENT, naming the tensor: the list is NULL or too long; a tensor is NULL or exceeds
// its block.
Status read_list(Connection& connection, const TensorListArgs& args, TensorList& list);

// Leaves out a tensor that is named again, with the same input and output: it has one result.
// INVALID_ARGUMENT, naming the tensors: an output overlaps another tensor, or its own input in
// part.
Status check_apart(const TensorListArgs& args, TensorList& list);

// The position of a tensor of the list in the arguments.
size_t position_of(const TensorSides& tensor, const TensorListArgs& args);

}  // namespace tutti::client
