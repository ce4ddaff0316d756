// Exceptions as values: an exception must cross neither into C nor a step for which the other ranks
// of a group wait.
#pragma once

#include <new>
#include <stdexcept>
#include <string>

#include "daemon/base/status.h"

namespace tutti {

// For a handler of `catch (...)`: RESOURCE_EXHAUSTED if memory ran out, else INTERNAL. Where there
// is no memory for a message either, the message is a short one.
inline Status status_of_exception() noexcept {
  try {
    try {
      throw;
    } catch (const std::bad_alloc&) {
      return resource_exhausted("this process is out of memory");
    } catch (const std::length_error&) {
      return resource_exhausted("this process is out of memory");
    } catch (const std::exception& thrown) {
      return internal_error(std::string("a fault inside the client library: ") + thrown.what());
    } catch (...) {
      return internal_error("unknown fault");
    }
  } catch (const std::bad_alloc&) {
    return Status::without_memory(Code::resource_exhausted);
  }
}

// What `call`, which returns a Status or a Result, returns; an exception as a failure.
template <class Call>
auto no_throw(const Call& call) noexcept -> decltype(call()) {
  try {
    return call();
  } catch (...) {
    return status_of_exception();
  }
}

}  // namespace tutti
