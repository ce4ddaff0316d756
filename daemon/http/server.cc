// The HTTP server, by libmicrohttpd. One thread has all connections and waits for none of them, so
// a client that sends or reads slowly holds a place and no thread. Where the places are taken, the
// oldest client of the address that has most makes room. Probes are answered by a thread of their
// own, because a probe that came behind other requests would restart the agent.
#include <microhttpd.h>
#include <strings.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "daemon/base/address.h"
#include "daemon/base/fair_queue.h"
#include "daemon/base/loop.h"
#include "daemon/http/answerers.h"
#include "daemon/http/routes.h"

namespace tutti {
namespace {

constexpr size_t kClientsMax = 256;  // That are waited for.
constexpr int kThreads = 4;
constexpr size_t kWaitingMax = 64;           // Requests, of clients that are not made to leave.
constexpr unsigned kConnectionsMax = 1'024;  // More than clients and requests: it is never reached.
constexpr size_t kConnectionBytes = 16'384;  // The head of a request must fit.
constexpr Millis kAcceptPause{100};
constexpr Millis kAskWithin{2'000};
constexpr Millis kTakeWithin{10'000};

struct Head {
  HttpRequest request;
  std::string twice = {};  // A header that counts here, and stands there twice.
};

MHD_Result take_header(void* to, MHD_ValueKind, const char* name, const char* value) {
  Head& head = *static_cast<Head*>(to);
  const bool is_host = strcasecmp(name, "Host") == 0;
  if (!is_host && strcasecmp(name, "Authorization") != 0) return MHD_YES;
  std::string& kept = is_host ? head.request.host : head.request.authorization;
  if (!kept.empty()) head.twice = name;
  kept = value == nullptr ? "" : value;
  kept.erase(kept.find_last_not_of(" \t") + 1);
  return MHD_YES;
}

MHD_Result send_answer(MHD_Connection* connection, HttpAnswer answer) {
  MHD_Response* response = MHD_create_response_from_buffer(answer.body.size(), answer.body.data(),
                                                           MHD_RESPMEM_MUST_COPY);
  answer.headers.insert(answer.headers.end(), {{"Content-Type", answer.type},
                                               {"Connection", "close"},
                                               {"Cache-Control", "no-store"},
                                               {"X-Content-Type-Options", "nosniff"}});
  for (const auto& [name, value] : answer.headers)
    MHD_add_response_header(response, name.c_str(), value.c_str());
  const auto code = static_cast<unsigned>(answer.code);
  const MHD_Result queued = MHD_queue_response(connection, code, response);
  MHD_destroy_response(response);
  return queued;
}

// Runs libmicrohttpd in a Loop, which has the timers that it lacks: its own bound only silence.
class MhdServer final : public HttpServer {
 public:
  explicit MhdServer(HttpSource& source) : source_(source) {}

  ~MhdServer() override {
    loop_.stop();
    if (thread_.joinable()) thread_.join();
    for (MHD_Connection* connection : suspended_) MHD_resume_connection(connection);
    MHD_stop_daemon(daemon_);
  }

  Status start(const SocketAddress& place) {
    const unsigned family = place.storage.ss_family == AF_INET6 ? MHD_USE_DUAL_STACK : 0;
    daemon_ = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | family, 0, nullptr, nullptr,
        &MhdServer::on_request, this, MHD_OPTION_SOCK_ADDR, place.get(),
        MHD_OPTION_NOTIFY_CONNECTION, &MhdServer::on_connection, this, MHD_OPTION_CONNECTION_LIMIT,
        kConnectionsMax, MHD_OPTION_CONNECTION_MEMORY_LIMIT, kConnectionBytes, MHD_OPTION_END);
    if (daemon_ == nullptr) return errno_status("cannot bind it");
    const auto* const own = MHD_get_daemon_info(daemon_, MHD_DAEMON_INFO_LISTEN_FD);
    address_ = own_address(own->listen_fd).numeric();
    if (Status watched = watch(); !watched.ok()) return watched;
    run();
    thread_ = std::thread([this] { loop_.run(); });
    return {};
  }

  std::string address() const override { return address_.to_string(); }

 private:
  struct Client {
    MHD_Connection* connection;
    std::string address;
    std::optional<HttpAnswer> answer = {};
    Loop::TimerId timer = 0;
  };

  int events() const { return MHD_get_daemon_info(daemon_, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd; }
  bool has_none() const {
    return MHD_get_daemon_info(daemon_, MHD_DAEMON_INFO_CURRENT_CONNECTIONS)->num_connections == 0;
  }

  Status watch() {
    return loop_.watch(events(), EPOLLIN, [this](uint32_t) {
      const bool had_none = has_none();
      run();
      if (had_none && has_none()) pause();
    });
  }

  // Descriptors have run out: the listener stays readable, and the loop would spin.
  void pause() {
    loop_.unwatch(events());
    loop_.at(Clock::now() + kAcceptPause, [this] { (void)watch(); });
  }

  void run() {
    MHD_run(daemon_);
    MHD_UNSIGNED_LONG_LONG at_once = 0;
    if (MHD_get_timeout(daemon_, &at_once) == MHD_YES) run_again();
  }

  void run_again() {
    loop_.cancel(again_);
    again_ = loop_.at(Clock::now(), [this] { run(); });
  }

  static void on_connection(void* self, MHD_Connection* connection, void** client,
                            MHD_ConnectionNotificationCode code) {
    auto& server = *static_cast<MhdServer*>(self);
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
      *client = server.admit(connection).release();
    else
      server.leave(std::unique_ptr<Client>(static_cast<Client*>(*client)));
  }

  std::unique_ptr<Client> admit(MHD_Connection* connection) {
    const auto* info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    auto client =
        std::make_unique<Client>(Client{connection, copy_of(*info->client_addr).numeric().host});
    wait_for(*client, kAskWithin);
    if (const auto oldest = idle_.pop_beyond(kClientsMax)) dismiss(**oldest);
    return client;
  }

  void leave(std::unique_ptr<Client> client) {
    stop_waiting(*client);
    run_again();  // The daemon accepts again, where it did not for want of descriptors.
  }

  // Until then it must have asked, or taken its answer; it is one that may be made to leave.
  void wait_for(Client& client, Millis at_most) {
    idle_.push(client.address, &client);
    client.timer = loop_.at(Clock::now() + at_most, [this, &client] { dismiss(client); });
  }

  void stop_waiting(Client& client) {
    loop_.cancel(client.timer);
    (void)idle_.remove_if([&](const Client* each) { return each == &client; });
  }

  // The daemon sees its end, and closes it.
  void dismiss(Client& client) {
    stop_waiting(client);
    const auto socket = MHD_CONNECTION_INFO_CONNECTION_FD;
    shutdown(MHD_get_connection_info(client.connection, socket)->connect_fd, SHUT_RDWR);
  }

  // Called for the head, for each part of a body, at their end, and when there is an answer.
  static MHD_Result on_request(void* self, MHD_Connection* connection, const char* path,
                               const char* method, const char*, const char*, size_t* body_bytes,
                               void** begun) {
    const bool all_is_here = *begun != nullptr && *body_bytes == 0;
    *begun = self;
    *body_bytes = 0;
    if (!all_is_here) return MHD_YES;
    auto& client = *static_cast<Client*>(
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context);
    if (client.answer) return send_answer(connection, *std::move(client.answer));
    return static_cast<MhdServer*>(self)->ask(client, {{.path = path, .method = method}});
  }

  MHD_Result ask(Client& client, Head head) {
    MHD_Connection* const connection = client.connection;
    MHD_get_connection_values(connection, MHD_HEADER_KIND, &take_header, &head);
    if (!head.twice.empty())
      return send_answer(
          connection, {.code = 400, .body = "there are two headers called " + head.twice + "\n"});
    head.request.loopback = address_.host == "::1" || address_.host.starts_with("127.");
    Answerers& answerers = is_probe(head.request) ? probes_ : others_;
    const bool taken = answerers.add([this, &client, request = std::move(head.request)] {
      loop_.post(
          [this, &client, answer = answer_http(request, source_)] { resume(client, answer); });
    });
    if (!taken)
      return send_answer(connection, {.code = 503, .body = "too many requests wait; try again\n"});
    stop_waiting(client);
    suspended_.insert(connection);
    MHD_suspend_connection(connection);
    return MHD_YES;
  }

  void resume(Client& client, const HttpAnswer& answer) {
    client.answer = answer;
    wait_for(client, kTakeWithin);
    suspended_.erase(client.connection);
    MHD_resume_connection(client.connection);
    run_again();
  }

  HttpSource& source_;
  Address address_;  // This and the next are set by start().
  MHD_Daemon* daemon_ = nullptr;
  Loop loop_;
  // The next three: loop thread only.
  FairQueue<Client*> idle_;  // Those that wait_for() waits for.
  std::set<MHD_Connection*> suspended_;
  Loop::TimerId again_ = 0;
  Answerers probes_{1, kClientsMax};
  Answerers others_{kThreads, kWaitingMax};
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<HttpServer>> serve_http(const std::string& listen, HttpSource& source) {
  const std::string setting = "setting metrics_listen = ";
  const Result<std::vector<SocketAddress>> found = resolve(listen);
  if (!found.ok()) return Status(found.status().code(), setting + found.status().message());
  auto server = std::make_unique<MhdServer>(source);
  if (const Status started = server->start(found->front()); !started.ok())
    return unavailable(setting + "'" + listen + "': " + started.message() + "; choose another");
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace tutti
