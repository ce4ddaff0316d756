// The last failure of each thread in libtutti_frameworks.so.
#include "client/faces/frameworks/last_error.h"

namespace tutti::frameworks {
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

Status require_given(std::initializer_list<Given> arguments) {
  for (const Given& argument : arguments)
    if (argument.pointer == nullptr)
      return invalid_argument(std::string("NULL was passed for '") + argument.name +
                              "', which must point to a valid object");
  return {};
}

tutti_code set_last_error(Status status) noexcept {
  const auto code = static_cast<tutti_code>(status.code());
  if (status.ok()) return code;
  LastError& last = last_error();
  last.status = std::move(status);
  last.view = {code, last.status.culprit_rank(), last.status.culprit_host().c_str(),
               last.status.message().c_str()};
  return code;
}

}  // namespace tutti::frameworks

const tutti_error* tutti_frameworks_last_error(void) {
  return &tutti::frameworks::last_error().view;
}
