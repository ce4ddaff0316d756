// How bad a finding is. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "proto/mesh.pb.h"

namespace tutti {

enum class Grade : uint8_t { ok, warn, fail };

// "OK", "WARN", "FAIL".
inline std::string_view name_of(Grade grade) {
  constexpr std::array<std::string_view, 3> kNames = {"OK", "WARN", "FAIL"};
  return kNames.at(static_cast<size_t>(grade));
}

// The coordinator knows it, but does not have it any more.
inline bool is_gone(const v1::AgentReport& agent) {
  return agent.lost() || agent.state().starts_with("stopped ");
}

// A coordinator, the agent that was asked.
inline bool refuses(const v1::AgentReport& agent) { return agent.state().starts_with("refuses "); }

// Grades an agent by the state that it reports, or that is reported in its place.
inline Grade grade_of(const v1::AgentReport& agent) {
  if (agent.lost() || agent.state().starts_with("unreachable") || refuses(agent))
    return Grade::fail;
  return agent.state() == "serving" ? Grade::ok : Grade::warn;
}

}  // namespace tutti
