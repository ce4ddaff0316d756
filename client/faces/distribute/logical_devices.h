// How a replica's tensor lies on the devices of the replica, as the logical devices of
// tf.distribute.TPUStrategy. Pure.
#pragma once

#include "client/faces/distribute/arithmetic.h"

namespace tutti::distribute {

// OK for a device of the replica. INVALID_ARGUMENT: out of range.
Status validate_logical_device(int logical_device, int logical_devices);

// The tensor cut into partition_dimensions[i] equal parts along each axis i: one part for each
// logical device, the last axis counting fastest. INVALID_ARGUMENT: not one number for each axis; a
// number below 1; a side that its number does not divide; a product that is not `logical_devices`.
Result<std::vector<Tensor>> split_to_logical_devices(
    const Tensor& tensor, const std::vector<int64_t>& partition_dimensions, int logical_devices);

}  // namespace tutti::distribute
