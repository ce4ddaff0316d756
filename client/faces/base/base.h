// The door to what all faces share: tensors in host memory, a group's operations with errors as
// values, the agreement before them, and sums.
#pragma once

#include "client/faces/base/agreement.h"
#include "client/faces/base/call_options.h"
#include "client/faces/base/communicator.h"
#include "client/faces/base/fold.h"
#include "client/faces/base/packing.h"
#include "client/faces/base/reduce_op.h"
#include "client/faces/base/tensor.h"
#include "daemon/base/no_throw.h"
