// Agents that a program started for itself, as tutti.torch does where none serves the node.
#pragma once

#include <string>
#include <vector>

#include "daemon/base/status.h"

namespace tutti {

// The addresses at which to ask: `address`; where that is the default one and there is no socket,
// those of the private agents of this user instead, if there are any, in the order of their start.
std::vector<std::string> agents_to_ask(const std::string& address);

// For commands that ask one agent. FAILED_PRECONDITION: there are several, which it lists.
Result<std::string> agent_to_ask(const std::string& address);

}  // namespace tutti
