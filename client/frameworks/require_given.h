// The check of pointers that come through the C ABI.
#pragma once

#include <initializer_list>
#include <string>

#include "daemon/base/status.h"

namespace tutti::frameworks {

struct Given {
  const char* name;  // Of the parameter.
  const void* pointer;
};

// INVALID_ARGUMENT: names the first argument that is NULL.
inline Status require_given(std::initializer_list<Given> arguments) {
  for (const Given& argument : arguments)
    if (argument.pointer == nullptr)
      return invalid_argument(std::string("NULL was passed for '") + argument.name +
                              "', which must point to a valid object");
  return {};
}

}  // namespace tutti::frameworks
