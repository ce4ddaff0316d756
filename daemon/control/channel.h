// gRPC channels and servers with this room's keepalive settings, and conversion of statuses.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "daemon/base/credentials.h"
#include "daemon/base/status.h"
#include "daemon/control/tls.h"
#include "daemon/control/tls_files.h"
#include "daemon/membership/rules.h"
#include "proto/mesh.pb.h"

namespace tutti {

// The interval of pings on an idle connection, and the time until an unanswered one means that the
// peer is gone: a stopped or vanished peer is noticed within their sum.
inline constexpr int kPingEveryMs = 1'500;
inline constexpr int kPingTimeoutMs = 3'000;
inline constexpr int kRedialMs = 1'000;
// Longer messages of workers come in parts of so many bytes.
inline constexpr size_t kPartBytes = 8 << 10;
inline constexpr int kMessageBytesMax = 64 << 20;  // A roster of 65,535 ranks fits.

// Returns a channel with a connection of its own, opened on first use. It ignores proxies and
// reconnects quickly. With TLS it shows the certificates of this moment for good; `host` is the
// name of the agent at `address`, if it is known.
std::shared_ptr<grpc::Channel> make_channel(const std::string& address, const Tls& tls,
                                            const std::string& host = {});
// Applies the same settings to a server, keeps a second server from sharing its port, and bounds
// what a caller may cost before and after it is known.
void set_server_options(grpc::ServerBuilder& builder, int hello_timeout_ms);

// A call shows this token. Does nothing if it is empty.
void show_token(grpc::ClientContext& context, const std::string& token);
// Who calls: an admin or agent by its token, else anyone. For a token for both, `role` counts. With
// TLS, an agent must have shown a certificate as well, and an admin's certificate needs no token.
Caller caller_of(const grpc::ServerContextBase& context, const Credentials& credentials,
                 const ServerTls& tls, Caller::Kind role);

// Whether the caller is an agent of this mesh. UNAUTHENTICATED, PERMISSION_DENIED: what it lacks,
// and what to do: "wrong token; give both the same token_file".
Status check_agent(const grpc::ServerContextBase& context, const Credentials& credentials,
                   const ServerTls& tls);
// "10.0.0.7": the caller's address without the port, which differs each time.
std::string caller_address(const grpc::ServerContextBase& context);

// A worker shows its pass before it says anything.
void show_pass(grpc::ClientContext& context, const v1::Pass& pass);
// UNAUTHENTICATED: the call shows none.
Result<v1::Pass> shown_pass(const grpc::ServerContextBase& context);
// So begins what a coordinator says to a worker of a host of which no agent is registered (yet).
inline constexpr std::string_view kNoAgentOf = "no agent of host ";

// Marks a call that an agent passes on, so that two agents that each believe the other to be the
// coordinator do not pass it back and forth.
void mark_forwarded(grpc::ClientContext& context);
bool is_forwarded(const grpc::ServerContextBase& context);

// Why an agent is not registered at the coordinator, and what to do about it: what its log, status,
// readiness and doctor say. `why`: with what its stream there ended.
std::string registration_obstacle(const std::string& coordinator, const Status& why,
                                  const Tls& tls);
std::string unreachable_text(const std::string& address, const std::string& why, const Tls& tls);
std::string reason_of(const grpc::Status& status);  // For people, clean.
// Converts gRPC's status; that of an unreachable peer says how to start a daemon there.
Status from_grpc(const grpc::Status& status, const std::string& address, const Tls& tls);
grpc::Status to_grpc(const Status& status);

}  // namespace tutti
