#include "daemon/control/admin_calls.h"

#include <grpcpp/grpcpp.h>
#include <spdlog/spdlog.h>
#include <syslog.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "daemon/base/foreign_text.h"
#include "daemon/base/log_line.h"
#include "daemon/base/program.h"
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
                            const std::string& why) {
  v1::AgentReport report;
  report.set_host(host);
  report.set_address(address);
  report.set_state("unreachable: " + why);
  return report;
}

// Without it, a host that has calls would look like one that has none.
v1::AgentReport does_not_tell(const v1::AgentMessage& agent) {
  v1::AgentReport report;
  report.set_host(agent.host());
  report.set_address(agent.address());
  report.set_state("its release does not tell it with the status; install the same on every host");
  return report;
}

bool is_refusal(const grpc::Status& status) {
  const grpc::StatusCode code = status.error_code();
  return code == grpc::StatusCode::UNAUTHENTICATED || code == grpc::StatusCode::PERMISSION_DENIED;
}

// What a way that was kept may say of an agent that answers over a new one: it began again, or a
// firewall between has forgotten the connection.
bool may_be_the_way(const KeptStubs::Stub& stub, const grpc::Status& status) {
  const grpc::StatusCode code = status.error_code();
  return stub.is_kept &&
         (code == grpc::StatusCode::UNAVAILABLE || code == grpc::StatusCode::DEADLINE_EXCEEDED);
}

bool is_of(const Caller& caller, const v1::HostTrace& trace) {
  return trace.owner().uid() == caller.uid && trace.owner().subject() == caller.subject;
}

void keep_own_of(const Caller& caller, v1::TraceReply& reply) {
  auto& hosts = *reply.mutable_hosts();
  hosts.erase(std::remove_if(hosts.begin(), hosts.end(),
                             [&](const auto& trace) { return !is_of(caller, trace); }),
              hosts.end());
}

// Users see what is their own only.
void keep_own_of(const Caller& caller, v1::StatusReply& reply) {
  const auto keep = [](auto& list, const auto& is_own) {
    list.erase(std::remove_if(list.begin(), list.end(), std::not_fn(is_own)), list.end());
  };
  const auto is_own = [&](const v1::WorkerReport& worker) {
    return worker.uid() == caller.uid && worker.pass().subject() == caller.subject;
  };
  for (v1::AgentReport& agent : *reply.mutable_agents()) {
    keep(*agent.mutable_workers(), is_own);
    keep(*agent.mutable_ended(), [&](const auto& job) { return is_own(job.last()); });
    keep(*agent.mutable_users(), [&](const auto& user) { return user.uid() == caller.uid; });
    keep(*agent.mutable_refused_joins(), [&](const auto& join) {
      return join.owner().uid() == caller.uid && join.owner().subject() == caller.subject;
    });
  }
}

Rpc rpc_of(const v1::AdminRequest& request) {
  if (request.has_set_strategy()) return Rpc::set_strategy;
  if (request.has_drain()) return Rpc::drain;
  if (request.has_trace()) return Rpc::trace;
  if (request.has_stop_job()) return Rpc::stop_job;
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
    case Rpc::stop_job:
      return "stop job \"" + request.stop_job().job() + "\"" +
             (request.stop_job().by().empty() ? "" : " for " + request.stop_job().by());
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
  // The journal, where it reads the log, has what goes to syslog as lines of the unit, too.
  if (!is_journal(STDERR_FILENO, variable("JOURNAL_STREAM"))) spdlog::info("audit: {}", line);
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
  KeptStubs::Stub stub;
  std::optional<grpc::ClientContext> context;
  v1::AdminAnswer answer;
  grpc::Status status;

  v1::AgentReport unreachable(const Tls& tls) const {
    return tutti::unreachable(agent.host(), agent.address(),
                              from_grpc(status, agent.address(), tls).message());
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
  // Who asked is what an agent says of its callers.
  if (request.has_stop_job() && (!forwarded || caller.kind == Caller::Kind::user))
    request.mutable_stop_job()->clear_by();
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
    case Rpc::stop_job:
      return stop_job(request, caller, forwarded, *answer.mutable_stop_job());
    case Rpc::trace:
      return trace(request, caller, forwarded, *answer.mutable_trace());
    default:
      return status(request, caller, forwarded, *answer.mutable_status());
  }
}

Status AdminCalls::status(v1::AdminRequest request, const Caller& caller, bool forwarded,
                          v1::StatusReply& reply) {
  if (request.status().has_calls()) set_owner(caller, *request.mutable_status()->mutable_calls());
  if (request.status().local_only())
    report_own(request.status(), reply);
  else if (coordinator_.leads())
    ask_all_agents(request, reply);
  else if (forwarded)
    return not_the_coordinator();
  else
    forward_to_coordinator(request, reply);
  if (!request.status().ended())
    for (v1::AgentReport& agent : *reply.mutable_agents()) agent.clear_ended();
  if (caller.kind != Caller::Kind::user) return {};
  keep_own_of(caller, reply);
  if (reply.has_calls()) keep_own_of(caller, *reply.mutable_calls());
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
  if (caller.kind == Caller::Kind::user) keep_own_of(caller, reply);
  return {};
}

