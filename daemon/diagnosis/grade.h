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

// Grades an agent by the state that it reports, or that is reported in its place.
inline Grade grade_of(const v1::AgentReport& agent) {
  if (agent.state().starts_with("unreachable")) return Grade::fail;
  return agent.state() == "serving" ? Grade::ok : Grade::warn;
}

}  // namespace tutti
