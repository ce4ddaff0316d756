#include "daemon/transport/tcp_listener.h"

#include <cerrno>

#include "daemon/transport/handshake.h"
#include "daemon/transport/tls_wire.h"

namespace tutti {
namespace {

constexpr Millis kAcceptPause{100};  // When descriptors have run out.
constexpr int kAcceptsAtOnce = 16;

}  // namespace

// An accepted connection until its dialler has sent its proof, at most connect_timeout_ms. A peer
// that does not speak the handshake is disconnected without an answer, since it may not be a
// worker.
class IncomingConnection : public std::enable_shared_from_this<IncomingConnection> {
 public:
  IncomingConnection(TcpListener& listener, std::unique_ptr<Wire> wire)
      : listener_(&listener), wire_(std::move(wire)) {}

  void start();
  void end();

 private:
  void on_readable();
  void send_challenge();
  void on_stream(uint16_t stream);
  void on_proof();

  TcpListener* listener_;       // Null once ended.
  std::unique_ptr<Wire> wire_;  // Null once ended.
  Loop::TimerId timer_ = 0;
  std::string transcript_;  // The hello and the challenge; empty until the challenge is sent.
  std::string received_;    // Of the current message.
};

void IncomingConnection::start() {
  Loop& loop = listener_->transport_->loop;
  timer_ = loop.at(Clock::now() + Millis(listener_->transport_->limits.connect_timeout_ms),
                   [self = shared_from_this()] { self->end(); });
  const Status watched = loop.watch(wire_->descriptor(), EPOLLIN,
                                    [self = shared_from_this()](uint32_t) { self->on_readable(); });
  if (!watched.ok()) end();
}

void IncomingConnection::end() {
  if (listener_ == nullptr) return;
  const std::shared_ptr<IncomingConnection> self = shared_from_this();
  TcpListener& listener = *std::exchange(listener_, nullptr);
  listener.transport_->loop.cancel(timer_);
  if (wire_ != nullptr) listener.transport_->loop.unwatch(wire_->descriptor());
  wire_.reset();
  (void)listener.connections_.remove_if([&](const auto& each) { return each == self; });
}

void IncomingConnection::on_readable() {
  while (listener_ != nullptr) {
    const auto wanted =
        transcript_.empty() ? hello_size(received_) : Result<size_t>(sizeof(LinkProof));
    if (!wanted.ok()) return end();
    const ReadResult result = read_exactly(*wire_, received_, *wanted);
    if (result == ReadResult::partial) return;
    if (result == ReadResult::broken) return end();
    if (!transcript_.empty()) return on_proof();
    const auto whole = hello_size(received_);
    if (!whole.ok() || *whole != received_.size()) continue;
    const uint16_t stream = from_bytes<LinkHelloHead>(received_).stream;
    stream == 0 ? send_challenge() : on_stream(stream);
  }
}

void IncomingConnection::send_challenge() {
  const std::string words = write_challenge(listener_->transport_->limits);
  if (!write_at_once(*wire_, words)) return end();
  transcript_ = std::exchange(received_, {}) + words;
}

// A data stream of a link that is open. Who knows the link's token is its dialler.
void IncomingConnection::on_stream(uint16_t stream) {
  TcpListener& listener = *listener_;
  const LinkProof token = from_bytes<LinkHelloHead>(received_).nonce;
  const auto link = listener.transport_->link_of(token, stream);
  listener.transport_->loop.unwatch(wire_->descriptor());
  std::unique_ptr<Wire> wire = std::move(wire_);
  end();
  if (link != nullptr && write_at_once(*wire, write_welcome({})))
    link->attach(stream, std::move(wire));
}

// From here on the dialler sends frames, which are not read before the link is open.
void IncomingConnection::on_proof() {
  TcpListener& listener = *listener_;
  listener.transport_->loop.unwatch(wire_->descriptor());
  const std::string from =
      "host " + host_of(transcript_) + " at " + name_of_peer(wire_->descriptor());
  const auto link = std::make_shared<TcpLink>(listener.transport_, from, nullptr);
  const std::string address = address_of_peer(wire_->descriptor());
  std::unique_ptr<Wire> wire = std::move(wire_);
  end();
  if (listener.transport_->add(link) && link->await_acceptance(std::move(wire)))
    link->offer_to(listener.acceptor_, transcript_, from_bytes<LinkProof>(received_), address);
  else
    link->fail(unavailable("the listener ends"));
}

// ---- The listener ----

TcpListener::TcpListener(std::shared_ptr<TcpTransportCore> transport, Fd socket, Acceptor acceptor)
    : transport_(std::move(transport)),
      socket_(std::move(socket)),
      acceptor_(std::move(acceptor)) {}

TcpListener::~TcpListener() {
  transport_->loop.cancel(resume_timer_);
  transport_->loop.unwatch(socket_.get());
  while (const auto* oldest = connections_.oldest()) std::shared_ptr(*oldest)->end();
}

Status TcpListener::start() {
  return transport_->loop.watch(socket_.get(), EPOLLIN, [this](uint32_t) { accept_some(); });
}

// A few at once: those that were accepted earlier get their turn before others displace them.
void TcpListener::accept_some() {
  for (int accepted = 0; accepted < kAcceptsAtOnce; ++accepted) {
    Fd socket(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) {
      const bool none_left = errno == EMFILE || errno == ENFILE || errno == ENOMEM;
      return none_left ? pause_accepting() : void();
    }
    const std::string address = address_of_peer(socket.get());
    const auto& tls = transport_->tls;
    const auto connection = std::make_shared<IncomingConnection>(
        *this, tls == nullptr ? make_plain_wire(std::move(socket))
                              : make_tls_listener_wire(std::move(socket), *tls));
    connections_.push(address, connection);
    connection->start();
    if (const auto evicted = connections_.pop_beyond(transport_->limits.half_open_max))
      (*evicted)->end();
  }
}

// Without descriptors the listener stays readable, and the loop would spin.
void TcpListener::pause_accepting() {
  transport_->loop.unwatch(socket_.get());
  resume_timer_ = transport_->loop.at(Clock::now() + kAcceptPause, [this] { (void)start(); });
}

}  // namespace tutti
