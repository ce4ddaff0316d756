// How a step of the client went: OK, or a code, words, and who is to blame.
#pragma once

#include <new>
#include <string>
#include <type_traits>

#include "client/tutti.h"

namespace tutti::client {

struct [[nodiscard]] Outcome {
  tutti_code code = TUTTI_OK;
  std::string message;
  int32_t rank = -1;
  std::string host;

  bool ok() const { return code == TUTTI_OK; }
};

inline Outcome failure(tutti_code code, std::string message) {
  return {code, std::move(message), -1, {}};
}

// What `make` returns; where memory runs out meanwhile, the code and the culprit without their
// words: a verdict must not be lost.
template <class Make>
Outcome without_throwing(tutti_code code, const Make& make, int32_t rank = -1) noexcept {
  try {
    return make();
  } catch (const std::bad_alloc&) {
    return {code, "out of memory", rank, {}};  // So few letters need none.
  }
}

// The code of a number that came from outside.
inline tutti_code code_of(uint64_t number) {
  return number <= TUTTI_UNAUTHENTICATED ? static_cast<tutti_code>(number) : TUTTI_UNKNOWN;
}

// Keeps a failure for tutti_last_error() of this thread; returns its code.
tutti_code remember(const Outcome& outcome);

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
