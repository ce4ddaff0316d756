// Tensors of the C ABI (c_api.h) as those of C++, and back. Also for other systems' C ABI.
#pragma once

#include <vector>

#include "client/distribute/c_api.h"
#include "client/distribute/tensor.h"

struct tutti_distribute_tensors {
  std::vector<tutti::distribute::Tensor> tensors;
};

namespace tutti::distribute {

// INVALID_ARGUMENT: no such dtype, a wrong shape, or no memory.
Result<TensorView> view_of(const tutti_distribute_tensor& tensor);
Result<std::vector<TensorView>> views_of(const tutti_distribute_tensor* tensors, size_t count);

// Hands results to the caller; an error as it is.
Status give(Result<std::vector<Tensor>> tensors, tutti_distribute_tensors** results);

}  // namespace tutti::distribute
