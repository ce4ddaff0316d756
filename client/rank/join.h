// Joining a job over the agent's Unix socket: the exchange of Hello and Welcome of
// proto/session.proto.
#pragma once

#include <vector>

#include "client/rank/clock.h"
#include "client/rank/hello.h"
#include "client/rank/join_target.h"
#include "daemon/base/fd.h"

namespace tutti::client {

// What the job's worker sends to a rank that it admits.
struct JoinReply {
  Fd socket;    // Stays open while the rank takes part: end of file means that one died.
  Fd memory;    // The memfd of this rank's segment.
  Fd doorbell;  // An eventfd that wakes the worker.
  Fd board;     // The memfd of the board.
  Fd recorder;  // The memfd of the flight recorder.
  std::vector<Fd> segments;  // The memfds of the segments of this host's ranks, by local rank.
  Welcome welcome;
  bool was_closed = false;  // The connection, before there was a Welcome.
};

// Connects to the agent, sends Hello and waits for Welcome. Blocks at most half a second longer
// than the target's timeout, so that a refusal by the daemon, which knows the cause, comes first.
Status join_job(const JoinTarget& target, JoinReply& reply);

}  // namespace tutti::client
