// How failures leave libtutti_frameworks.so: a Status or an exception becomes a code, and each
// thread's last failure is kept for tutti_frameworks_last_error().
#pragma once

#include <initializer_list>

#include "client/faces/base/base.h"
#include "client/faces/frameworks/c_api.h"

namespace tutti::frameworks {

// A pointer that comes through the C ABI.
struct Given {
  const char* name;  // Of the parameter.
  const void* pointer;
};

// INVALID_ARGUMENT: names the first argument that is NULL.
Status require_given(std::initializer_list<Given> arguments);

// Sets this thread's last failure if `status` is one. Returns its code. Needs no memory.
tutti_code set_last_error(Status status) noexcept;

// Calls `call`, which returns a Status, and returns its code. An exception becomes a code.
template <class Call>
tutti_code guarded(const Call& call) noexcept {
  return set_last_error(no_throw(call));
}

// The same, unless one of the arguments is NULL.
template <class Call>
tutti_code guarded(std::initializer_list<Given> arguments, const Call& call) noexcept {
  return guarded([&]() -> Status {
    Status given = require_given(arguments);
    return given.ok() ? call() : given;
  });
}

}  // namespace tutti::frameworks
