#include "daemon/agent/http_door.h"

#include <future>

#include "daemon/agent/trace_report.h"

namespace tutti {
namespace {

constexpr Millis kReactionTimeout{2'000};
constexpr uint32_t kLatenessOf = 64;  // The last operations of a rank.
constexpr uint32_t kCallsShown = 40;  // Of a rank.

}  // namespace

Result<std::unique_ptr<HttpDoor>> HttpDoor::open(const Of& of) {
  std::unique_ptr<HttpDoor> door(new HttpDoor(of));
  Result<std::unique_ptr<HttpServer>> server = serve_http(of.settings.metrics_listen, *door);
  if (!server.ok()) return server.status();
  door->server_ = *std::move(server);
  return door;
}

// What is posted may outlive the wait.
Status HttpDoor::readiness() {
  const auto answer = std::make_shared<std::promise<Status>>();
  std::future<Status> answered = answer->get_future();
  of_.loop.post([answer, serves = of_.serves] { answer->set_value(serves()); });
  if (answered.wait_for(kReactionTimeout) != std::future_status::ready)
    return deadline_exceeded("the agent does not react");
  const Status serves = answered.get();
  return serves.ok() ? of_.control.registered() : serves;
}

Result<bool> HttpDoor::sees_all(std::string_view token) {
  if (of_.settings.metrics_public == "yes") return true;
  if (token.empty()) return false;
  const Token* found = find_token(of_.credentials.tokens, token);
  // A token for agents counts beside a certificate only, and here is none.
  const bool agents_count = !of_.credentials.certified_hosts;
  if (found != nullptr && (found->admin || (found->agent && agents_count))) return true;
  of_.refusals.count("http", Code::unauthenticated);
  return unauthenticated(
      "this is not a token for administrators; show one with role=admin of the "
      "token_file of tuttid on host " +
      of_.settings.host);
}

// For an agent: who may see is decided, and what is shown goes through the same calls.
v1::AdminAnswer HttpDoor::ask(const v1::StatusRequest& what) {
  v1::AdminRequest request;
  *request.mutable_status() = what;
  return of_.control.admin(request, {.kind = Caller::Kind::admin, .name = "HTTP"});
}

v1::AgentReport HttpDoor::node() {
  v1::StatusRequest this_node;
  this_node.set_local_only(true);
  v1::AdminAnswer answer = ask(this_node);
  return std::move(*answer.mutable_status()->mutable_agents(0));
}

std::vector<RecordedJob> HttpDoor::recorded() {
  const auto answer = std::make_shared<std::promise<std::vector<KeptRecorder>>>();
  std::future<std::vector<KeptRecorder>> answered = answer->get_future();
  of_.loop.post([answer, &traces = of_.traces] { answer->set_value(traces.find("")); });
  if (answered.wait_for(kReactionTimeout) != std::future_status::ready) return {};
  std::vector<RecordedJob> jobs;
  for (const KeptRecorder& kept : newest_of(answered.get())) {
    Result<trace::Trace> trace = trace::read_trace(kept.memory->get(), kLatenessOf);
    if (trace.ok()) jobs.push_back({.pass = kept.pass, .trace = *std::move(trace)});
  }
  return jobs;
}

Result<v1::StatusReply> HttpDoor::mesh(bool with_calls) {
  v1::StatusRequest all;
  all.set_ended(true);
  if (with_calls) all.mutable_calls()->set_last(kCallsShown);
  v1::AdminAnswer answer = ask(all);
  if (answer.code() != TUTTI_OK) return Status(code_of(answer.code()), answer.message());
  if (with_calls) keep_newest_epochs(*answer.mutable_status()->mutable_calls());
  return std::move(*answer.mutable_status());
}

}  // namespace tutti
