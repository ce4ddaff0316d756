// The errors of burn's collective API, as a Status each: its message begins with the error's name.
#pragma once

#include <string>

#include "daemon/base/status.h"

namespace tutti::burn {

enum class CollectiveError {
  invalid_config,
  multiple_register,
  register_params_mismatch,
  multiple_unregister,
  register_not_first_operation,
  all_reduce_shape_mismatch,  // Dtypes that differ, too.
  all_reduce_operation_mismatch,
  reduce_shape_mismatch,
  reduce_operation_mismatch,
  reduce_root_mismatch,
  broadcast_no_tensor,
  broadcast_multiple_tensors,
  local_server_missing,  // The collective was reset.
  other,                 // Among them what burn hangs on: a missing peer, two calls at once.
};

// "AllReduceShapeMismatch: " and the message, under the code for this error: INVALID_ARGUMENT for
// wrong arguments and mismatches, ALREADY_EXISTS for MultipleRegister, FAILED_PRECONDITION for a
// wrong order, ABORTED for LocalServerMissing.
Status error_of(CollectiveError error, const std::string& message);
// The same under INVALID_ARGUMENT, as for all calls that are wrong in themselves or differ.
Status wrong_call(CollectiveError error, const std::string& message);
// An error from elsewhere as Other, with its code; one that has burn's name, and OK, as it is.
Status named(const Status& status);
// The name alone.
std::string name_of(CollectiveError error);

// An error of the group between processes: "Global(PeerLost(3)): ..." where a rank is gone, else
// "Global(Server): ...". Keeps code and culprit.
Status global_error(const Status& status);

}  // namespace tutti::burn
