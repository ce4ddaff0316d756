// Blocking calls of people and tools, over an agent's Unix socket or its control plane.
#include "daemon/control/admin_client.h"

#include <grpcpp/grpcpp.h>

#include <array>
#include <utility>

#include "daemon/base/address.h"
#include "daemon/base/foreign_text.h"
#include "daemon/base/job_check.h"
#include "daemon/base/loop.h"
#include "daemon/base/program.h"
#include "daemon/base/settings.h"
#include "daemon/base/token.h"
#include "daemon/control/admin_socket.h"
#include "daemon/control/channel.h"
#include "daemon/control/tls_files.h"
#include "proto/mesh.grpc.pb.h"

namespace tutti {
namespace {

constexpr std::string_view kUnix = "unix:";

// As the environment sets it for agents and tools alike.
Result<Tls> tls_of_environment() {
  Settings settings;
  const std::array variables = {std::pair("tls", "TUTTI_TLS"),
                                std::pair("tls_dir", "TUTTI_TLS_DIR")};
  for (const auto& [setting, name] : variables) {
    const std::string value = variable(name);
    if (value.empty()) continue;
    if (Status set = set_setting(settings, setting, value); !set.ok()) return set;
  }
  if (settings.tls != "require") return Tls();
  return open_client_tls(settings.tls_dir);
}

Status ask_control_plane(const std::string& address, const v1::AdminRequest& request,
                         const std::string& token, int timeout_ms, v1::AdminAnswer& answer) {
  const Result<Tls> tls = tls_of_environment();
  if (!tls.ok()) return tls.status();
  grpc::ClientContext context;
  show_token(context, token);
  context.set_deadline(std::chrono::system_clock::now() + Millis(timeout_ms));
  const auto stub = v1::Admin::NewStub(make_channel(address, *tls));
  const grpc::Status called = stub->Call(&context, request, &answer);
  clean_texts(answer);
  return from_grpc(called, address, *tls);
}

Status ask(const std::string& address, int timeout_ms, const v1::AdminRequest& request,
           v1::AdminAnswer& answer) {
  const Result<std::string> token = token_of_environment();
  if (!token.ok()) return token.status();
  if (!address.starts_with(kUnix) && !parse_address(address).ok())
    return invalid_argument("the address '" + address + "': expected host:port or unix:PATH");
  if (!address.starts_with(kUnix))
    return ask_control_plane(address, request, *token, timeout_ms, answer);
  Result<v1::AdminAnswer> said =
      ask_socket(address.substr(kUnix.size()), request, *token, timeout_ms);
  if (!said.ok()) return said.status();
  answer = *std::move(said);
  return {code_of(answer.code()), answer.message()};
}

Status ask(const std::string& address, int timeout_ms, const v1::AdminRequest& request) {
  v1::AdminAnswer answer;
  return ask(address, timeout_ms, request, answer);
}

Result<v1::StatusReply> ask_status(const std::string& address, const v1::StatusRequest& about,
                                   int timeout_ms) {
  v1::AdminRequest request;
  *request.mutable_status() = about;
  v1::AdminAnswer answer;
  const Status status = ask(address, timeout_ms, request, answer);
  if (!status.ok()) return status;
  return answer.status();
}

}  // namespace

std::string default_address() {
  if (std::string address = variable("TUTTI_ADDRESS"); !address.empty()) return address;
  const std::string socket = variable("TUTTI_SOCKET");
  return std::string(kUnix) + (socket.empty() ? Settings().socket : socket);
}

Result<v1::StatusReply> admin_status(const std::string& address, bool local_only, int timeout_ms) {
  v1::StatusRequest about;
  about.set_local_only(local_only);
  return ask_status(address, about, timeout_ms);
}

Result<v1::StatusReply> admin_history(const std::string& address, int timeout_ms) {
  v1::StatusRequest about;
  about.set_ended(true);
  return ask_status(address, about, timeout_ms);
}

Result<v1::TraceReply> admin_trace(const std::string& address, const std::string& job,
                                   uint32_t last, int timeout_ms) {
  if (Status named = check_job(job, 0, 1); !job.empty() && !named.ok()) return named;
  v1::AdminRequest request;
  request.mutable_trace()->set_job(job);
  request.mutable_trace()->set_last(last);
  v1::AdminAnswer answer;
  const Status status = ask(address, timeout_ms, request, answer);
  if (!status.ok()) return status;
  return answer.trace();
}

Status admin_set_strategy(const std::string& address, const std::string& job,
                          const std::string& strategy, int timeout_ms) {
  if (Status named = check_job(job, 0, 1); !named.ok()) return named;
  v1::AdminRequest request;
  request.mutable_set_strategy()->set_job(job);
  request.mutable_set_strategy()->set_strategy(strategy);
  return ask(address, timeout_ms, request);
}

Status admin_drain(const std::string& address, bool undo, int timeout_ms) {
  v1::AdminRequest request;
  request.mutable_drain()->set_undo(undo);
  return ask(address, timeout_ms, request);
}

Status admin_stop(const std::string& address, bool jobs, int timeout_ms) {
  v1::AdminRequest request;
  request.mutable_stop()->set_jobs(jobs);
  return ask(address, timeout_ms, request);
}

Result<v1::StopJobReply> admin_stop_job(const std::string& address, const std::string& job,
                                        int timeout_ms) {
  if (Status named = check_job(job, 0, 1); !named.ok()) return named;
  v1::AdminRequest request;
  request.mutable_stop_job()->set_job(job);
  v1::AdminAnswer answer;
  const Status status = ask(address, timeout_ms, request, answer);
  if (!status.ok()) return status;
  return answer.stop_job();
}

}  // namespace tutti
