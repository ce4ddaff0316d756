#include "daemon/mesh/admin_service.h"

#include <grpcpp/grpcpp.h>

#include "daemon/mesh/channel.h"

namespace tutti {
namespace {

constexpr Millis kAgentMs{1'000};
constexpr Millis kForwardMs{3'000};
// Marks a forwarded call, so that two agents that each believe the other to be the coordinator do
// not forward it back and forth.
constexpr const char* kForwarded = "tutti-forwarded";

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

// A Status call to one agent, in progress.
struct StatusQuery {
  explicit StatusQuery(v1::AgentMessage asked)
      : agent(std::move(asked)), stub(v1::Admin::NewStub(make_channel(agent.address()))) {
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

void AdminService::set_addresses(Addresses addresses) {
  addresses_ = std::move(addresses);
  addresses_known_.count_down();
}

const AdminService::Addresses& AdminService::addresses() const {
  addresses_known_.wait();
  return addresses_;
}

grpc::Status AdminService::Status(grpc::ServerContext* context, const v1::StatusRequest* request,
                                  v1::StatusReply* reply) {
  if (grpc::Status checked = check(*context); !checked.ok()) return checked;
  if (request->local_only())
    *reply->add_agents() = own_report();
  else if (addresses().coordinates())
    ask_all_agents(*reply);
  else if (is_forwarded(*context))
    return not_the_coordinator();
  else
    forward_to_coordinator(*reply);
  return grpc::Status::OK;
}

grpc::Status AdminService::check(const grpc::ServerContext& context) const {
  return check_token(context, token_, addresses().address);
}

// Agents of one mesh have the same token.
void AdminService::prepare_forward(grpc::ClientContext& context, Millis timeout) const {
  context.set_deadline(std::chrono::system_clock::now() + timeout);
  context.AddMetadata(kForwarded, "1");
  show_token(context, token_);
}

grpc::Status AdminService::not_the_coordinator() const {
  return {
      grpc::StatusCode::FAILED_PRECONDITION,
      addresses().address + " does not coordinate; the coordinator is " + addresses().coordinator};
}

v1::AgentReport AdminService::own_report() {
  v1::AgentReport report = agent_.report();
  report.set_address(addresses().address);
  report.set_coordinator(addresses().coordinates());
  return report;
}

void AdminService::ask_all_agents(v1::StatusReply& reply) {
  std::vector<std::unique_ptr<StatusQuery>> queries;
  for (const v1::AgentMessage& agent : coordinator_.agents())
    prepare_forward(queries.emplace_back(std::make_unique<StatusQuery>(agent))->context, kAgentMs);
  std::latch open(static_cast<ptrdiff_t>(queries.size()));
  for (const auto& query : queries)
    query->stub->async()->Status(&query->context, &query->request, &query->reply,
                                 [&open, sent = query.get()](const grpc::Status& status) {
                                   sent->status = status;
                                   open.count_down();
                                 });
  *reply.add_agents() = own_report();
  open.wait();
  for (const auto& query : queries) *reply.add_agents() = query->answer();
}

void AdminService::forward_to_coordinator(v1::StatusReply& reply) {
  grpc::ClientContext context;
  prepare_forward(context, kForwardMs);
  const grpc::Status status =
      v1::Admin::NewStub(make_channel(addresses().coordinator))->Status(&context, {}, &reply);
  if (status.ok()) return;
  reply.Clear();
  v1::AgentReport coordinator = unreachable("", addresses().coordinator, status);
  coordinator.set_coordinator(true);
  *reply.add_agents() = coordinator;
  *reply.add_agents() = own_report();
}

grpc::Status AdminService::SetStrategy(grpc::ServerContext* context,
                                       const v1::SetStrategyRequest* request,
                                       v1::AdminReply* reply) {
  if (grpc::Status checked = check(*context); !checked.ok()) return checked;
  if (addresses().coordinates())
    return to_grpc(coordinator_.set_strategy(request->job(), request->strategy()));
  if (is_forwarded(*context)) return not_the_coordinator();
  grpc::ClientContext forward;
  prepare_forward(forward, kForwardMs);
  const auto stub = v1::Admin::NewStub(make_channel(addresses().coordinator));
  return to_grpc(from_grpc(stub->SetStrategy(&forward, *request, reply), addresses().coordinator));
}

grpc::Status AdminService::Drain(grpc::ServerContext* context, const v1::DrainRequest* request,
                                 v1::AdminReply*) {
  if (grpc::Status checked = check(*context); !checked.ok()) return checked;
  return to_grpc(agent_.drain(request->undo()));
}

grpc::Status AdminService::Stop(grpc::ServerContext* context, const v1::StopRequest* request,
                                v1::AdminReply*) {
  if (grpc::Status checked = check(*context); !checked.ok()) return checked;
  return to_grpc(agent_.stop(request->jobs()));
}

}  // namespace tutti
