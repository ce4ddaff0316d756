// Bare sockets that play the peer of a TCP link, and a transport that listens for them.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <atomic>
#include <future>

#include "daemon/base/fd.h"
#include "daemon/transport/frame_codec.h"
#include "daemon/transport/handshake.h"
#include "tests/transport/fixture.h"

namespace tutti {

inline constexpr size_t kMax = 1'000;
inline const std::string kSecret = "what only the job knows";

using Bytes = std::string;

inline Bytes frame(FrameHeader header, size_t payload_bytes) {
  return Bytes(reinterpret_cast<const char*>(&header), sizeof(header)) + Bytes(payload_bytes, 'x');
}
inline FrameHeader stamped(size_t payload_bytes) { return FrameStamper().stamp({}, payload_bytes); }

inline sockaddr_in loopback(int port) {
  return {AF_INET, htons(static_cast<uint16_t>(port)), {htonl(INADDR_LOOPBACK)}, {}};
}

// A blocking socket that sends and receives what a test wants.
class Bare {
 public:
  explicit Bare(Fd socket) : socket_(std::move(socket)) {
    const timeval patience{kPatience.count(), 0};
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  }
  static Bare dial(const std::string& address) {
    Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in to = loopback(std::stoi(address.substr(address.rfind(':') + 1)));
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
    return Bare(std::move(socket));
  }
  void say(const Bytes& bytes) const {
    (void)::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // Sends `words` repeatedly, `bytes` in all; calls `stuck` once if the peer reads nothing for a
  // second. Returns when the peer hangs up.
  void say_patiently(const Bytes& words, size_t bytes, const std::function<void()>& stuck) const {
    const timeval moment{.tv_sec = 1, .tv_usec = 0};
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &moment, sizeof(moment));
    bool told = false;
    for (size_t sum = 0; sum < bytes;) {
      const ssize_t part = ::send(socket_.get(), words.data(), words.size(), MSG_NOSIGNAL);
      if (part > 0) sum += static_cast<size_t>(part);
      if (part < 0 && errno != EAGAIN) break;
      if (part < 0 && !std::exchange(told, true)) stuck();
    }
    if (!told) stuck();
  }
  // Receives this many bytes, or fewer if the peer hung up.
  Bytes hear(size_t bytes) const {
    Bytes heard(bytes, '\0');
    size_t got = 0;
    while (got < bytes) {
      const ssize_t part = ::recv(socket_.get(), heard.data() + got, bytes - got, 0);
      if (part <= 0) break;
      got += static_cast<size_t>(part);
    }
    heard.resize(got);
    return heard;
  }
  bool hung_up() const { return hear(1).empty(); }
  // Closes without a goodbye, as a killed process does.
  void vanish() { socket_.reset(); }

 private:
  Fd socket_;
};

inline Bytes hello_of(const std::string& secret) {
  return DiallerHandshake({"demo", 7, "a", secret}, {}, "").hello();
}

// Runs the handshake with `secret`; returns the listener's answer.
inline LinkAnswerHead introduce(const Bare& client, const std::string& secret) {
  const Bytes hello = hello_of(secret);
  client.say(hello);
  const Bytes challenge = client.hear(sizeof(LinkChallenge));
  client.say(to_bytes(prove(secret, "d" + hello + challenge)));
  const Bytes answer = client.hear(sizeof(LinkAnswerHead));
  EXPECT_EQ(answer.size(), sizeof(LinkAnswerHead));
  return answer.size() == sizeof(LinkAnswerHead) ? from_bytes<LinkAnswerHead>(answer)
                                                 : LinkAnswerHead{};
}

// A transport that listens and accepts every link with the right secret.
class Listener {
 public:
  explicit Listener(const LinkLimits& limits = {.frame_bytes_max = kMax},
                    std::shared_ptr<LinkHandler> handler = nullptr, const std::string& kind = "tcp")
      : transport_(make_transport(kind, limits, nullptr)) {
    auto answer = transport_->listen("127.0.0.1:0", [=, this](const IncomingLink& guest, auto) {
      ++asked;
      if (lets_wait) {
        waiting.set_value(guest);
        return Result<std::shared_ptr<LinkHandler>>(end);
      }
      if (!guest.verify_secret(kSecret))
        return Result<std::shared_ptr<LinkHandler>>(unauthenticated("a stranger"));
      return Result<std::shared_ptr<LinkHandler>>(handler ? handler : end);
    });
    address = *answer;
  }
  std::string address;
  std::atomic<bool> lets_wait = false;  // Accepts links without verifying their secret.
  std::promise<IncomingLink> waiting;
  std::atomic<int> asked = 0;
  const std::shared_ptr<Recorder> end = std::make_shared<Recorder>();

 private:
  std::unique_ptr<Transport> transport_;
};

}  // namespace tutti
