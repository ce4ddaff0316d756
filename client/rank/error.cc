#include "client/rank/error.h"

#include "client/rank/log.h"

namespace tutti::client {
namespace {

struct LastError {
  Status status;
  tutti_error view{TUTTI_OK, -1, "", ""};
};

LastError& last_error() {
  thread_local LastError last;
  return last;
}

}  // namespace

tutti_code set_last_error(Status status) noexcept {
  const auto code = static_cast<tutti_code>(status.code());
  if (status.ok()) return code;
  try {
    if (logs(LogLevel::warn)) log(LogLevel::warn, status.to_string());
  } catch (...) {  // The line is lost.
  }
  LastError& last = last_error();
  last.status = std::move(status);
  last.view = {code, last.status.culprit_rank(), last.status.culprit_host().c_str(),
               last.status.message().c_str()};
  return code;
}

}  // namespace tutti::client

const tutti_error* tutti_last_error(void) { return &tutti::client::last_error().view; }

// Literals: they end with a NUL.
const char* tutti_code_name(tutti_code code) {
  return tutti::name_of(static_cast<tutti::Code>(code)).data();
}
