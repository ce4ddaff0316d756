// Links: ordered connections to peer workers, in-process, over gRPC or over TCP, behind one
// interface. One contract suite runs over all of them (transport_test.cc, pressure_test.cc and
// end_test.cc in tests/transport/), half_open_test.cc and silence_test.cc over those between hosts.
// docs/architecture.md says how to add one.
//
// What a link guarantees. Frames arrive whole, once and in the order sent, or the link closes. It
// closes once, with a cause, at both ends. It closes with INVALID_ARGUMENT or DATA_LOSS on a frame
// that is too large, out of order, of another version or of another length than it says. It closes
// with UNAVAILABLE within LinkLimits::silence_ms if the peer vanishes or stops answering, with or
// without traffic. A receiver that keeps payloads holds its sender back: past queue_bytes_max of
// kept bytes nothing is delivered until some are dropped.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "daemon/base/status.h"
#include "proto/frame.h"

namespace tutti {

struct LinkLimits {
  size_t frame_bytes_max = size_t{16} << 20;  // One payload.
  size_t queue_bytes_max = size_t{64} << 20;  // Accepted by send() and not yet released.
  int connect_timeout_ms = 10'000;
  int silence_ms = 5'000;
  // Unauthenticated diallers. Past it the oldest of the address that has most is disconnected, with
  // RESOURCE_EXHAUSTED.
  size_t half_open_max = 256;
  std::string congestion = "cubic";  // TCP_CONGESTION, if the kernel allows it; empty: its default.
  bool tls = false;  // Between processes: encrypt all links, and take no plain ones.
  // TCP: connections beside a link's first that carry large payloads, each with a thread of the
  // transport's, which the links share. 0: the loop carries all.
  int streams = 0;
};

// Received bytes, in fragments that `owner` keeps alive.
struct Payload {
  std::vector<std::span<const std::byte>> fragments;
  std::shared_ptr<const void> owner;
  size_t bytes() const;
  void copy_to(std::byte* to) const;
};

struct Frame {
  FrameHeader header;
  Payload payload;
};

// A frame to send. `bytes` are borrowed, and must not change, until `released` is called: exactly
// once, whether the frame was sent or the link closed. It is called on a thread of the transport
// and never inside send() or close(), so it may take the caller's locks and send again. It may be
// empty. Once the link has closed, no release waits for a peer's handler.
struct Outgoing {
  FrameHeader header;
  std::span<const std::byte> bytes;
  std::function<void()> released;
};

// What the kernel has counted of one TCP connection since it was opened.
struct ConnectionCounts {
  uint64_t acked_bytes = 0;
  // Bytes waited to be sent or acknowledged, and the receiver had room for them. In steps of the
  // kernel's clock, 1 to 10 ms.
  std::chrono::microseconds busy{0};
  uint64_t retransmits = 0;                       // Segments that were sent again.
  std::chrono::microseconds round_trip{0};        // Smoothed.
  std::chrono::microseconds least_round_trip{0};  // Of the last minutes.
};

class Link {
 public:
  virtual ~Link() = default;
  // Queues the frame; never blocks. Any thread; frames are sent in the order of the calls.
  // RESOURCE_EXHAUSTED: the queue is full, try again after an earlier frame is released.
  // INVALID_ARGUMENT: larger than frame_bytes_max. UNAVAILABLE: the link is closed. After an error
  // the frame is not taken and `released` is not called.
  virtual Status send(Outgoing frame) = 0;
  // Closes both ends. This side's handler gets `cause`; the peer's gets UNAVAILABLE with the
  // message of `cause` if it can still be notified, or a dialler that is not accepted yet `cause`
  // itself. Idempotent. Any thread.
  virtual void close(Status cause) = 0;
  // Closes without waiting for frames that are being sent; the peer sees a broken link. Any thread.
  virtual void abort(Status cause) = 0;
  // One entry for each connection, in an order that stays; empty unless the link runs over TCP
  // sockets of this process and is open. On the thread of the transport's loop.
  virtual std::vector<ConnectionCounts> connections() const { return {}; }
};

// Memory offered for a payload that is being received, until its owner withdraws it; the payload
// then arrives in the link's memory with undefined bytes. Thread-safe.
class RecvBuffer {
 public:
  explicit RecvBuffer(std::byte* at) : at_(at) {}
  // Nothing is written there any more. May wait for one read of a socket.
  void withdraw() {
    const std::lock_guard lock(mutex_);
    at_ = nullptr;
  }
  // Held by what writes there.
  class Hold {
   public:
    explicit Hold(RecvBuffer& buffer) : buffer_(buffer), lock_(buffer.mutex_) {}
    std::byte* at() const { return buffer_.at_; }  // Null once withdrawn.

