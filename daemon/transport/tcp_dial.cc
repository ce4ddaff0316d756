// The dialling side of TCP links: name lookup, connect, TLS and handshake.
#include <algorithm>
#include <cstring>
#include <optional>

#include "daemon/transport/endpoint.h"
#include "daemon/transport/handshake.h"
#include "daemon/transport/tcp_link.h"
#include "daemon/transport/tls_wire.h"

namespace tutti {
namespace {

// Dials of one data stream that are kRedialPause apart; then the pause doubles, so many times.
constexpr int kQuickDials = 20;
constexpr int kDoublings = 8;

// One dial. It is kept alive by the callbacks of the loop and the resolver. Loop thread only.
class TcpDialler : public std::enable_shared_from_this<TcpDialler> {
 public:
  TcpDialler(std::shared_ptr<TcpTransportCore> transport, std::shared_ptr<TcpLink> link,
             Endpoint endpoint, const LinkHello& hello)
      : transport_(std::move(transport)),
        link_(std::move(link)),
        address_(std::move(endpoint.address)),
        fingerprint_(std::move(endpoint.fingerprint)),
        hello_(hello) {}
  // Dials a data stream of the link that `dial` has opened.
  TcpDialler(const TcpDialler& dial, std::shared_ptr<TcpLink> link, uint16_t stream,
             const LinkTerms& terms)
      : transport_(dial.transport_),
        link_(std::move(link)),
        address_(dial.address_),
        fingerprint_(dial.fingerprint_),
        addresses_{dial.addresses_[dial.next_address_ - 1]},
        stream_hello_(write_stream_hello(stream, terms.token)),
        stream_(stream) {}

  void start();
  void dial();
  void stop();

 private:
  enum class Stage { connecting, tls, challenge, answer };

  void on_resolved(Result<std::vector<SocketAddress>> addresses);
  void hang_up();
  void try_next(const std::string& last_error);
  void on_connected();
  void on_readable();
  bool say_hello();
  void on_message();
  void on_challenge();
  void on_answer();
  void redial();
  void call_after(Millis delay, void (TcpDialler::*task)());
  void fail(Status cause);

