// How failures leave the library: nothing is thrown into C, and the last one is kept.
#pragma once

#include <new>
#include <type_traits>

#include "client/tutti.h"
#include "daemon/base/status.h"

namespace tutti::client {

// What `make` returns; where memory runs out meanwhile, the code and the culprit without their
// words: a verdict must not be lost.
template <class Make>
Status without_throwing(Code code, const Make& make, int rank = -1) noexcept {
  try {
    return make();
  } catch (const std::bad_alloc&) {
    return {code, "out of memory", {rank, {}}};  // So few letters need none.
  }
}

// Keeps a failure for tutti_last_error() of this thread; returns its code.
tutti_code remember(const Status& status);

// For a handler of `catch (...)`: the code of what was thrown, RESOURCE_EXHAUSTED where memory ran
// out and INTERNAL otherwise, kept as remember() does. Needs no memory.
tutti_code remember_thrown() noexcept;

// The call's result. What it throws ends here, for it must not cross into C: its code then, or
// nothing (0, NULL).
template <class Call>
auto guarded(const Call& call) noexcept -> decltype(call()) {
  using Result = decltype(call());
  try {
    return call();
  } catch (...) {
    const tutti_code code = remember_thrown();
    if constexpr (std::is_same_v<Result, tutti_code>)
      return code;
    else
      return Result();
  }
}

}  // namespace tutti::client