void AdminCalls::trace_all_agents(v1::AdminRequest request, v1::TraceReply& reply) {
  const std::vector<v1::AgentMessage> agents = coordinator_.agents();
  request.mutable_trace()->set_local_only(true);
  request.mutable_trace()->set_bytes_max(kTraceBytesMax / (agents.size() + 1));
  const Queries queries = ask_each(agents, request, [&] { reply = agent_.trace(request.trace()); });
  for (const auto& query : queries) {
    if (!query->status.ok()) *reply.add_missing() = query->unreachable(tls_);
    for (v1::HostTrace& trace : *query->answer.mutable_trace()->mutable_hosts())
      *reply.add_hosts() = std::move(trace);
  }
}

// The answers come in the order of the agents. Calls `meanwhile` before it waits for them.
AdminCalls::Queries AdminCalls::ask_each(const std::vector<v1::AgentMessage>& agents,
                                         const v1::AdminRequest& request,
                                         const std::function<void()>& meanwhile) const {
  Queries queries;
  std::vector<Query*> asked;
  std::vector<std::pair<std::string, std::string>> names;
  for (const v1::AgentMessage& agent : agents) {
    Query& query = *queries.emplace_back(std::make_unique<Query>());
    query.agent = agent;
    query.stub = stubs_.take(agent.host(), agent.address());
    asked.push_back(&query);
    names.emplace_back(agent.host(), agent.address());
  }
  stubs_.keep_only(names);
  ask_once(asked, request, meanwhile);
  std::erase_if(asked, [](const Query* one) { return !may_be_the_way(one->stub, one->status); });
  for (Query* query : asked)
    query->stub = stubs_.take_new(query->agent.host(), query->agent.address());
  ask_once(asked, request, [] {});
  for (const std::unique_ptr<Query>& query : queries)
    if (query->status.ok()) stubs_.give_back(std::move(query->stub));
  return queries;
}

void AdminCalls::ask_once(const std::vector<Query*>& queries, const v1::AdminRequest& request,
                          const std::function<void()>& meanwhile) const {
  std::latch open(static_cast<ptrdiff_t>(queries.size()));
  for (Query* query : queries) {
    prepare_forward(query->context.emplace(), kAgentMs);
    query->stub.stub->async()->Call(&*query->context, &request, &query->answer,
                                    [&open, query](const grpc::Status& status) {
                                      query->status = status;
                                      clean_texts(query->answer);
                                      open.count_down();
                                    });
  }
  meanwhile();
  open.wait();
}

grpc::Status AdminCalls::ask_leader(const std::string& leader, const v1::AdminRequest& request,
                                    v1::AdminAnswer& answer) const {
  const auto ask = [&](const KeptStubs::Stub& stub, Millis timeout) {
    grpc::ClientContext context;
    prepare_forward(context, timeout);
    return stub.stub->Call(&context, request, &answer);
  };
  stubs_.keep_only({{"", leader}});
  KeptStubs::Stub stub = stubs_.take("", leader);
  const TimePoint until = Clock::now() + kForwardMs;
  grpc::Status status = ask(stub, kForwardMs);
  if (may_be_the_way(stub, status)) {
    stub = stubs_.take_new("", leader);
    const auto left = std::chrono::duration_cast<Millis>(until - Clock::now());
    status = ask(stub, std::max(left, kAgentMs));
  }
  if (status.ok()) stubs_.give_back(std::move(stub));
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
  coordinator_.report_refusals(report);
  describe_(report);
  return report;
}

void AdminCalls::report_own(const v1::StatusRequest& request, v1::StatusReply& reply) {
  if (request.has_calls()) reply.mutable_calls()->MergeFrom(agent_.trace(request.calls()));
  *reply.add_agents() = own_report();
}

void AdminCalls::ask_all_agents(v1::AdminRequest request, v1::StatusReply& reply) {
  const std::vector<v1::AgentMessage> agents = coordinator_.agents();
  v1::StatusRequest& asked = *request.mutable_status();
  asked.set_local_only(true);
  if (asked.has_calls()) asked.mutable_calls()->set_bytes_max(kTraceBytesMax / (agents.size() + 1));
  const Queries queries = ask_each(agents, request, [&] { report_own(asked, reply); });
  std::vector<v1::AgentReport> gone = coordinator_.gone_agents();
  for (const auto& query : queries) add_answer(*query, asked.has_calls(), gone, reply);
  for (v1::AgentReport& report : gone) *reply.add_agents() = std::move(report);
}

