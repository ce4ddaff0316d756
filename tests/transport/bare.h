// Bare sockets that play the peer of a TCP link, plain or in TLS, and a transport that listens for
// them.
#pragma once

#include <poll.h>

#include <atomic>
#include <future>

#include "daemon/transport/endpoint.h"
#include "daemon/transport/frame_codec.h"
#include "daemon/transport/handshake.h"
#include "daemon/transport/tls_wire.h"
#include "tests/support/loopback.h"
#include "tests/transport/fixture.h"

namespace tutti {

inline constexpr size_t kMax = 1'000;
inline const std::string kSecret = "what only the job knows";

using Bytes = std::string;

inline Bytes frame(FrameHeader header, size_t payload_bytes) {
  return Bytes(reinterpret_cast<const char*>(&header), sizeof(header)) + Bytes(payload_bytes, 'x');
}
inline FrameHeader first_header(size_t payload_bytes) {
  return FrameSequencer().complete({}, payload_bytes);
}

// From another address of this machine, "127.0.0.2", where one is given.
inline Fd connect_to(const std::string& address, const std::string& from = "127.0.0.1") {
  Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in own{AF_INET, 0, {::inet_addr(from.c_str())}, {}};
  EXPECT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&own), sizeof(own)), 0);
  const sockaddr_in to = loopback(port_of(address));
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  return socket;
}

// A connection that sends and receives what a test wants, and blocks meanwhile.
class Bare {
 public:
  explicit Bare(std::unique_ptr<Wire> wire) : wire_(std::move(wire)) {}
  explicit Bare(Fd socket) : Bare(make_plain_wire(std::move(socket))) {}
  // In TLS if the address has a fingerprint.
  static Bare dial(const std::string& address, const std::string& from = "127.0.0.1") {
    const size_t mark = address.find('#');
    if (mark == std::string::npos) return Bare(connect_to(address, from));
    Bare made(
        make_tls_dialler_wire(connect_to(address, from), TlsIdentity(), address.substr(mark + 1)));
    made.secure();
    return made;
  }
  void secure() const {
    for (;;) {
      const Result<bool> secured = wire_->secure();
      EXPECT_TRUE(secured.ok()) << secured.status().to_string();
      if (!secured.ok() || *secured || !wait(POLLIN)) return;
    }
  }
  void say(const Bytes& bytes) const { (void)say_all(bytes, kPatience); }
  // Sends `words` repeatedly, `bytes` in all; calls `stuck` once if the peer reads nothing for a
  // second. Returns when the peer hangs up.
  void say_patiently(const Bytes& words, size_t bytes, const std::function<void()>& stuck) const {
    bool told = false;
    for (size_t sum = 0; sum < bytes; sum += words.size()) {
      if (say_all(words, std::chrono::seconds(1), [&] {
            if (!std::exchange(told, true)) stuck();
          }))
        continue;
      break;
    }
    if (!told) stuck();
  }
  // Receives this many bytes, or fewer if the peer hung up.
  Bytes hear(size_t bytes) const {
    Bytes heard;
    while (read_exactly(*wire_, heard, bytes) == ReadResult::partial && wait(POLLIN)) continue;
    return heard;
  }
  bool hung_up() const { return hear(1).empty(); }
  // Whether the peer hangs up, after no more than so many bytes.
  bool hangs_up_after(size_t most) const {
    Bytes heard;
    ReadResult result = ReadResult::partial;
    do {
      result = read_exactly(*wire_, heard, most + 1);
    } while (result == ReadResult::partial && wait(POLLIN));
    return result == ReadResult::broken;
  }
  // Ends what this side sends.
  void say_no_more() const { ::shutdown(wire_->descriptor(), SHUT_WR); }
  // Closes without a goodbye, as a killed process does.
  void vanish() { wire_.reset(); }

 private:
  bool wait(short events, std::chrono::milliseconds limit = kPatience) const {
    pollfd ready{wire_->descriptor(), events, 0};
    return ::poll(&ready, 1, static_cast<int>(limit.count())) > 0;
  }
  // Calls `stuck` whenever nothing can be sent for `limit`. Returns false if the peer hung up.
  bool say_all(
      const Bytes& bytes, std::chrono::milliseconds limit,
      const std::function<void()>& stuck = [] {}) const {
    size_t sum = 0;
    while (sum < bytes.size() || wire_->has_unsent()) {
      const iovec rest{const_cast<char*>(bytes.data()) + sum, bytes.size() - sum};
      const ssize_t part = wire_->write({&rest, 1});
      if (part >= 0) sum += static_cast<size_t>(part);
      if (part < 0 && errno != EAGAIN) return false;
      if (part < 0 && !wait(POLLOUT, limit)) stuck();
    }
    return true;
  }

  std::unique_ptr<Wire> wire_;
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

// Offers memory for the payload of operation 1, and withdraws it when a frame of operation 2
// arrives.
class Placer : public Recorder {
 public:
  std::shared_ptr<RecvBuffer> recv_buffer_for(const FrameHeader& header) override {
    if (header.op_seq != 1) return nullptr;
    monitor.change([&] { placed = true; });
    return recv_buffer;
  }
  void on_frame(Frame frame) override {
    if (frame.header.op_seq == 2) recv_buffer->withdraw();
    if (frame.header.op_seq == 1) arrived_at = frame.payload.fragments.at(0).data();
    Recorder::on_frame(std::move(frame));
  }
  static constexpr size_t kBytes = 100'000;
  Monitor monitor;
  bool placed = false;
  const std::byte* arrived_at = nullptr;
  std::vector<std::byte> memory = std::vector<std::byte>(kBytes);
  const std::shared_ptr<RecvBuffer> recv_buffer = std::make_shared<RecvBuffer>(memory.data());
};

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
