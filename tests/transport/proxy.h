// A proxy between the two ends of a link, which stops, or cuts connections where a test wants.
#pragma once

#include <poll.h>

#include <array>
#include <atomic>
#include <deque>
#include <limits>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/support/loopback.h"
#include "tests/transport/fixture.h"

namespace tutti {

// The ways of a proxy's bytes.
inline constexpr size_t kToListener = 0, kToDialler = 1;

// How a connection is cut: at which of its two ends, and whether by an end or by a reset.
struct Cut {
  bool at_dialler = true;
  bool at_listener = true;
  bool resets = false;
};

// Forwards connections both ways. Buffers little, so that a sender feels a slow receiver.
class Proxy {
 public:
  // Takes so many connections, and some more: a dial may fail and be repeated.
  explicit Proxy(const std::string& target, size_t connections = 1)
      : target_port_(port_of(target)), connections_(connections + kSpare) {
    constexpr int kBuffered = 32 << 10;
    setsockopt(listener_.socket.get(), SOL_SOCKET, SO_RCVBUF, &kBuffered, sizeof(kBuffered));
    address = listener_.address() + target.substr(host_and_port(target).size());
    accepting_ = std::thread([this] { accept_all(); });
  }
  ~Proxy() { stop(); }
  // Forwards nothing from now on, and keeps its sockets open and unread.
  void stop() {
    stopped_ = true;
    if (accepting_.joinable()) accepting_.join();
    for (Connection& each : connections_) each.join();
  }
  // Cuts that connection, numbered as they came, once it has carried so many more bytes that way.
  void cut_after(size_t connection, size_t way, int64_t bytes, const Cut& cut) {
    connections_.at(connection).cut = cut;
    connections_.at(connection).left.at(way) = bytes;
  }
  // Over all connections; to the listener and to the dialler.
  std::array<std::atomic<int>, 2> forwarded{};
  std::string address;

 private:
  static constexpr size_t kSpare = 8;
  struct Connection {
    std::array<Fd, 2> ends;  // At the dialler and at the listener.
    Cut cut;
    std::array<std::atomic<int64_t>, 2> left{std::numeric_limits<int64_t>::max(),
                                             std::numeric_limits<int64_t>::max()};
    std::array<std::thread, 2> ways;
    void join() {
      for (std::thread& each : ways)
        if (each.joinable()) each.join();
    }
  };

  void accept_all() {
    for (Connection& next : connections_) {
      while (!wait(listener_.socket, POLLIN))
        if (stopped_) return;
      next.ends = {Fd(::accept4(listener_.socket.get(), nullptr, nullptr, SOCK_CLOEXEC)),
                   connect_loopback(target_port_)};
      for (const size_t way : {kToListener, kToDialler})
        next.ways.at(way) = std::thread([this, &next, way] { forward(next, way); });
    }
  }
  static bool wait(const Fd& fd, short events) {
    pollfd ready{fd.get(), events, 0};
    return ::poll(&ready, 1, 5) > 0;
  }
  void forward(Connection& connection, size_t way) {
    const Fd& from = connection.ends.at(way);
    const Fd& to = connection.ends.at(1 - way);
    std::atomic<int64_t>& left = connection.left.at(way);
    std::vector<char> bytes(32 << 10);
    while (!stopped_) {
      const int64_t most = std::min<int64_t>(left, static_cast<int64_t>(bytes.size()));
      if (most <= 0) return apply(connection.cut, connection);
      if (!wait(from, POLLIN)) continue;
      const ssize_t got = ::recv(from.get(), bytes.data(), static_cast<size_t>(most), MSG_DONTWAIT);
      if (got <= 0) return void(::shutdown(to.get(), got == 0 ? SHUT_WR : SHUT_RDWR));
      ++forwarded.at(way);
      left -= got;
      if (!pass(to, {bytes.data(), static_cast<size_t>(got)})) return;
    }
  }
  bool pass(const Fd& to, std::span<const char> bytes) const {
    while (!bytes.empty() && !stopped_) {
      const ssize_t part =
          ::send(to.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (part < 0 && errno != EAGAIN) return false;
      if (part < 0) wait(to, POLLOUT);
      bytes = bytes.subspan(static_cast<size_t>(std::max<ssize_t>(part, 0)));
    }
    return true;
  }
  // The descriptors stay, since the other way's thread may use them.
  static void apply(const Cut& cut, Connection& connection) {
    const auto end = [&](const Fd& fd) {
      const sockaddr nobody{.sa_family = AF_UNSPEC, .sa_data = {}};
      if (cut.resets) ::connect(fd.get(), &nobody, sizeof(nobody));
      ::shutdown(fd.get(), SHUT_RDWR);
    };
    if (cut.at_dialler) end(connection.ends[0]);
    if (cut.at_listener) end(connection.ends[1]);
  }

  const int target_port_;
  const LoopbackListener listener_;
  std::deque<Connection> connections_;
  std::atomic<bool> stopped_ = false;
  std::thread accepting_;
};

}  // namespace tutti
