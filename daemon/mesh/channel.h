// How this room dials, and what gRPC's answers mean here.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "daemon/base/status.h"

namespace tutti {

// Between pings of an idle connection, and until an unanswered ping means that the peer is gone:
// one that is stopped or vanished without a word is noticed within their sum.
inline constexpr int kPingEveryMs = 1'500;
inline constexpr int kPingTimeoutMs = 3'000;
inline constexpr int kRedialMs = 1'000;

// A connection of its own, made on first use. No proxy is asked; a broken one is retried quickly.
std::shared_ptr<grpc::Channel> dial(const std::string& address);
// The same rules for a server's side; also, no second server may share its port.
void set_rules(grpc::ServerBuilder& builder);

std::string unreachable_text(const std::string& address, const std::string& why);
// gRPC's status as ours; an unreachable peer's says how to start it.
Status from_grpc(const grpc::Status& status, const std::string& address);
grpc::Status to_grpc(const Status& status);

}  // namespace tutti
