#include "daemon/http/routes.h"

#include <algorithm>
#include <cctype>

#include "daemon/base/loop.h"
#include "daemon/base/text.h"
#include "daemon/base/token.h"
#include "daemon/control/status_json.h"
#include "daemon/diagnosis/diagnosis.h"
#include "daemon/http/calls_json.h"
#include "daemon/http/metrics.h"
#include "proto/mesh.pb.h"

namespace tutti {
namespace {

constexpr std::string_view kExposition = "text/plain; version=0.0.4; charset=utf-8";
constexpr size_t kNonceBytes = 16;

HttpAnswer plain(int code, const std::string& text) { return {.code = code, .body = text + "\n"}; }

HttpAnswer refuse(const Status& why) {
  HttpAnswer answer = plain(401, why.message());
  answer.headers = {{"WWW-Authenticate", R"(Basic realm="tutti", charset="UTF-8")"}};
  return answer;
}

HttpAnswer health(HttpSource& source) {
  const Status ready = source.readiness();
  return ready.code() == Code::deadline_exceeded ? plain(503, ready.message()) : plain(200, "OK");
}

HttpAnswer readiness(HttpSource& source) {
  const Status ready = source.readiness();
  return ready.ok() ? plain(200, "OK") : plain(503, ready.message());
}

Result<v1::StatusReply> node_status(HttpSource& source) {
  v1::StatusReply reply;
  *reply.add_agents() = source.node();
  return reply;
}

int forget_jobs(v1::StatusReply& reply) {
  int jobs = 0;
  for (v1::AgentReport& node : *reply.mutable_agents()) {
    jobs += node.workers_size();
    node.clear_workers();
    node.clear_ended();
    node.clear_users();
    node.clear_refused_joins();
  }
  return jobs;
}

// What is shown of the mesh, or of this node to those who may not see more.
struct Reports {
  v1::StatusReply status;
  int hidden_jobs = 0;
};

Result<Reports> reports_of(HttpSource& source, bool sees_all) {
  Reports reports;
  Result<v1::StatusReply> status = sees_all ? source.mesh(true) : node_status(source);
  if (!status.ok()) return status.status();
  reports.status = *std::move(status);
  if (!sees_all) reports.hidden_jobs = forget_jobs(reports.status);
  return reports;
}

// Who may not see jobs sees nodes.
std::string findings_of_mesh(HttpSource& source, bool sees_all) {
  const Result<v1::StatusReply> status = source.mesh(sees_all);
  if (!status.ok()) return "";
  return findings_text(*status, diagnose_mesh(*status, status->calls()), sees_all);
}

HttpAnswer metrics(HttpSource& source, bool sees_all) {
  const v1::AgentReport node = source.node();
  const MetricsScope scope{.named = sees_all,
                           .is_ready = source.readiness().ok(),
                           .per_rank = source.has_rank_metrics()};
  std::string text =
      metrics_text(node, sees_all ? source.recorded() : std::vector<RecordedJob>(), scope);
  if (node.coordinator()) text += findings_of_mesh(source, sees_all);
  return {.type = std::string(kExposition), .body = std::move(text)};
}

std::string diagnosis_of(const Reports& reports) {
  return mesh_diagnosis_json(diagnose_mesh(reports.status, reports.status.calls()));
}

HttpAnswer json_answer(const std::string& body) {
  return {.type = "application/json", .body = body + "\n"};
}

HttpAnswer diagnosis(HttpSource& source, bool sees_all) {
  const Result<Reports> reports = reports_of(source, sees_all);
  return reports.ok() ? json_answer(diagnosis_of(*reports))
                      : plain(503, reports.status().message());
}

HttpAnswer status(HttpSource& source, bool sees_all) {
  const Result<Reports> reports = reports_of(source, sees_all);
  if (!reports.ok()) return plain(503, reports.status().message());
  Json about;
  about.open('{')
      .field("access", sees_all ? "all" : "node")
      .field("hidden_jobs", reports->hidden_jobs)
      .field("now_us", unix_time<Micros>());
  return json_answer(about.line() + ",\"diagnosis\":" + diagnosis_of(*reports) +
                     ",\"traces\":" + calls_json(reports->status.calls()) +
                     ",\"status\":" + status_json(reports->status) + "}");
}

HttpAnswer show_page() {
  const std::string nonce = random_hex(kNonceBytes);
  HttpAnswer answer{.type = "text/html; charset=utf-8", .body = page(nonce)};
  answer.headers = {{"Content-Security-Policy",
                     "default-src 'none'; connect-src 'self'; script-src 'nonce-" + nonce +
                         "'; style-src 'nonce-" + nonce +
                         "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
                    {"Referrer-Policy", "no-referrer"}};
  return answer;
}

// A browser asks for the token where this answers 401, and shows it on this server's other paths.
HttpAnswer sign_in(bool sees_all, std::string_view token) {
  if (!sees_all || token.empty())
    return refuse(unauthenticated("show a token with role=admin as the password"));
  HttpAnswer answer = plain(303, "signed in");
  answer.headers = {{"Location", "/"}};
  return answer;
}

// A page of another site whose name was made to lead here could read what only this machine may.
bool names_this_machine(std::string_view host) {
  const size_t colon = host.rfind(':');
  if (colon != std::string_view::npos && host.find(']', colon) == std::string_view::npos)
    host = host.substr(0, colon);
  return host.empty() || host == "localhost" || host == "[::1]" ||
         (host.starts_with("127.") && host.find_first_not_of("0123456789.") == host.npos);
}

int sextet_of(char c) {
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const size_t at = kAlphabet.find(c);
  return at == std::string_view::npos ? -1 : static_cast<int>(at);
}

// Up to the first character that is not of the alphabet.
std::string from_base64(std::string_view text) {
  std::string out;
  unsigned bits = 0;
  int count = 0;
  for (const char c : text) {
    const int sextet = sextet_of(c);
    if (sextet < 0) break;
    bits = bits << 6 | static_cast<unsigned>(sextet);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out += static_cast<char>(bits >> count & 0xff);
  }
  return out;
}

// Schemes are not case-sensitive (RFC 9110).
bool take_scheme(std::string_view& text, std::string_view scheme) {
  const bool same = text.size() > scheme.size() && text[scheme.size()] == ' ' &&
                    std::equal(scheme.begin(), scheme.end(), text.begin(), [](char a, char b) {
                      return a == std::tolower(static_cast<unsigned char>(b));
                    });
  if (same) text.remove_prefix(std::min(text.find_first_not_of(' ', scheme.size()), text.size()));
  return same;
}

}  // namespace

std::string token_of(std::string_view authorization) {
  if (take_scheme(authorization, "bearer")) return std::string(authorization);
  if (!take_scheme(authorization, "basic")) return {};
  const std::string pair = from_base64(authorization);
  const size_t colon = pair.find(':');
  return colon == std::string::npos ? "" : pair.substr(colon + 1);
}

bool is_probe(const HttpRequest& request) {
  return request.path == "/healthz" || request.path == "/readyz";
}

HttpAnswer answer_http(const HttpRequest& request, HttpSource& source) {
  if (request.method != "GET" && request.method != "HEAD")
    return {
        .code = 405, .body = "there are GET and HEAD alone\n", .headers = {{"Allow", "GET, HEAD"}}};
  if (request.path == "/healthz") return health(source);
  if (request.path == "/readyz") return readiness(source);
  if (request.loopback && !names_this_machine(request.host))
    return plain(421, "this server is for its own machine; ask it as localhost");
  const std::string token = token_of(request.authorization);
  const Result<bool> sees_all = source.sees_all(token);
  if (!sees_all.ok()) return refuse(sees_all.status());
  if (request.path == "/") return show_page();
  if (request.path == "/metrics") return metrics(source, *sees_all);
  if (request.path == "/api/status") return status(source, *sees_all);
  if (request.path == "/api/diagnosis") return diagnosis(source, *sees_all);
  if (request.path == "/login") return sign_in(*sees_all, token);
  return plain(404, "there are /, /metrics, /healthz, /readyz, /api/status and /api/diagnosis");
}

}  // namespace tutti
