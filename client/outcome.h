// How a step of the client went: OK, or a code, words, and who is to blame.
#pragma once

#include <string>

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

// The code of a number that came from outside.
inline tutti_code code_of(uint64_t number) {
  return number <= TUTTI_UNAUTHENTICATED ? static_cast<tutti_code>(number) : TUTTI_UNKNOWN;
}

// Keeps a failure for tutti_last_error() of this thread; returns its code.
tutti_code remember(const Outcome& outcome);

}  // namespace tutti::client
