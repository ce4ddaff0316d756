#include "daemon/mesh/admin_service.h"

#include <grpcpp/grpcpp.h>

#include "daemon/mesh/channel.h"

namespace tutti {
namespace {

constexpr Millis kAgentMs{1'000};
constexpr Millis kForwardMs{3'000};
// Marks a forwarded call, so that two agents that take each other for the coordinator do not play
// ball.
constexpr const char* kForwarded = "tutti-forwarded";

void prepare(grpc::ClientContext& context, Millis timeout) {
  context.set_deadline(std::chrono::system_clock::now() + timeout);
  context.AddMetadata(kForwarded, "1");
}

bool is_forwarded(const grpc::ServerContext& context) {
  return context.client_metadata().contains(kForwarded);
}

v1::AgentReport unreachable(const std::string& host, const std::string& address,
                            const grpc::Status& why) {
  v1::AgentReport report;
  report.set_host(host);
  report.set_address(address);
  report.set_state("unreachable: " + why.error_message());
  return report;
}

// One question to one agent, under way.
struct Question {
  explicit Question(v1::AgentMessage asked)
      : agent(std::move(asked)), stub(v1::Admin::NewStub(dial(agent.address()))) {
    prepare(context, kAgentMs);
    request.set_local_only(true);
  }
  v1::AgentReport answer() const {
    if (status.ok() && reply.agents_size() == 1) return reply.agents(0);
    return unreachable(agent.host(), agent.address(), status);
  }

  v1::AgentMessage agent;
  std::unique_ptr<v1::Admin::Stub> stub;
  grpc::ClientContext context;
  v1::StatusRequest request;
  v1::StatusReply reply;
  grpc::Status status;
};

}  // namespace

void AdminService::open(Place place) {
  place_ = std::move(place);
  opened_.count_down();
}

const AdminService::Place& AdminService::place() const {
  opened_.wait();
  return place_;
}

grpc::Status AdminService::Status(grpc::ServerContext* context, const v1::StatusRequest* request,
                                  v1::StatusReply* reply) {
  if (request->local_only())
    *reply->add_agents() = own_report();
  else if (place().coordinates())
    gather(*reply);
  else if (is_forwarded(*context))
    return {grpc::StatusCode::FAILED_PRECONDITION,
            place().address + " does not coordinate; the coordinator is " + place().coordinator};
  else
    ask_coordinator(*reply);
  return grpc::Status::OK;
}

v1::AgentReport AdminService::own_report() {
  v1::AgentReport report = agent_.report();
  report.set_address(place().address);
  report.set_coordinator(place().coordinates());
  return report;
}

void AdminService::gather(v1::StatusReply& reply) {
  std::vector<std::unique_ptr<Question>> questions;
  for (const v1::AgentMessage& agent : coordinator_.agents())
    questions.push_back(std::make_unique<Question>(agent));
  std::latch open(static_cast<ptrdiff_t>(questions.size()));
  for (const auto& question : questions)
    question->stub->async()->Status(&question->context, &question->request, &question->reply,
                                    [&open, asked = question.get()](const grpc::Status& status) {
                                      asked->status = status;
                                      open.count_down();
                                    });
  *reply.add_agents() = own_report();
  open.wait();
  for (const auto& question : questions) *reply.add_agents() = question->answer();
}

void AdminService::ask_coordinator(v1::StatusReply& reply) {
  grpc::ClientContext context;
  prepare(context, kForwardMs);
  const grpc::Status status =
      v1::Admin::NewStub(dial(place().coordinator))->Status(&context, {}, &reply);
  if (status.ok()) return;
  reply.Clear();
  v1::AgentReport coordinator = unreachable("", place().coordinator, status);
  coordinator.set_coordinator(true);
  *reply.add_agents() = coordinator;
  *reply.add_agents() = own_report();
}

grpc::Status AdminService::SetStrategy(grpc::ServerContext* context,
                                       const v1::SetStrategyRequest* request,
                                       v1::AdminReply* reply) {
  if (place().coordinates())
    return to_grpc(coordinator_.set_strategy(request->job(), request->strategy()));
  if (is_forwarded(*context))
    return {grpc::StatusCode::FAILED_PRECONDITION,
            place().address + " does not coordinate; the coordinator is " + place().coordinator};
  grpc::ClientContext forward;
  prepare(forward, kForwardMs);
  const auto stub = v1::Admin::NewStub(dial(place().coordinator));
  return to_grpc(from_grpc(stub->SetStrategy(&forward, *request, reply), place().coordinator));
}

grpc::Status AdminService::Drain(grpc::ServerContext*, const v1::DrainRequest* request,
                                 v1::AdminReply*) {
  return to_grpc(agent_.drain(request->undo()));
}

grpc::Status AdminService::Stop(grpc::ServerContext*, const v1::StopRequest* request,
                                v1::AdminReply*) {
  return to_grpc(agent_.stop(request->jobs()));
}

}  // namespace tutti
