// How tests wait for what no descriptor reports: a log's text, the process table, an agent's
// status. A wait that runs out fails the test, at the caller's line.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <source_location>

#include "daemon/base/loop.h"

namespace tutti {

inline constexpr std::chrono::seconds kAwaitMax{60};

// Calls `step` until `holds`. Returns whether it does: in a process that a test has forked, where
// nobody reads the failure, the caller checks that.
template <class Step, class Holds>
bool await_with(const Step& step, const Holds& holds, std::source_location at) {
  const auto limit = std::chrono::steady_clock::now() + kAwaitMax;
  bool held = holds();
  for (; !held && std::chrono::steady_clock::now() < limit; held = holds()) step();
  if (!held)
    ADD_FAILURE_AT(at.file_name(), static_cast<int>(at.line()))
        << "it has not come within " << kAwaitMax.count() << " s";
  return held;
}

template <class Holds>
bool await(const Holds& holds, std::source_location at = std::source_location::current()) {
  return await_with([] { poll(nullptr, 0, 5); }, holds, at);
}

// Turns the loop meanwhile.
template <class Holds>
bool await(Loop& loop, const Holds& holds,
           std::source_location at = std::source_location::current()) {
  const auto turn = [&loop] { loop.run_once(Clock::now() + Millis(20)); };
  return await_with(turn, holds, at);
}

}  // namespace tutti
