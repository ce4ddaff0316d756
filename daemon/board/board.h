// The local phase: where the ranks of a host meet, agree and fold (proto/board.h draws the memory).
// Used by the trainers' library and by the worker; needs nothing of the daemon but strategies
// and kernels.
#pragma once

#include "daemon/board/area.h"         // IWYU pragma: export
#include "daemon/board/futex.h"        // IWYU pragma: export
#include "daemon/board/local_folds.h"  // IWYU pragma: export
#include "daemon/board/matched_op.h"   // IWYU pragma: export
#include "daemon/board/sides.h"        // IWYU pragma: export
#include "daemon/board/transitions.h"  // IWYU pragma: export
