#include "client/outcome.h"

#include <array>

namespace tutti::client {
namespace {

struct LastError {
  Outcome outcome;
  tutti_error view{TUTTI_OK, -1, "", ""};
};

LastError& last_error() {
  thread_local LastError last;
  return last;
}

}  // namespace

tutti_code remember(const Outcome& outcome) {
  if (outcome.ok()) return TUTTI_OK;
  LastError& last = last_error();
  last.outcome = outcome;
  last.view = {outcome.code, outcome.rank, last.outcome.host.c_str(), last.outcome.message.c_str()};
  return outcome.code;
}

}  // namespace tutti::client

const tutti_error* tutti_last_error(void) { return &tutti::client::last_error().view; }

const char* tutti_code_name(tutti_code code) {
  static constexpr std::array names = {"OK",
                                       "CANCELLED",
                                       "UNKNOWN",
                                       "INVALID_ARGUMENT",
                                       "DEADLINE_EXCEEDED",
                                       "NOT_FOUND",
                                       "ALREADY_EXISTS",
                                       "PERMISSION_DENIED",
                                       "RESOURCE_EXHAUSTED",
                                       "FAILED_PRECONDITION",
                                       "ABORTED",
                                       "OUT_OF_RANGE",
                                       "UNIMPLEMENTED",
                                       "INTERNAL",
                                       "UNAVAILABLE",
                                       "DATA_LOSS",
                                       "UNAUTHENTICATED"};
  const auto number = static_cast<size_t>(code);
  return number < names.size() ? names[number] : names[TUTTI_UNKNOWN];
}
