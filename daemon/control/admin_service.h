// The Admin gRPC service: the control plane's door to AdminCalls.
#pragma once

#include "daemon/control/admin_calls.h"
#include "daemon/control/channel.h"
#include "daemon/control/tls.h"
#include "proto/mesh.grpc.pb.h"

namespace tutti {

// Handlers block on gRPC's own thread pool: calls are rare, and each waits for other agents.
class AdminService final : public v1::Admin::Service {
 public:
  AdminService(AdminCalls& calls, const Credentials& credentials, const ServerTls& tls)
      : calls_(calls), credentials_(credentials), tls_(tls) {}

  grpc::Status Call(grpc::ServerContext* context, const v1::AdminRequest* request,
                    v1::AdminAnswer* answer) override {
    const Caller caller = caller_of(*context, credentials_, tls_, Caller::Kind::admin);
    *answer = calls_.call(*request, caller, is_forwarded(*context));
    return {static_cast<grpc::StatusCode>(answer->code()), answer->message()};
  }

 private:
  AdminCalls& calls_;
  const Credentials& credentials_;
  const ServerTls& tls_;
};

}  // namespace tutti
