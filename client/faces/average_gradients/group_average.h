// The mean over the towers of all ranks of a group.
#pragma once

#include <optional>
#include <vector>

#include "client/faces/average_gradients/local_gradients.h"

namespace tutti::average_gradients {

// Agrees with the other ranks, which learn of a failed `local`, then averages. All ranks call it.
// `towers`: of this process.
Result<std::vector<std::optional<Value>>> average_in_group(
    tutti_group* group, Result<std::vector<LocalGradients>> local, int64_t towers,
    const Options& options);

}  // namespace tutti::average_gradients
