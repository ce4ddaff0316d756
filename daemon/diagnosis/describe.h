// Figures in words. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/mesh.pb.h"

namespace tutti {

// "is draining", "was lost 20 s ago: its agent ended or cannot be reached".
std::string describe_state(const v1::AgentReport& agent);
// Says in a mesh of one agent that missing ranks are registered nowhere, and where to look. Empty:
// there are other agents, or only this machine reaches it.
std::string describe_lone(const v1::StatusReply& status);
// Whether the agent coordinates because another host's name leads to it, as far as names tell.
bool takes_anothers_place(const v1::AgentReport& agent);
// "rank 2", "ranks 1-3, 5".
std::string describe_ranks(const std::vector<uint32_t>& ranks);
std::string describe_seconds(double seconds);  // "200 ms", "14 s", "3 min".

}  // namespace tutti
