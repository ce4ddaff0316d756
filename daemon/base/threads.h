// How many threads share the work of one operation with the worker's own: the rules of the settings
// `data_streams` and `folding`, for workers and for predictions. Pure.
#pragma once

#include <cstddef>

#include "daemon/base/settings.h"

namespace tutti {

// Smaller payloads go by a link's own connection: to wake a thread takes longer.
inline constexpr size_t kStreamedBytesMin = size_t{128} << 10;

// The data streams of a link, each with a thread of the worker's; 1: its own connection alone.
// `cores`: that the worker may use, here and below.
size_t data_streams(const Settings& settings, size_t cores);
// Whether ranks that wait fold what goes between hosts; else the worker does.
bool do_ranks_fold(const Settings& settings, size_t cores);

}  // namespace tutti
