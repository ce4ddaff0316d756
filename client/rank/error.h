// How failures leave the library: exceptions become codes, and each thread's last failure is kept.
#pragma once

#include <new>
#include <type_traits>

#include "client/tutti.h"
#include "daemon/base/no_throw.h"

namespace tutti::client {

// Returns what `make` does. If that runs out of memory, the Status has the code and the rank, so
// that an outcome is never lost, but not the message.
template <class Make>
Status without_throwing(Code code, const Make& make, int rank = -1) noexcept {
  try {
    return make();
  } catch (const std::bad_alloc&) {
    return Status::without_memory(code, rank);
  }
}

// Sets this thread's tutti_last_error() if `status` is a failure. Returns its code. Needs no
// memory.
tutti_code set_last_error(Status status) noexcept;

// Calls `call` and returns its result. An exception must not cross into C: it becomes a code, or 0
// or NULL if the result is no code.
template <class Call>
auto guarded(const Call& call) noexcept -> decltype(call()) {
  using Result = decltype(call());
  try {
    return call();
  } catch (...) {
    const tutti_code code = set_last_error(status_of_exception());
    if constexpr (std::is_same_v<Result, tutti_code>)
      return code;
    else
      return Result();
  }
}

}  // namespace tutti::client
