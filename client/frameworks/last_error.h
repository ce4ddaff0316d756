// How failures leave libtutti_frameworks.so: a Status or an exception becomes a code, and each
// thread's last failure is kept for tutti_frameworks_last_error().
#pragma once

#include "client/frameworks/c_api.h"
#include "client/frameworks/no_throw.h"

namespace tutti::frameworks {

// Sets this thread's last failure if `status` is one. Returns its code. Needs no memory.
tutti_code set_last_error(Status status) noexcept;

// Calls `call`, which returns a Status, and returns its code. An exception becomes a code.
template <class Call>
tutti_code guarded(const Call& call) noexcept {
  return set_last_error(no_throw(call));
}

}  // namespace tutti::frameworks
