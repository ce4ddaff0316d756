// Carries out planned reductions: in one process, or in a group.
#pragma once

#include <string_view>
#include <vector>

#include "client/faces/cross_device/cross_device_ops.h"

namespace tutti::cross_device {

// In one process: the components are folded, and every destination written, in one pass.
Mirrored reduce_here(const Method& method, const ReductionPlan& plan);

// In a group: agrees with the other ranks, which learn of a failed plan, then reduces. All ranks
// call it.
Result<std::vector<Mirrored>> reduce_in_group(tutti_group* group, const Method& method,
                                              std::string_view verb,
                                              const Result<std::vector<ReductionPlan>>& plans,
                                              const CommunicationOptions& options);

}  // namespace tutti::cross_device
