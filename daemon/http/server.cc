// The HTTP server, by CivetWeb. Each client has one of its threads, and all of a request must be
// there in time. There are threads for a crowd of slow clients, so that they do not keep a probe of
// /healthz waiting; a larger crowd delays others, and holds nothing for long.
#include <arpa/inet.h>
#include <civetweb.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <future>
#include <mutex>

#include "daemon/base/address.h"
#include "daemon/base/fd.h"
#include "daemon/base/loop.h"
#include "daemon/http/routes.h"

namespace tutti {
namespace {

constexpr Millis kNudgeEvery{20};

struct Listen {
  std::string host;  // A number, in brackets where it is of IPv6.
  uint16_t port = 0;
  bool loopback = false;
  sockaddr_storage address{};
  socklen_t length = 0;
};

bool is_loopback(const addrinfo& found) {
  if (found.ai_family == AF_INET6)
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<sockaddr_in6*>(found.ai_addr)->sin6_addr);
  return ntohl(reinterpret_cast<sockaddr_in*>(found.ai_addr)->sin_addr.s_addr) >> 24 == 127;
}

// CivetWeb reads more into the text of a port than a number, so it gets what was parsed here.
Result<Listen> parse_listen(const std::string& text) {
  const Result<Address> address = parse_address(text);
  if (!address.ok())
    return invalid_argument("setting metrics_listen = " + address.status().message());
  const addrinfo hints{.ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(address->host.c_str(), nullptr, &hints, &found); error != 0)
    return unavailable("setting metrics_listen = '" + text + "': " + gai_strerror(error));
  std::array<char, NI_MAXHOST> number{};
  getnameinfo(found->ai_addr, found->ai_addrlen, number.data(), number.size(), nullptr, 0,
              NI_NUMERICHOST);
  const bool v6 = found->ai_family == AF_INET6;
  Listen listen{.host = v6 ? "[" + std::string(number.data()) + "]" : number.data(),
                .port = address->port,
                .loopback = is_loopback(*found),
                .length = found->ai_addrlen};
  std::memcpy(&listen.address, found->ai_addr, found->ai_addrlen);
  freeaddrinfo(found);
  return listen;
}

std::string text_of(const HttpAnswer& answer, bool with_body) {
  std::string out = "HTTP/1.1 " + std::to_string(answer.code) + " " +
                    mg_get_response_code_text(nullptr, answer.code) +
                    "\r\nContent-Type: " + answer.type +
                    "\r\nContent-Length: " + std::to_string(answer.body.size()) +
                    "\r\nConnection: close\r\nCache-Control: no-store\r\n"
                    "X-Content-Type-Options: nosniff\r\n";
  for (const auto& [name, value] : answer.headers) out += name + ": " + value + "\r\n";
  return out + "\r\n" + (with_body ? answer.body : "");
}

std::string header_of(const mg_connection* connection, const char* name) {
  const char* value = mg_get_header(connection, name);
  return value == nullptr ? "" : value;
}

class CivetWebServer final : public HttpServer {
 public:
  CivetWebServer(Listen listen, HttpSource& source) : listen_(std::move(listen)), source_(source) {}

  // Its listening thread sees its end at the next connection, or seconds later.
  ~CivetWebServer() override {
    if (context_ != nullptr) {
      const auto stopped = std::async(std::launch::async, [this] { mg_stop(context_); });
      while (stopped.wait_for(kNudgeEvery) != std::future_status::ready) nudge();
    }
    mg_exit_library();
  }

  Status start(const std::string& setting) {
    mg_init_library(0);
    const std::string port = listen_.host + ":" + std::to_string(listen_.port);
    const std::array options = {"listening_ports",
                                port.c_str(),
                                "num_threads",
                                "512",
                                "connection_queue",
                                "512",
                                "listen_backlog",
                                "128",
                                "request_timeout_ms",
                                "2000",
                                "max_request_size",
                                "16384",
                                "enable_keep_alive",
                                "no",
                                "enable_directory_listing",
                                "no",
                                static_cast<const char*>(nullptr)};
    mg_callbacks callbacks{};
    callbacks.begin_request = &CivetWebServer::on_request;
    callbacks.http_error = &CivetWebServer::on_error;
    callbacks.log_message = &CivetWebServer::on_log;
    context_ = mg_start(&callbacks, this, const_cast<const char**>(options.data()));
    if (context_ == nullptr)
      return unavailable("setting metrics_listen = '" + setting + "': " + first_log() +
                         "; choose another");
    std::array<mg_server_port, 1> ports{};
    require(mg_get_server_ports(context_, 1, ports.data()) == 1, "CivetWeb has its one port");
    listen_.port = static_cast<uint16_t>(ports[0].port);
    return {};
  }

  std::string address() const override { return listen_.host + ":" + std::to_string(listen_.port); }

 private:
  static CivetWebServer& self(const mg_connection* connection) {
    return *static_cast<CivetWebServer*>(mg_get_user_data(mg_get_context(connection)));
  }

  // All requests end here: CivetWeb itself would serve files, and more.
  static int on_request(mg_connection* connection) {
    const mg_request_info& info = *mg_get_request_info(connection);
    const std::string_view method = info.request_method;
    const HttpAnswer answer = method == "GET" || method == "HEAD"
                                  ? self(connection).answer(*connection, info)
                                  : HttpAnswer{.code = 405,
                                               .body = "there are GET and HEAD alone\n",
                                               .headers = {{"Allow", "GET, HEAD"}}};
    const std::string text = text_of(answer, method != "HEAD");
    mg_write(connection, text.data(), text.size());
    return answer.code;
  }

  // What never became a request.
  static int on_error(mg_connection* connection, int code, const char*) {
    const std::string text = text_of({.code = code, .body = "the request is not valid\n"}, true);
    mg_write(connection, text.data(), text.size());
    return 0;
  }

  // Strangers cause its messages, so none is written to the log.
  static int on_log(const mg_connection* connection, const char* message) {
    CivetWebServer& server = self(connection);
    const std::lock_guard lock(server.log_mutex_);
    if (server.first_log_.empty()) server.first_log_ = message;
    return 1;
  }

  std::string first_log() {
    const std::lock_guard lock(log_mutex_);
    return first_log_;
  }

  HttpAnswer answer(const mg_connection& connection, const mg_request_info& info) {
    return answer_http({.path = info.local_uri == nullptr ? "" : info.local_uri,
                        .authorization = header_of(&connection, "Authorization"),
                        .host = header_of(&connection, "Host"),
                        .loopback = listen_.loopback},
                       source_);
  }

  void nudge() const {
    sockaddr_storage address = listen_.address;
    (address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                   : reinterpret_cast<sockaddr_in*>(&address)->sin_port) =
        htons(listen_.port);
    const Fd socket(::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    (void)connect(socket.get(), reinterpret_cast<sockaddr*>(&address), listen_.length);
  }

  Listen listen_;
  HttpSource& source_;
  mg_context* context_ = nullptr;
  std::mutex log_mutex_;
  std::string first_log_;  // Guarded by log_mutex_.
};

}  // namespace

Result<std::unique_ptr<HttpServer>> serve_http(const std::string& listen, HttpSource& source) {
  Result<Listen> parsed = parse_listen(listen);
  if (!parsed.ok()) return parsed.status();
  auto server = std::make_unique<CivetWebServer>(*std::move(parsed), source);
  if (Status started = server->start(listen); !started.ok()) return started;
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace tutti
