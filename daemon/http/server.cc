// The HTTP server. One thread has all connections and waits for none of them, so a client that
// sends or reads slowly holds a seat and no thread. Where the seats are taken, the oldest client of
// the address that has most makes room. Probes are answered by a thread of their own, because a
// probe that came behind other requests would restart the agent.
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <string>
#include <thread>

#include "daemon/base/address.h"
#include "daemon/base/fair_queue.h"
#include "daemon/base/fd.h"
#include "daemon/base/loop.h"
#include "daemon/http/answerers.h"
#include "daemon/http/request.h"
#include "daemon/http/routes.h"

namespace tutti {
namespace {

constexpr size_t kSeats = 256;
constexpr int kThreads = 4;
constexpr size_t kWaitingMax = 64;  // Requests, of clients that are not made to leave.
constexpr int kAcceptsAtOnce = 16;
constexpr Millis kAcceptPause{100};  // When descriptors have run out.
constexpr Millis kAskWithin{2'000};
constexpr Millis kTakeWithin{10'000};
constexpr Millis kLeaveWithin{1'000};

struct Listen {
  sockaddr_storage address{};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

bool is_loopback(const Listen& listen) {
  if (listen.address.ss_family == AF_INET6)
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(listen.get())->sin6_addr);
  return ntohl(reinterpret_cast<const sockaddr_in*>(listen.get())->sin_addr.s_addr) >> 24 == 127;
}

// A number, in brackets where it is of IPv6; and the port.
Address numeric(const Listen& listen) {
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  getnameinfo(listen.get(), listen.length, host.data(), host.size(), port.data(), port.size(),
              NI_NUMERICHOST | NI_NUMERICSERV);
  return {.host = host.data(), .port = static_cast<uint16_t>(std::stoul(port.data()))};
}

Result<Listen> parse_listen(const std::string& text) {
  const Result<Address> address = parse_address(text);
  if (!address.ok()) return address.status();
  const addrinfo hints{.ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  const std::string port = std::to_string(address->port);
  if (const int error = getaddrinfo(address->host.c_str(), port.c_str(), &hints, &found);
      error != 0)
    return unavailable("'" + text + "': " + gai_strerror(error));
  Listen listen{.length = found->ai_addrlen};
  std::memcpy(&listen.address, found->ai_addr, found->ai_addrlen);
  freeaddrinfo(found);
  return listen;
}

const char* reason_of(int code) {
  switch (code) {
    case 200:
      return "OK";
    case 303:
      return "See Other";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 421:
      return "Misdirected Request";
    case 431:
      return "Request Header Fields Too Large";
    default:
      return "Service Unavailable";
  }
}

std::string text_of(const HttpAnswer& answer, bool with_body = true) {
  std::string out = "HTTP/1.1 " + std::to_string(answer.code) + " " + reason_of(answer.code) +
                    "\r\nContent-Type: " + answer.type +
                    "\r\nContent-Length: " + std::to_string(answer.body.size()) +
                    "\r\nConnection: close\r\nCache-Control: no-store\r\n"
                    "X-Content-Type-Options: nosniff\r\n";
  for (const auto& [name, value] : answer.headers) out += name + ": " + value + "\r\n";
  return out + "\r\n" + (with_body ? answer.body : "");
}

class LoopServer final : public HttpServer {
 public:
  explicit LoopServer(HttpSource& source) : source_(source) {}

  ~LoopServer() override {
    loop_.stop();
    if (thread_.joinable()) thread_.join();
  }

  Status start(Listen listen) {
    listener_.reset(
        socket(listen.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int yes = 1;
    setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (bind(listener_.get(), listen.get(), listen.length) != 0 ||
        ::listen(listener_.get(), SOMAXCONN) != 0)
      return errno_status("cannot bind it");
    getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&listen.address), &listen.length);
    address_ = numeric(listen).to_string();
    loopback_ = is_loopback(listen);
    if (Status watched = watch_listener(); !watched.ok()) return watched;
    thread_ = std::thread([this] { loop_.run(); });
    return {};
  }

  std::string address() const override { return address_; }

 private:
  using Id = uint64_t;
  struct Client {
    Fd socket;
    std::string address;
    std::string received;
    std::string answer;  // What is left of it to send.
    Loop::TimerId timer = 0;
  };

  Status watch_listener() {
    return loop_.watch(listener_.get(), EPOLLIN, [this](uint32_t) { accept_some(); });
  }

  // A few at once: those that were accepted earlier get their turn before others displace them.
  void accept_some() {
    for (int accepted = 0; accepted < kAcceptsAtOnce; ++accepted) {
      Listen from{.length = sizeof(from.address)};
      Fd socket(accept4(listener_.get(), reinterpret_cast<sockaddr*>(&from.address), &from.length,
                        SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket.valid()) {
        const bool none_left = errno == EMFILE || errno == ENFILE || errno == ENOMEM;
        return none_left ? pause_accepting() : void();
      }
      admit({.socket = std::move(socket), .address = numeric(from).host});
    }
  }

  // Without descriptors the listener stays readable, and the loop would spin.
  void pause_accepting() {
    loop_.unwatch(listener_.get());
    loop_.at(Clock::now() + kAcceptPause, [this] { (void)watch_listener(); });
  }

  void admit(Client client) {
    const Id id = ++last_id_;
    clients_.emplace(id, std::move(client));
    wait_for(id, EPOLLIN, kAskWithin, &LoopServer::read_request);
    if (clients_.size() > kSeats) dismiss(*idle_.pop_beyond(idle_.size() - 1));
  }

  // Until then it must do something; it is one of those that may be made to leave.
  void wait_for(Id id, uint32_t events, Millis at_most, void (LoopServer::*then)(Id)) {
    Client& client = clients_.at(id);
    stop_waiting(id);
    idle_.push(client.address, id);
    client.timer = loop_.at(Clock::now() + at_most, [this, id] { dismiss(id); });
    const Status watched =
        loop_.watch(client.socket.get(), events, [this, id, then](uint32_t) { (this->*then)(id); });
    if (!watched.ok()) dismiss(id);
  }

  void stop_waiting(Id id) {
    Client& client = clients_.at(id);
    loop_.cancel(client.timer);
    loop_.unwatch(client.socket.get());
    (void)idle_.remove_if([id](Id each) { return each == id; });
  }

  void dismiss(Id id) {
    if (!clients_.contains(id)) return;
    stop_waiting(id);
    clients_.erase(id);
  }

  // Returns how much came; 0: nothing now; -1: nothing will.
  static ssize_t receive(const Client& client, std::array<char, 4096>& bytes) {
    const ssize_t count = recv(client.socket.get(), bytes.data(), bytes.size(), 0);
    if (count > 0) return count;
    return count < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
  }

  void read_request(Id id) {
    Client& client = clients_.at(id);
    std::array<char, 4096> bytes;
    const ssize_t count = receive(client, bytes);
    if (count < 0) return dismiss(id);
    const size_t seen =
        client.received.size() - std::min(client.received.size(), kEndOfHead.size());
    client.received.append(bytes.data(), static_cast<size_t>(count));
    const size_t end = client.received.find(kEndOfHead, seen);
    if (std::min(end, client.received.size()) > kHeadBytesMax)
      return send_answer(id, text_of({.code = 431, .body = "the request is too long\n"}));
    if (end != std::string::npos) ask(id);
  }

  void ask(Id id) {
    Result<HttpRequest> request = parse_request(clients_.at(id).received);
    if (!request.ok())
      return send_answer(id, text_of({.code = 400, .body = request.status().message() + "\n"}));
    request->loopback = loopback_;
    stop_waiting(id);
    Answerers& answerers = is_probe(*request) ? probes_ : others_;
    const bool taken = answerers.add([this, id, request = *std::move(request)] {
      std::string text = text_of(answer_http(request, source_), request.method != "HEAD");
      loop_.post([this, id, text = std::move(text)] { send_answer(id, text); });
    });
    if (!taken)
      send_answer(id, text_of({.code = 503, .body = "too many requests wait; try again\n"}));
  }

  void send_answer(Id id, const std::string& answer) {
    clients_.at(id).answer = answer;
    wait_for(id, EPOLLOUT, kTakeWithin, &LoopServer::send_more);
  }

  void send_more(Id id) {
    Client& client = clients_.at(id);
    const ssize_t count =
        send(client.socket.get(), client.answer.data(), client.answer.size(), MSG_NOSIGNAL);
    if (count < 0) return errno == EAGAIN || errno == EINTR ? void() : dismiss(id);
    client.answer.erase(0, static_cast<size_t>(count));
    if (!client.answer.empty()) return;
    shutdown(client.socket.get(), SHUT_WR);
    wait_for(id, EPOLLIN, kLeaveWithin, &LoopServer::see_off);
  }

  // To close a socket from which not all was read takes back what was sent.
  void see_off(Id id) {
    std::array<char, 4096> bytes;
    if (receive(clients_.at(id), bytes) < 0) dismiss(id);
  }

  HttpSource& source_;
  std::string address_;  // This and the next are set by start().
  bool loopback_ = false;
  Fd listener_;
  Loop loop_;
  // The next three: loop thread only.
  std::map<Id, Client> clients_;
  FairQueue<Id> idle_;  // Clients that wait_for() waits for.
  Id last_id_ = 0;
  Answerers probes_{1, kSeats};
  Answerers others_{kThreads, kWaitingMax};
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<HttpServer>> serve_http(const std::string& listen, HttpSource& source) {
  auto server = std::make_unique<LoopServer>(source);
  const auto refuse = [&](const Status& why) {
    return Status(why.code(), "setting metrics_listen = " + why.message());
  };
  const Result<Listen> parsed = parse_listen(listen);
  if (!parsed.ok()) return refuse(parsed.status());
  if (const Status started = server->start(*parsed); !started.ok())
    return Status(Code::unavailable, "setting metrics_listen = '" + listen +
                                         "': " + started.message() + "; choose another");
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace tutti
