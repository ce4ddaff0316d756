#include "client/outcome.h"

#include <exception>
#include <new>
#include <stdexcept>

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

constexpr tutti_error kOutOfMemory{TUTTI_RESOURCE_EXHAUSTED, -1, "",
                                   "this process is out of memory"};
constexpr tutti_error kFault{TUTTI_INTERNAL, -1, "", "a fault inside the client library"};

tutti_code remember_fault(const char* what) noexcept {
  try {
    return remember(failure(TUTTI_INTERNAL, std::string(kFault.message) + ": " + what));
  } catch (...) {
    last_error().view = kFault;
    return TUTTI_INTERNAL;
  }
}

tutti_code remember_no_memory() noexcept {
  last_error().view = kOutOfMemory;
  return TUTTI_RESOURCE_EXHAUSTED;
}

}  // namespace

tutti_code remember_thrown() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return remember_no_memory();
  } catch (const std::length_error&) {
    return remember_no_memory();
  } catch (const std::exception& thrown) {
    return remember_fault(thrown.what());
  } catch (...) {
    return remember_fault("unknown");
  }
}

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
