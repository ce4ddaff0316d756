#include "client/outcome.h"

#include "proto/types.h"

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
  const auto number = static_cast<size_t>(code);
  const auto unknown = static_cast<size_t>(TUTTI_UNKNOWN);
  // Literals: they end with a NUL.
  return tutti::kCodeNames[number < tutti::kCodeNames.size() ? number : unknown].data();
}
