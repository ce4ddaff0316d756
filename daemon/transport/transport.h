// An ordered way to one peer worker. In-process, gRPC and TCP links stand behind one interface; one
// contract suite (tests/transport/transport_test.cc, transport_pressure_test.cc,
// transport_end_test.cc) runs over all. To add a transport: one file here, one line in each of that
// suite.
//
// PROMISES of a link. A receiver that keeps payloads holds its sender back: past queue_bytes_max of
// kept bytes nothing more is delivered until some are dropped. Frames arrive whole, once and in the
// order sent, or the link closes. It closes once, with a cause, at both ends. A frame that is too
// large, out of order, of another version, or whose length lies is refused by closing with
// INVALID_ARGUMENT or DATA_LOSS. A peer that vanishes or stops answering is noticed within
// LinkLimits::silence_ms, traffic or not: UNAVAILABLE.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "daemon/base/status.h"
#include "proto/frame.h"

namespace tutti {

struct LinkLimits {
  size_t frame_bytes_max = size_t{16} << 20;  // Of one payload.
  size_t queue_bytes_max = size_t{64} << 20;  // Accepted by send() and not yet released.
  int connect_timeout_ms = 10'000;
  int silence_ms = 5'000;
  size_t half_open_max = 256;  // Diallers that have proven nothing yet; the oldest makes room.
  std::string congestion = "cubic";  // TCP_CONGESTION, where the kernel allows it; empty: its own.
};

// Received bytes, in fragments, kept alive by `owner` as long as the payload lives.
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

// A frame to send. `bytes` are borrowed until `released` is called: exactly once, whether the frame
// was sent or the link closed, on a thread of the transports' own and never inside send() or
// close(), so it may take the caller's locks and send again. The caller may change the bytes only
// then. `released` may be empty. No release waits for a peer's handler once the link has ended.
struct Outgoing {
  FrameHeader header;
  std::span<const std::byte> bytes;
  std::function<void()> released;
};

class Link {
 public:
  virtual ~Link() = default;
  // Queues the frame; never blocks; any thread. RESOURCE_EXHAUSTED: the queue is full, nothing was
  // taken (`released` is not called), try again after an earlier frame is released.
  // INVALID_ARGUMENT: larger than frame_bytes_max. UNAVAILABLE: closed. No error takes anything.
  // Frames of a link are sent in the order of the calls.
  virtual Status send(Outgoing frame) = 0;
  // Closes both ends; the peer's handler gets UNAVAILABLE with this cause's message where it can
  // still be told. Idempotent. The own handler's on_closed is called too.
  virtual void close(Status cause) = 0;
  // Likewise, but at once: what is being sent is released soon, and the peer hears of a break.
  virtual void abort(Status cause) = 0;
};

// Where a payload that is on its way is to lie. Whoever offers it may take it back by setting `at`
// to null; the frame then comes in memory of the link's, its bytes worth nothing.
struct RecvBuffer {
  std::byte* at = nullptr;
};

// Who gets what arrives. Called by one thread at a time, in order; never after on_closed, which
// comes exactly once. Must not block. A handler outlives its link's last call.
class LinkHandler {
 public:
  virtual ~LinkHandler() = default;
  // A header has come, sound but for what the handler knows of it; its payload has not. A
  // recv_buffer spares a copy: the frame comes with it as its payload's one fragment. Called only
  // by links that live on one thread with the handler.
  virtual std::shared_ptr<RecvBuffer> recv_buffer_for(const FrameHeader&) { return nullptr; }
  virtual void on_frame(Frame frame) = 0;
  virtual void on_closed(Status cause) = 0;
};

// What the dialling side says of itself.
struct LinkHello {
  std::string job;
  uint32_t epoch = 0;
  std::string host;    // Of the dialling worker.
  std::string secret;  // Of the roster.
};

// What the listener hears of it, and decides on. Between processes the secret is proven and never
// told, by both sides, and nothing is read of the dialler beyond its handshake until
// `verify_secret` was asked and answered true; who is not let in within connect_timeout_ms is
// turned away.
struct IncomingLink {
  std::string job;
  uint32_t epoch = 0;
  std::string host;
  // Any thread, as long as the link lives.
  std::function<bool(const std::string& secret)> verify_secret;
};

// Called on any thread for each incoming link; returns who handles it, or why not (the dialler is
// told).
using Acceptor =
    std::function<Result<std::shared_ptr<LinkHandler>>(const IncomingLink&, std::shared_ptr<Link>)>;

class Transport {
 public:
  // Closes its links, waits for their handlers and until everything borrowed is released. Not from
  // a handler or `released`.
  virtual ~Transport() = default;
  virtual std::string name() const = 0;
  // Starts accepting at `address` ("host:port", port 0: any free one); answers with the address to
  // dial.
  virtual Result<std::string> listen(const std::string& address, Acceptor acceptor) = 0;
  // Returns at once; frames may be sent at once and go out when the peer has accepted. If it does
  // not within connect_timeout_ms the link closes: DEADLINE_EXCEEDED, or UNAVAILABLE where nobody
  // listens, or the acceptor's refusal with its code and message.
  virtual std::shared_ptr<Link> connect(const std::string& address, const LinkHello& hello,
                                        std::shared_ptr<LinkHandler> handler) = 0;
};

// Links between transports of one process that share a LocalNetwork; the fake network that ships.
class LocalNetwork;
std::shared_ptr<LocalNetwork> make_local_network();
std::unique_ptr<Transport> make_local_transport(std::shared_ptr<LocalNetwork> network,
                                                const LinkLimits& limits);

std::unique_ptr<Transport> make_grpc_transport(const LinkLimits& limits);

// Lives on the loop: reads, writes, calls handlers and releases there, with no thread of its own.
// Destroyed on the loop's thread, or on any other while the loop runs.
class Loop;
std::unique_ptr<Transport> make_tcp_transport(Loop& loop, const LinkLimits& limits);

// What workers use between hosts. `kind` is how this one is reached: "tcp", "grpc" (for proxies) or
// "auto", which is tcp; others are dialled as their addresses say. Calls on the loop's thread.
std::unique_ptr<Transport> make_network_transport(Loop& loop, const std::string& kind,
                                                  const LinkLimits& limits);

// glibc must keep its memory for gRPC streams to be fast: call first thing in main() of every
// process that streams.
void keep_malloc_memory();

}  // namespace tutti
