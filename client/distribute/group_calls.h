// The collectives of a group (client/tutti.h) with errors as values. All block.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "client/distribute/tensor.h"
#include "client/tutti.h"

namespace tutti::distribute {

struct CallOptions {
  int32_t timeout_ms = 0;  // How long a call may take; 0: the timeout of the join.
  std::string strategy;    // As tutti_options.strategy; empty: the job's.
};

// OK, or this thread's last failure in libtutti.so.
Status status_of(tutti_code code);

// The numbers of all ranks, by rank; each gives equally many.
Result<std::vector<int64_t>> all_gather(tutti_group* group, std::span<const int64_t> numbers,
                                        const CallOptions& options = {});
// The bytes of all ranks, by rank; each gives equally many.
Result<std::vector<std::byte>> all_gather(tutti_group* group, std::span<const std::byte> bytes,
                                          const CallOptions& options = {});
// The same, into memory of the caller.
Status all_gather(tutti_group* group, std::span<const std::byte> own, std::span<std::byte> all,
                  const CallOptions& options);
// Reduces the tensors in place; one operation for each dtype. All ranks give tensors of the same
// dtypes and shapes.
Status all_reduce(tutti_group* group, std::span<Tensor* const> tensors, tutti_op op,
                  const CallOptions& options = {});
// Reduces the tensor into that of rank `root`.
Status reduce(tutti_group* group, Tensor& tensor, tutti_op op, int root,
              const CallOptions& options = {});
// Copies the bytes of `root` to the other ranks.
Status broadcast(tutti_group* group, void* data, size_t bytes, int root,
                 const CallOptions& options = {});

}  // namespace tutti::distribute
