// What a stranger sends to the port of a control plane, as it is or behind HTTP/2's greeting, in
// two pieces. The server answers or hangs up, and still serves afterwards.
#include <poll.h>

#include <cstdlib>

#include "daemon/control/admin_client.h"
#include "daemon/control/control.h"
#include "proto/mesh.pb.h"
#include "tests/fuzz/input.h"
#include "tests/support/loopback.h"

namespace tutti {
namespace {

constexpr int kServesEvery = 64;  // Inputs, between two questions whether it still serves.
constexpr int kAnswerMs = 2;      // Most inputs are answered at once, or never.
constexpr std::string_view kGreeting("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);

struct Agent final : AgentControl {
  v1::AgentReport report() override { return {}; }
  v1::TraceReply trace(const v1::TraceRequest&) override { std::abort(); }
  Status drain(bool) override { std::abort(); }  // Nobody proves to be an administrator.
  Status stop(bool) override { std::abort(); }
  v1::StopJobReply stop_job(const v1::StopJobRequest&) override { std::abort(); }
};

struct Server {
  Server() {
    auto served = serve_control(
        {.listen = "127.0.0.1:0", .host = "a", .credentials = {.own_key = "k"}}, agent);
    require(served.ok(), "a port is free");
    control = *std::move(served);
    check();
  }
  void check() const {
    const Status answer = admin_status(control->address(), true, 10'000).status();
    require(answer.code() == Code::unauthenticated, "it serves, and strangers are refused");
  }
  Agent agent;
  std::unique_ptr<ControlServer> control;
};

void send_all(const Fd& socket, std::string_view bytes) {
  (void)!::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  pollfd answer{.fd = socket.get(), .events = POLLIN, .revents = 0};
  if (poll(&answer, 1, kAnswerMs) != 1) return;
  char some[4096];
  (void)!recv(socket.get(), some, sizeof some, MSG_DONTWAIT);
}

void say(int port, fuzz::Input& input) {
  const Fd socket = connect_loopback(port);
  require(socket.valid(), "it listens");
  const bool greets = (input.take<uint8_t>() & 1) != 0;
  const size_t first = input.take<uint16_t>();
  const std::string bytes =
      (greets ? std::string(kGreeting) : std::string()) + std::string(input.rest());
  send_all(socket, std::string_view(bytes).substr(0, first));
  if (first < bytes.size()) send_all(socket, std::string_view(bytes).substr(first));
}

}  // namespace
}  // namespace tutti

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti;
  static Server& server = *new Server;
  // Threads of the server may still answer while the process ends: nothing that they use is
  // destroyed before, as the server has answered once. What finds a fault ends by a signal.
  [[maybe_unused]] static const int ends_at_once = std::atexit([] { std::_Exit(0); });
  static int inputs = 0;
  fuzz::Input input(data, size);
  say(port_of(server.control->address()), input);
  if (++inputs % kServesEvery == 0) server.check();
  return 0;
}
