#include "daemon/control/admin_service.h"

#include "daemon/control/channel.h"

namespace tutti {
namespace {

grpc::Status status_of(const v1::AdminAnswer& answer) {
  return {static_cast<grpc::StatusCode>(answer.code()), answer.message()};
}

}  // namespace

v1::AdminAnswer AdminService::call(const grpc::ServerContext& context,
                                   const v1::AdminRequest& request) {
  return calls_.call(request, caller_of(context, credentials_, tls_, Caller::Kind::admin),
                     is_forwarded(context));
}

grpc::Status AdminService::Status(grpc::ServerContext* context, const v1::StatusRequest* request,
                                  v1::StatusReply* reply) {
  v1::AdminRequest asked;
  *asked.mutable_status() = *request;
  v1::AdminAnswer answer = call(*context, asked);
  reply->Swap(answer.mutable_status());
  return status_of(answer);
}

grpc::Status AdminService::Trace(grpc::ServerContext* context, const v1::TraceRequest* request,
                                 v1::TraceReply* reply) {
  v1::AdminRequest asked;
  *asked.mutable_trace() = *request;
  v1::AdminAnswer answer = call(*context, asked);
  reply->Swap(answer.mutable_trace());
  return status_of(answer);
}

grpc::Status AdminService::SetStrategy(grpc::ServerContext* context,
                                       const v1::SetStrategyRequest* request, v1::AdminReply*) {
  v1::AdminRequest asked;
  *asked.mutable_set_strategy() = *request;
  return status_of(call(*context, asked));
}

grpc::Status AdminService::Drain(grpc::ServerContext* context, const v1::DrainRequest* request,
                                 v1::AdminReply*) {
  v1::AdminRequest asked;
  *asked.mutable_drain() = *request;
  return status_of(call(*context, asked));
}

grpc::Status AdminService::Stop(grpc::ServerContext* context, const v1::StopRequest* request,
                                v1::AdminReply*) {
  v1::AdminRequest asked;
  *asked.mutable_stop() = *request;
  return status_of(call(*context, asked));
}

}  // namespace tutti
