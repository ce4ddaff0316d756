#include "daemon/control/admin_calls.h"

#include <grpcpp/grpcpp.h>
#include <spdlog/spdlog.h>
#include <syslog.h>

#include <algorithm>

#include "daemon/base/foreign_text.h"
#include "daemon/control/channel.h"
#include "proto/mesh.grpc.pb.h"

namespace tutti {
namespace {

constexpr Millis kAgentMs{1'000};
constexpr Millis kForwardMs{3'000};
constexpr uint64_t kTraceBytesMax = uint64_t{48} << 20;  // Of all agents' replies.
constexpr size_t kLoggedBytesMax = 256;                  // Of what a caller wrote.
constexpr int kRefusalsLogged = 20;  // In a second, so that they do not drive out other lines.

v1::AgentReport unreachable(const std::string& host, const std::string& address,
                            const grpc::Status& why) {
  v1::AgentReport report;
  report.set_host(host);
  report.set_address(address);
  report.set_state("unreachable: " + reason_of(why));
  return report;
}

bool is_of(const Caller& caller, const v1::HostTrace& trace) {
  return trace.owner().uid() == caller.uid && trace.owner().subject() == caller.subject;
}

// Users see what is their own only.
void keep_own_of(const Caller& caller, v1::StatusReply& reply) {
  const uint32_t uid = caller.uid;
  for (v1::AgentReport& agent : *reply.mutable_agents()) {
    auto& workers = *agent.mutable_workers();
    workers.erase(std::remove_if(workers.begin(), workers.end(),
                                 [&](const auto& worker) {
                                   return worker.uid() != uid ||
                                          worker.pass().subject() != caller.subject;
                                 }),
                  workers.end());
    auto& users = *agent.mutable_users();
    users.erase(std::remove_if(users.begin(), users.end(),
                               [uid](const auto& user) { return user.uid() != uid; }),
                users.end());
  }
}

Rpc rpc_of(const v1::AdminRequest& request) {
  if (request.has_set_strategy()) return Rpc::set_strategy;
  if (request.has_drain()) return Rpc::drain;
  if (request.has_trace()) return Rpc::trace;
  return request.has_stop() ? Rpc::stop : Rpc::status;
}

// A line of the log may not end where a caller wants it to.
std::string for_log(std::string text) {
  if (text.size() > kLoggedBytesMax) text.resize(kLoggedBytesMax);
  return printable(std::move(text));
}

std::string describe(const v1::AdminRequest& request) {
  switch (rpc_of(request)) {
    case Rpc::set_strategy:
      return "set the strategy of job \"" + request.set_strategy().job() + "\" to " +
             request.set_strategy().strategy();
    case Rpc::drain:
      return request.drain().undo() ? "end draining" : "drain";
    case Rpc::stop:
      return request.stop().jobs() ? "stop the agent and its jobs" : "stop the agent";
    case Rpc::trace:
      return "show the trace of job \"" + request.trace().job() + "\"";
    default:
      return "show the status";
  }
}

void audit(const v1::AdminRequest& request, const Caller& caller, const Status& outcome) {
  if (outcome.ok() && (request.has_status() || request.has_trace())) return;
  const std::string line = for_log(caller.name) + ": " + for_log(describe(request)) + ": " +
                           for_log(outcome.to_string());
  spdlog::info("audit: {}", line);
  // The agent's log can be written by workers, and its lines may be dropped.
  syslog(LOG_AUTHPRIV | LOG_INFO, "tuttid: audit: %s", line.c_str());
}

// Narrows what is shown or changed to what is the user's own.
template <class Request>
void set_owner(const Caller& caller, Request& request) {
  if (caller.kind != Caller::Kind::user) return;
  request.mutable_owner()->set_uid(caller.uid);
  request.mutable_owner()->set_subject(caller.subject);
}

}  // namespace

// A call to one agent, in progress.
struct AdminCalls::Query {
  v1::AgentMessage agent;
  std::unique_ptr<v1::Admin::Stub> stub;
  grpc::ClientContext context;
  v1::AdminAnswer answer;
  grpc::Status status;

  v1::AgentReport unreachable() const {
    return tutti::unreachable(agent.host(), agent.address(), status);
  }
};

void AdminCalls::set_address(std::string address) {
  address_ = std::move(address);
  address_known_.count_down();
}

const std::string& AdminCalls::address() const {
  address_known_.wait();
  return address_;
}

v1::AdminAnswer AdminCalls::call(v1::AdminRequest request, const Caller& caller, bool forwarded) {
  clean_texts(request);
  v1::AdminAnswer answer;
  Status status = permit(rpc_of(request), caller, address());
  if (status.ok() && request.kind_case() == v1::AdminRequest::KIND_NOT_SET)
    status = invalid_argument("the request asks for nothing that this release knows");
  if (status.ok()) status = act(request, caller, forwarded, answer);
  if (status.ok() || may_log_refusal()) audit(request, caller, status);
  answer.set_code(static_cast<int32_t>(status.code()));
  answer.set_message(status.message());
  return answer;
}

bool AdminCalls::may_log_refusal() {
  const std::lock_guard lock(refusals_mutex_);
  const TimePoint now = Clock::now();
  if (now >= refusals_since_ + Millis(1'000)) {
    if (refusals_ > kRefusalsLogged)
      spdlog::warn("audit: {} more requests were refused", refusals_ - kRefusalsLogged);
    refusals_since_ = now;
    refusals_ = 0;
  }
  return ++refusals_ <= kRefusalsLogged;
}

Status AdminCalls::act(const v1::AdminRequest& request, const Caller& caller, bool forwarded,
                       v1::AdminAnswer& answer) {
  switch (rpc_of(request)) {
    case Rpc::set_strategy:
      return set_strategy(request, caller, forwarded);
    case Rpc::drain:
      return agent_.drain(request.drain().undo());
    case Rpc::stop:
      return agent_.stop(request.stop().jobs());
    case Rpc::trace:
      return trace(request, caller, forwarded, *answer.mutable_trace());
    default:
      return status(request, caller, forwarded, *answer.mutable_status());
  }
}

Status AdminCalls::status(const v1::AdminRequest& request, const Caller& caller, bool forwarded,
                          v1::StatusReply& reply) {
  if (request.status().local_only())
    *reply.add_agents() = own_report();
  else if (coordinator_.leads())
    ask_all_agents(request, reply);
  else if (forwarded)
    return not_the_coordinator();
  else
    forward_to_coordinator(request, reply);
  if (caller.kind == Caller::Kind::user) keep_own_of(caller, reply);
  return {};
}

// As of the strategy: an owner only narrows what is shown. What comes back is looked at once more,
// because another agent may be of an older release.
Status AdminCalls::trace(v1::AdminRequest request, const Caller& caller, bool forwarded,
                         v1::TraceReply& reply) {
  set_owner(caller, *request.mutable_trace());
  if (request.trace().local_only()) {
    reply = agent_.trace(request.trace());
  } else if (coordinator_.leads()) {
    trace_all_agents(request, reply);
  } else if (forwarded) {
    return not_the_coordinator();
  } else {
    forward_to_coordinator(request, reply);
  }
  if (caller.kind != Caller::Kind::user) return {};
  auto& hosts = *reply.mutable_hosts();
  hosts.erase(std::remove_if(hosts.begin(), hosts.end(),
                             [&](const auto& trace) { return !is_of(caller, trace); }),
              hosts.end());
  return {};
}

void AdminCalls::trace_all_agents(v1::AdminRequest request, v1::TraceReply& reply) {
  const std::vector<v1::AgentMessage> agents = coordinator_.agents();
  request.mutable_trace()->set_local_only(true);
  request.mutable_trace()->set_bytes_max(kTraceBytesMax / (agents.size() + 1));
  const Queries queries = ask_each(agents, request, [&] { reply = agent_.trace(request.trace()); });
  for (const auto& query : queries) {
    if (!query->status.ok()) *reply.add_missing() = query->unreachable();
    for (v1::HostTrace& trace : *query->answer.mutable_trace()->mutable_hosts())
      *reply.add_hosts() = std::move(trace);
  }
}

// The answers come in the order of the agents. Calls `meanwhile` before it waits for them.
AdminCalls::Queries AdminCalls::ask_each(const std::vector<v1::AgentMessage>& agents,
                                         const v1::AdminRequest& request,
                                         const std::function<void()>& meanwhile) const {
  Queries queries;
  for (const v1::AgentMessage& agent : agents) {
    Query& query = *queries.emplace_back(std::make_unique<Query>());
    query.agent = agent;
    query.stub = v1::Admin::NewStub(make_channel(agent.address(), tls_, agent.host()));
    prepare_forward(query.context, kAgentMs);
  }
  std::latch open(static_cast<ptrdiff_t>(queries.size()));
  for (const std::unique_ptr<Query>& query : queries)
    query->stub->async()->Call(&query->context, &request, &query->answer,
                               [&open, sent = query.get()](const grpc::Status& status) {
                                 sent->status = status;
                                 clean_texts(sent->answer);
                                 open.count_down();
                               });
  meanwhile();
  open.wait();
  return queries;
}

grpc::Status AdminCalls::ask_leader(const std::string& leader, const v1::AdminRequest& request,
                                    v1::AdminAnswer& answer) const {
  grpc::ClientContext context;
  prepare_forward(context, kForwardMs);
  const auto stub = v1::Admin::NewStub(make_channel(leader, tls_));
  const grpc::Status status = stub->Call(&context, request, &answer);
  clean_texts(answer);
  return status;
}

void AdminCalls::prepare_forward(grpc::ClientContext& context, Millis timeout) const {
  context.set_deadline(std::chrono::system_clock::now() + timeout);
  mark_forwarded(context);
  if (credentials_.has_agent_token()) show_token(context, credentials_.agent_token());
}

Status AdminCalls::not_the_coordinator() const {
  return failed_precondition(address() + " does not coordinate; " + coordinator_.describe_leader());
}

Status AdminCalls::nobody_coordinates() const {
  return unavailable("nobody coordinates: " + coordinator_.describe_leader());
}

v1::AgentReport AdminCalls::own_report() {
  v1::AgentReport report = agent_.report();
  report.set_address(address());
  report.set_coordinator(coordinator_.leads());
  report.set_coordinator_address(coordinator_.leader());
  describe_(report);
  return report;
}

void AdminCalls::ask_all_agents(v1::AdminRequest request, v1::StatusReply& reply) {
  request.mutable_status()->set_local_only(true);
  const Queries queries =
      ask_each(coordinator_.agents(), request, [&] { *reply.add_agents() = own_report(); });
  for (const auto& query : queries)
    *reply.add_agents() = query->status.ok() && query->answer.status().agents_size() == 1
                              ? query->answer.status().agents(0)
                              : query->unreachable();
}

void AdminCalls::forward_to_coordinator(const v1::AdminRequest& request, v1::StatusReply& reply) {
  const std::string leader = coordinator_.leader();
  if (!leader.empty()) {
    v1::AdminAnswer answer;
    const grpc::Status status = ask_leader(leader, request, answer);
    if (status.ok()) return reply.Swap(answer.mutable_status());
    v1::AgentReport& coordinator = *reply.add_agents();
    coordinator = unreachable("", leader, status);
    coordinator.set_coordinator(true);
  }
  *reply.add_agents() = own_report();
}

void AdminCalls::forward_to_coordinator(const v1::AdminRequest& request, v1::TraceReply& reply) {
  const std::string leader = coordinator_.leader();
  if (leader.empty()) {
    reply = agent_.trace(request.trace());
    reply.add_missing()->set_state(nobody_coordinates().message());
    return;
  }
  v1::AdminAnswer answer;
  const grpc::Status status = ask_leader(leader, request, answer);
  if (status.ok()) return reply.Swap(answer.mutable_trace());
  reply = agent_.trace(request.trace());
  *reply.add_missing() = unreachable("", leader, status);
}

// The coordinator knows whose a job is; an agent says for which of its users it asks. An owner in a
// request only narrows what it may change, so it counts from any sender.
Status AdminCalls::set_strategy(v1::AdminRequest request, const Caller& caller, bool forwarded) {
  v1::SetStrategyRequest& asked = *request.mutable_set_strategy();
  set_owner(caller, asked);
  if (coordinator_.leads())
    return coordinator_.set_strategy(asked.job(), asked.strategy(),
                                     asked.has_owner() ? &asked.owner() : nullptr);
  if (forwarded) return not_the_coordinator();
  const std::string leader = coordinator_.leader();
  if (leader.empty()) return nobody_coordinates();
  v1::AdminAnswer answer;
  return from_grpc(ask_leader(leader, request, answer), leader, tls_);
}

}  // namespace tutti
