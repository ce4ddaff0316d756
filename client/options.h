// The C ABI's structs of options, which begin with their size.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>

#include "client/error.h"

namespace tutti::client {

// What is larger is no size of any release, but a value that nobody set.
inline constexpr size_t kOptionsBytesMax = 4096;

// Copies what the caller's header knows of the struct into `given`, which holds the defaults; NULL:
// nothing. Of a newer header's struct the fields not known here are ignored. INVALID_ARGUMENT: a
// size that the struct never had; `least` is that of its first release.
template <class Options>
Status read_sized(const Options* options, size_t least, const char* defaults, Options& given) {
  if (options == nullptr) return {};
  if (options->size < least || options->size > kOptionsBytesMax)
    return invalid_argument("options of size " + std::to_string(options->size) +
                            " are none; begin with " + defaults);
  std::memcpy(&given, options, std::min(options->size, sizeof(given)));
  return {};
}

}  // namespace tutti::client
