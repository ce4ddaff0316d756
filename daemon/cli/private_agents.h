// Agents that a program started for itself, as tutti.torch does where none serves the node.
#pragma once

#include <string>
#include <vector>

#include "daemon/base/status.h"

namespace tutti {

// The addresses at which to ask: `address`; where that is the default one and no agent answers
// there, those of this user's private agents that do instead, if there are any, in the order of
// their start. For those that do not it tells on standard error, in one line.
std::vector<std::string> agents_to_ask(const std::string& address);

// For commands that ask one agent. FAILED_PRECONDITION: there are several, which it lists.
Result<std::string> agent_to_ask(const std::string& address);

}  // namespace tutti
