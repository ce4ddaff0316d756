// Callers of the Admin service: what people and tools ask of a node, and through it of the mesh.
//
// All calls block, and return UNAVAILABLE if no agent answers at `address`. Status (unless
// `local_only`), traces and strategies concern the whole mesh, whichever agent is asked; drain and
// stop concern that agent. `address` is an agent's Unix socket, "unix:PATH", where the caller's
// user decides what is allowed, or its control plane, host:port, where token_of_environment() does,
// or the certificate in TUTTI_TLS_DIR if TUTTI_TLS is "require". UNAUTHENTICATED,
// PERMISSION_DENIED: it is not allowed; the message says to whom it is.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/base/status.h"
#include "proto/mesh.pb.h"

namespace tutti {

// Returns TUTTI_ADDRESS if set, otherwise the Unix socket in TUTTI_SOCKET or the default of
// `socket`.
std::string default_address();
Result<v1::StatusReply> admin_status(const std::string& address, bool local_only, int timeout_ms);
// The status of the mesh, with the jobs that ended.
Result<v1::StatusReply> admin_history(const std::string& address, int timeout_ms);
// `job`: "" for all jobs. `last`: operations of each rank; 0: all that are kept.
Result<v1::TraceReply> admin_trace(const std::string& address, const std::string& job,
                                   uint32_t last, int timeout_ms);
Status admin_set_strategy(const std::string& address, const std::string& job,
                          const std::string& strategy, int timeout_ms);
Status admin_drain(const std::string& address, bool undo, int timeout_ms);
Status admin_stop(const std::string& address, bool jobs, int timeout_ms);
// Ends the workers of one job on all nodes. NOT_FOUND: there are none of the caller's.
Result<v1::StopJobReply> admin_stop_job(const std::string& address, const std::string& job,
                                        int timeout_ms);

}  // namespace tutti