// One row for an agent that went while it was asked: what it said, else that it has gone.
void AdminCalls::add_answer(Query& query, bool with_calls, std::vector<v1::AgentReport>& gone,
                            v1::StatusReply& reply) const {
  v1::StatusReply& answer = *query.answer.mutable_status();
  const bool has_answered = query.status.ok() && answer.agents_size() == 1;
  const auto is_same = [&](const v1::AgentReport& report) {
    return report.host() == query.agent.host() && report.address() == query.agent.address();
  };
  if (with_calls && has_answered) {
    if (!answer.has_calls()) *reply.mutable_calls()->add_missing() = does_not_tell(query.agent);
    reply.mutable_calls()->MergeFrom(answer.calls());
  }
  if (with_calls && !has_answered) *reply.mutable_calls()->add_missing() = query.unreachable(tls_);
  if (has_answered) {
    std::erase_if(gone, is_same);
    reply.add_agents()->Swap(answer.mutable_agents(0));
  } else if (std::ranges::none_of(gone, is_same)) {
    *reply.add_agents() = query.unreachable(tls_);
  }
}

void AdminCalls::forward_to_coordinator(const v1::AdminRequest& request, v1::StatusReply& reply) {
  const std::string leader = coordinator_.leader();
  v1::AdminAnswer answer;
  const grpc::Status status = leader.empty() ? grpc::Status() : ask_leader(leader, request, answer);
  if (!leader.empty() && status.ok()) {
    reply.Swap(answer.mutable_status());
    if (!request.status().has_calls() || reply.has_calls()) return;
    v1::AdminRequest calls;  // Which an older release does not tell with the status.
    *calls.mutable_trace() = request.status().calls();
    return forward_to_coordinator(calls, *reply.mutable_calls());
  }
  report_own(request.status(), reply);
  if (leader.empty()) return;
  v1::AgentReport coordinator = unreachable_leader(leader, status);
  if (request.status().has_calls()) *reply.mutable_calls()->add_missing() = coordinator;
  *reply.add_agents() = std::move(coordinator);
  reply.mutable_agents()->SwapElements(0, 1);
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
  *reply.add_missing() = unreachable_leader(leader, status);
}

// Where it refuses this agent, what it said to the agent's registration tells what to do, not what
// it says to a question.
v1::AgentReport AdminCalls::unreachable_leader(const std::string& leader,
                                               const grpc::Status& why) const {
  v1::AgentReport report = unreachable("", leader, from_grpc(why, leader, tls_).message());
  report.set_coordinator(true);
  if (!is_refusal(why)) return report;
  v1::AgentReport own;
  describe_(own);
  const std::string& state = own.coordinator_state();
  const std::string refuses = "refuses this agent: ";
  const size_t said = state.find(refuses);
  report.set_state(said != std::string::npos ? state.substr(said)
                                             : refuses + from_grpc(why, leader, tls_).message());
  return report;
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

// As of the strategy.
Status AdminCalls::stop_job(v1::AdminRequest request, const Caller& caller, bool forwarded,
                            v1::StopJobReply& reply) {
  v1::StopJobRequest& asked = *request.mutable_stop_job();
  set_owner(caller, asked);
  if (asked.by().empty()) asked.set_by(caller.name + ", who asked tuttid at " + address());
  if (asked.local_only()) {
    reply = agent_.stop_job(asked);
    return {};
  }
  if (coordinator_.leads()) return stop_job_everywhere(std::move(request), reply);
  if (forwarded) return not_the_coordinator();
  const std::string leader = coordinator_.leader();
  if (leader.empty()) return nobody_coordinates();
  v1::AdminAnswer answer;
  const Status status = from_grpc(ask_leader(leader, request, answer), leader, tls_);
  reply.Swap(answer.mutable_stop_job());
  return status;
}

// Workers, not the coordinator's rosters, say where a job is: it may be joining still.
Status AdminCalls::stop_job_everywhere(v1::AdminRequest request, v1::StopJobReply& reply) {
  request.mutable_stop_job()->set_local_only(true);
  const Queries queries = ask_each(coordinator_.agents(), request,
                                   [&] { reply = agent_.stop_job(request.stop_job()); });
  for (const auto& query : queries) {
    if (!query->status.ok()) *reply.add_missing() = query->unreachable(tls_);
    reply.MergeFrom(query->answer.stop_job());
  }
  if (reply.hosts_size() != 0) return {};
  const std::string& job = request.stop_job().job();
  if (reply.missing_size() == 0)
    return not_found("no node has a worker of job \"" + job + "\"; `tutti status` lists the jobs");
  const v1::AgentReport& missing = reply.missing(0);
  return unavailable("no node that answers has a worker of job \"" + job + "\"; host " +
                     missing.host() + " does not: " + missing.state() + "; try again");
}

}  // namespace tutti
