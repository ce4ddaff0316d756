// The clock by which this process measures deadlines.
#pragma once

#include <chrono>

namespace tutti::client {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
using Millis = std::chrono::milliseconds;

}  // namespace tutti::client
