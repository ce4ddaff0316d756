#include "client/rank/error.h"

#include <exception>
#include <stdexcept>

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

constexpr tutti_error kOutOfMemory{TUTTI_RESOURCE_EXHAUSTED, -1, "",
                                   "this process is out of memory"};
constexpr tutti_error kFault{TUTTI_INTERNAL, -1, "", "a fault inside the client library"};

tutti_code set_fault(const char* what) noexcept {
  try {
    return set_last_error(internal_error(std::string(kFault.message) + ": " + what));
  } catch (...) {
    last_error().view = kFault;
    return TUTTI_INTERNAL;
  }
}

tutti_code set_out_of_memory() noexcept {
  last_error().view = kOutOfMemory;
  return TUTTI_RESOURCE_EXHAUSTED;
}

}  // namespace

tutti_code set_last_error_to_exception() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return set_out_of_memory();
  } catch (const std::length_error&) {
    return set_out_of_memory();
  } catch (const std::exception& thrown) {
    return set_fault(thrown.what());
  } catch (...) {
    return set_fault("unknown");
  }
}

tutti_code set_last_error(const Status& status) {
  const auto code = static_cast<tutti_code>(status.code());
  if (status.ok()) return code;
  if (logs(LogLevel::warn)) log(LogLevel::warn, status.to_string());
  LastError& last = last_error();
  last.status = status;
  last.view = {code, status.culprit().rank, last.status.culprit().host.c_str(),
               last.status.message().c_str()};
  return code;
}

}  // namespace tutti::client

const tutti_error* tutti_last_error(void) { return &tutti::client::last_error().view; }

// Literals: they end with a NUL.
const char* tutti_code_name(tutti_code code) {
  return tutti::name_of(static_cast<tutti::Code>(code)).data();
}
