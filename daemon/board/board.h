// The local phase: the ranks of a host meet in shared memory, agree on operations and fold them.
// proto/board.h draws the memory. Used by the client library and by the worker.
#pragma once

#include "daemon/board/area.h"          // IWYU pragma: export
#include "daemon/board/futex.h"         // IWYU pragma: export
#include "daemon/board/local_folds.h"   // IWYU pragma: export
#include "daemon/board/matched_op.h"    // IWYU pragma: export
#include "daemon/board/shared_folds.h"  // IWYU pragma: export
#include "daemon/board/sides.h"         // IWYU pragma: export
#include "daemon/board/transitions.h"   // IWYU pragma: export
