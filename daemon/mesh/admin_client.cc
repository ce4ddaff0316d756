// Blocking calls of the Admin service.
#include <grpcpp/grpcpp.h>

#include <cstdlib>

#include "daemon/base/settings.h"
#include "daemon/base/token.h"
#include "daemon/mesh/channel.h"
#include "daemon/mesh/mesh.h"
#include "proto/mesh.grpc.pb.h"

namespace tutti {
namespace {

template <class Request, class Reply>
using Method = grpc::Status (v1::Admin::Stub::*)(grpc::ClientContext*, const Request&, Reply*);

template <class Request, class Reply>
Status call(const std::string& address, int timeout_ms, Method<Request, Reply> method,
            const Request& request, Reply& reply) {
  grpc::ClientContext context;
  const Result<std::string> token = token_of_environment();
  if (!token.ok()) return token.status();
  show_token(context, *token);
  context.set_deadline(std::chrono::system_clock::now() + Millis(timeout_ms));
  const auto stub = v1::Admin::NewStub(make_channel(address));
  return from_grpc((*stub.*method)(&context, request, &reply), address);
}

}  // namespace

std::string default_address() {
  const char* address = std::getenv("TUTTI_ADDRESS");
  return address != nullptr && *address != 0 ? address : Settings().listen;
}

Result<v1::StatusReply> admin_status(const std::string& address, bool local_only, int timeout_ms) {
  v1::StatusRequest request;
  request.set_local_only(local_only);
  v1::StatusReply reply;
  const Status status = call(address, timeout_ms, &v1::Admin::Stub::Status, request, reply);
  if (!status.ok()) return status;
  return reply;
}

Status admin_set_strategy(const std::string& address, const std::string& job,
                          const std::string& strategy, int timeout_ms) {
  v1::SetStrategyRequest request;
  request.set_job(job);
  request.set_strategy(strategy);
  v1::AdminReply reply;
  return call(address, timeout_ms, &v1::Admin::Stub::SetStrategy, request, reply);
}

Status admin_drain(const std::string& address, bool undo, int timeout_ms) {
  v1::DrainRequest request;
  request.set_undo(undo);
  v1::AdminReply reply;
  return call(address, timeout_ms, &v1::Admin::Stub::Drain, request, reply);
}

Status admin_stop(const std::string& address, bool jobs, int timeout_ms) {
  v1::StopRequest request;
  request.set_jobs(jobs);
  v1::AdminReply reply;
  return call(address, timeout_ms, &v1::Admin::Stub::Stop, request, reply);
}

}  // namespace tutti
