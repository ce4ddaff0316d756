// The way in: what to join (arguments, then the environment) and the greeting on the agent's
// socket.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/error.h"
#include "client/hello.h"
#include "daemon/base/fd.h"

namespace tutti::client {

struct JoinTarget {
  std::string socket;
  std::string job;
  std::string token;
  uint32_t rank = 0;
  uint32_t world_size = 1;
  uint32_t timeout_ms = 30'000;
};

// `options` may be null. INVALID_ARGUMENT names what is missing or wrong and its variable.
Status read_target(const tutti_join_options* options, JoinTarget& target);

struct Greeting {
  Fd socket;
  Fd memory;
  Fd doorbell;
  Fd board;
  std::vector<Fd> memories;  // The segments of this host's ranks, by seat.
  Welcome welcome;
};

// Connects, says hello and waits for the welcome. Blocks at most half a second longer than the
// target's timeout, so that the daemon's own, better informed, refusal comes first.
Status greet(const JoinTarget& target, Greeting& greeting);

}  // namespace tutti::client
