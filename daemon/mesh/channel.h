// gRPC channels and servers with this room's keepalive settings, and conversion of statuses.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "daemon/base/status.h"

namespace tutti {

// The interval of pings on an idle connection, and the time until an unanswered one means that the
// peer is gone: a stopped or vanished peer is noticed within their sum.
inline constexpr int kPingEveryMs = 1'500;
inline constexpr int kPingTimeoutMs = 3'000;
inline constexpr int kRedialMs = 1'000;

// Returns a channel with a connection of its own, opened on first use. It ignores proxies and
// reconnects quickly.
std::shared_ptr<grpc::Channel> make_channel(const std::string& address);
// Applies the same settings to a server, and keeps a second server from sharing its port.
void set_keepalive(grpc::ServerBuilder& builder);

// A call shows the token to agents that have one. Does nothing if it is empty.
void show_token(grpc::ClientContext& context, const std::string& token);
// UNAUTHENTICATED: `token`, the one of the agent at `address`, is not empty, and the call does not
// show it.
grpc::Status check_token(const grpc::ServerContextBase& context, const std::string& token,
                         const std::string& address);

std::string unreachable_text(const std::string& address, const std::string& why);
// Converts gRPC's status; that of an unreachable peer says how to start a daemon there.
Status from_grpc(const grpc::Status& status, const std::string& address);
grpc::Status to_grpc(const Status& status);

}  // namespace tutti
