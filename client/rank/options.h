// Reads option structs of the C ABI, which begin with their size.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>

#include "client/rank/error.h"

namespace tutti::client {

// A larger size is not that of any release, but an uninitialized value.
inline constexpr size_t kOptionsBytesMax = 4096;

// Copies the fields that the caller's header has into `given`, which holds the defaults; NULL:
// none. Fields of a newer header that are unknown here are ignored. INVALID_ARGUMENT: a size that
// the struct never had; `least` is that of its first release.
template <class Options>
Status read_sized(const Options* options, size_t least, const char* defaults, Options& given) {
  if (options == nullptr) return {};
  if (options->size < least || options->size > kOptionsBytesMax)
    return invalid_argument("options have no version of size " + std::to_string(options->size) +
                            "; begin with " + defaults);
  std::memcpy(&given, options, std::min(options->size, sizeof(given)));
  return {};
}

// INVALID_ARGUMENT: an option of three values has another; `defaults` is as above.
inline Status check_choice(const char* name, int32_t given, const char* defaults) {
  if (given >= -1 && given <= 1) return {};
  return invalid_argument(std::string(name) + " = " + std::to_string(given) +
                          " is none of 1, 0 and -1; begin with " + defaults);
}

// The caller's options for a further operation of the same call: on the host's memory, whatever the
// tensors are in, and not verified.
inline tutti_options options_of_part(const tutti_options* options) {
  tutti_options given = tutti_defaults();
  static_cast<void>(read_sized(options, 0, "", given));
  given.size = sizeof(given);
  given.on_stream = 0;
  given.verify = -1;
  return given;
}

}  // namespace tutti::client