  const std::shared_ptr<TcpTransportCore> transport_;
  std::shared_ptr<TcpLink> link_;  // Null once the dial has succeeded or stopped.
  const std::string address_;
  const std::string fingerprint_;  // Of a listener that takes TLS.
  const LinkHello hello_;
  std::optional<DiallerHandshake> handshake_;  // A new one for each attempt.
  std::vector<SocketAddress> addresses_;
  size_t next_address_ = 0;
  Fd socket_;                   // While it connects,
  std::unique_ptr<Wire> wire_;  // and from then on.
  Stage stage_ = Stage::connecting;
  std::string received_;
  Loop::TimerId timer_ = 0;  // Ends a pause, or the dial of a data stream.
  const std::string stream_hello_;
  const uint16_t stream_ = 0;  // Not 0: it dials that data stream of link_.
  int stream_dials_ = 0;
};

void TcpDialler::start() {
  Result<std::vector<SocketAddress>> addresses = resolve(address_, /*names=*/false);
  if (addresses.ok() || addresses.status().code() == Code::invalid_argument)
    return on_resolved(std::move(addresses));
  // It is a name. Looking it up may block, so another thread does it.
  if (transport_->resolver == nullptr) transport_->resolver = std::make_unique<LoopThread>();
  transport_->resolver->loop.post([self = shared_from_this()] {
    self->transport_->loop.post([self, addresses = resolve(self->address_)]() mutable {
      self->on_resolved(std::move(addresses));
    });
  });
}

void TcpDialler::stop() {
  link_.reset();
  hang_up();
}

void TcpDialler::hang_up() {
  transport_->loop.cancel(std::exchange(timer_, 0));
  if (socket_.valid()) transport_->loop.unwatch(socket_.get());
  if (wire_ != nullptr) transport_->loop.unwatch(wire_->descriptor());
  socket_.reset();
  wire_.reset();
}

// Fails the link, which calls stop(). A link without one of its streams is only slower, and dials
// it again for as long as it lives.
void TcpDialler::fail(Status cause) {
  const std::shared_ptr<TcpLink> link = link_;
  if (link == nullptr) return;
  stream_ == 0 ? link->fail(std::move(cause)) : redial();
}

void TcpDialler::on_resolved(Result<std::vector<SocketAddress>> addresses) {
  if (link_ == nullptr) return;
  if (!addresses.ok()) return fail(addresses.status());
  addresses_ = *std::move(addresses);
  dial();
}

void TcpDialler::dial() {
  if (stream_ == 0)
    handshake_.emplace(hello_, transport_->limits, address_);
  else
    call_after(Millis(transport_->limits.connect_timeout_ms), &TcpDialler::redial);
  stage_ = Stage::connecting;
  next_address_ = 0;
  received_.clear();
  try_next("it has no address");
}

void TcpDialler::try_next(const std::string& last_error) {
  if (socket_.valid()) transport_->loop.unwatch(socket_.get());
  socket_.reset();
  if (next_address_ == addresses_.size())
    return fail(unavailable("nobody listens at " + address_ + ": " + last_error +
                            "; where only a proxy leads there, set transport = grpc on that host"));
  Result<Fd> socket = begin_connect(addresses_[next_address_++], transport_->limits.congestion);
  if (!socket.ok()) return try_next(socket.status().message());
  socket_ = *std::move(socket);
  const Status watched = transport_->loop.watch(
      socket_.get(), EPOLLOUT, [self = shared_from_this()](uint32_t) { self->on_connected(); });
  if (!watched.ok()) fail(watched);
}

void TcpDialler::on_connected() {
  if (const int error = connect_error(socket_); error != 0) return try_next(std::strerror(error));
  wire_ = fingerprint_.empty()
              ? make_plain_wire(std::move(socket_))
              : make_tls_dialler_wire(std::move(socket_), *transport_->tls, fingerprint_);
  stage_ = Stage::tls;
  const Status watched = transport_->loop.watch(
      wire_->descriptor(), EPOLLIN, [self = shared_from_this()](uint32_t) { self->on_readable(); });
  watched.ok() ? on_readable() : fail(watched);
}

// Returns false if it must wait for TLS, or has failed.
bool TcpDialler::say_hello() {
  const Result<bool> secured = wire_->secure();
  if (!secured.ok()) {
    fail({secured.status().code(), address_ + ": " + secured.status().message()});
    return false;
  }
  if (!*secured) return false;
  stage_ = stream_ != 0 ? Stage::answer : Stage::challenge;
  // The listener may have taken the stream by now, and would miss it.
  if (stream_ != 0) transport_->loop.cancel(std::exchange(timer_, 0));
  if (write_at_once(*wire_, stream_ != 0 ? stream_hello_ : handshake_->hello())) return true;
  fail(unavailable(address_ + " takes no hello"));
  return false;
}

void TcpDialler::on_readable() {
  if (stage_ == Stage::tls && !say_hello()) return;
  while (wire_ != nullptr) {
    const bool first = stage_ == Stage::challenge;
    const auto wanted = first ? Result<size_t>(sizeof(LinkChallenge)) : answer_size(received_);
    if (!wanted.ok()) return fail(unavailable(address_ + ": " + wanted.status().message()));
    const ReadResult result = read_exactly(*wire_, received_, *wanted);
    if (result == ReadResult::partial) return;
    if (result == ReadResult::broken)
      return fail(unavailable(address_ + " hung up before it had accepted the link"));
    on_message();
  }
}

void TcpDialler::on_message() {
  if (stage_ == Stage::challenge) return on_challenge();
  const auto whole = answer_size(received_);  // A refusal is followed by its text.
  if (!whole.ok() || *whole == received_.size()) on_answer();
}

void TcpDialler::on_challenge() {
  const Result<std::string> proof = handshake_->prove(received_);
  if (!proof.ok()) return fail(proof.status());
  if (!write_at_once(*wire_, *proof)) return fail(unavailable(address_ + " takes no proof"));
  stage_ = Stage::answer;
  received_.clear();
}

void TcpDialler::on_answer() {
  const Status accepted = stream_ != 0 ? Status() : handshake_->check(received_);
  if (accepted.code() == Code::resource_exhausted) {
    link_->note_refusal(accepted);
    return redial();
  }
  if (!accepted.ok()) return fail(accepted);
  transport_->loop.unwatch(wire_->descriptor());
  const std::shared_ptr<TcpLink> link = std::exchange(link_, nullptr);
  if (stream_ != 0) return link->attach(stream_, std::move(wire_));
  const LinkTerms terms = handshake_->terms();
  link->open(std::move(wire_), terms);
  if (link->descriptor() < 0) return;  // It is closed.
  for (int stream = 1; stream <= terms.streams; ++stream) {
    const auto dial =
        std::make_shared<TcpDialler>(*this, link, static_cast<uint16_t>(stream), terms);
    link->on_dial([dial] { dial->stop(); });
    dial->dial();
  }
}

// The listener had to make room, or has none yet, or a data stream could not be opened.
void TcpDialler::redial() {
  hang_up();
  if (stream_ != 0) ++stream_dials_;
  const int doublings = std::clamp(stream_dials_ - kQuickDials, 0, kDoublings);
  call_after(kRedialPause * (1 << doublings), &TcpDialler::dial);
}

void TcpDialler::call_after(Millis delay, void (TcpDialler::*task)()) {
  timer_ = transport_->loop.at(Clock::now() + delay, [self = shared_from_this(), task] {
    self->timer_ = 0;
    (self.get()->*task)();
  });
}

}  // namespace

void dial_tcp(std::shared_ptr<TcpTransportCore> transport, std::shared_ptr<TcpLink> link,
              const std::string& endpoint, const LinkHello& hello) {
  Result<Endpoint> parsed = parse_endpoint(endpoint, transport->limits.tls);
  if (!parsed.ok()) return link->fail(parsed.status());
  const auto dial =
      std::make_shared<TcpDialler>(std::move(transport), link, *std::move(parsed), hello);
  if (link->set_dial([dial] { dial->stop(); })) dial->start();
}

}  // namespace tutti