   private:
    RecvBuffer& buffer_;
    const std::lock_guard<std::mutex> lock_;
  };

 private:
  std::mutex mutex_;
  std::byte* at_;  // Guarded by mutex_.
};

// Receives a link's frames. Called by one thread at a time, in order; on_closed is called exactly
// once and last. Must not block. The link keeps its handler alive until on_closed returns.
class LinkHandler {
 public:
  virtual ~LinkHandler() = default;
  // Called when a valid header was received and its payload was not. May return memory for the
  // payload, which then arrives there as one fragment without a copy. Only links that share the
  // handler's thread call it.
  virtual std::shared_ptr<RecvBuffer> recv_buffer_for(const FrameHeader&) { return nullptr; }
  virtual void on_frame(Frame frame) = 0;
  virtual void on_closed(Status cause) = 0;
};

// What the dialling side tells the listener.
struct LinkHello {
  std::string job;
  uint32_t epoch = 0;
  std::string host;    // The dialling worker's.
  std::string secret;  // The roster's; never sent between processes.
};

// What the listener knows of a dialler. Between processes both sides prove the secret without
// sending it. Nothing but the handshake is read from the dialler until verify_secret() has returned
// true; if it does not within connect_timeout_ms, the link is closed.
struct IncomingLink {
  std::string job;
  uint32_t epoch = 0;
  std::string host;     // As it says.
  std::string address;  // As the network says, without a port; behind a proxy, the proxy's.
  // Any thread, as long as the link lives.
  std::function<bool(const std::string& secret)> verify_secret;
};

// Called on any thread for each incoming link. Returns its handler, or an error, which the dialler
// receives.
using Acceptor =
    std::function<Result<std::shared_ptr<LinkHandler>>(const IncomingLink&, std::shared_ptr<Link>)>;

class Transport {
 public:
  // Closes the links and waits until their handlers have returned and all frames are released. Must
  // not be called from a handler or from `released`.
  virtual ~Transport() = default;
  virtual std::string name() const = 0;
  // Starts accepting at `address` ("host:port"; port 0: any free one). Returns the address to dial,
  // which with TLS also holds the fingerprint of the certificate that the dialler must find there.
  // ALREADY_EXISTS: the port is taken; another may be tried.
  virtual Result<std::string> listen(const std::string& address, Acceptor acceptor) = 0;
  // Returns at once. Frames may be sent at once and go out when the peer has accepted. If it does
  // not, the link closes: with the acceptor's code and message if it refused, UNAVAILABLE if nobody
  // listens, DEADLINE_EXCEEDED after connect_timeout_ms, FAILED_PRECONDITION if one side has TLS
  // and the other has not, UNAUTHENTICATED if what listens has another certificate. A dialler that
  // is refused with RESOURCE_EXHAUSTED tries again until that time has passed.
  virtual std::shared_ptr<Link> connect(const std::string& address, const LinkHello& hello,
                                        std::shared_ptr<LinkHandler> handler) = 0;
};

// Links between transports of one process that share a LocalNetwork; for tests.
class LocalNetwork;
std::shared_ptr<LocalNetwork> make_local_network();
std::unique_ptr<Transport> make_local_transport(std::shared_ptr<LocalNetwork> network,
                                                const LinkLimits& limits);

std::unique_ptr<Transport> make_grpc_transport(const LinkLimits& limits);

// Calls handlers on `loop`; there it also reads, writes and releases frames, unless limits.streams
// gives large ones to threads of the transport. May be
// destroyed on the loop's thread, or on another while the loop runs.
class Loop;
std::unique_ptr<Transport> make_tcp_transport(Loop& loop, const LinkLimits& limits);

// The transport between hosts. `kind` is how this worker listens: "tcp", "grpc" (through proxies)
// or "auto", which is tcp. Peers are dialled as their addresses say. Loop thread only.
std::unique_ptr<Transport> make_network_transport(Loop& loop, const std::string& kind,
                                                  const LinkLimits& limits);

// Makes glibc keep freed memory, which gRPC streams need to be fast. Call it first in main() of
// every process that streams.
void keep_malloc_memory();

}  // namespace tutti
