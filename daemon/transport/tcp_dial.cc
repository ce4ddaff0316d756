#include <cstring>

#include "daemon/transport/handshake.h"
#include "daemon/transport/tcp_link.h"

namespace tutti {
namespace {

// One dial; it lives as long as the loop or the resolver may still call it.
class Dial : public std::enable_shared_from_this<Dial> {
 public:
  Dial(std::shared_ptr<TcpHub> hub, std::shared_ptr<TcpLink> link, const std::string& address,
       const LinkHello& hello)
      : hub_(std::move(hub)),
        link_(std::move(link)),
        address_(address),
        handshake_(hello, hub_->limits, address) {}

  void start();
  void give_up();

 private:
  enum class Stage { connecting, challenge, answer };

  void found(Result<std::vector<SocketAddress>> addresses);
  void try_next(const std::string& last_error);
  void connected();
  void ready();
  void heard();
  void challenged();
  void answered();
  void fail(Status cause) const;

  const std::shared_ptr<TcpHub> hub_;
  std::shared_ptr<TcpLink> link_;  // Null once over.
  const std::string address_;
  DiallerHandshake handshake_;
  std::vector<SocketAddress> addresses_;
  size_t next_address_ = 0;
  Fd socket_;
  Stage stage_ = Stage::connecting;
  std::string in_;
};

void Dial::start() {
  Result<std::vector<SocketAddress>> addresses = resolve(address_, /*names=*/false);
  if (addresses.ok() || addresses.status().code() == Code::invalid_argument)
    return found(std::move(addresses));
  // A name, then; to look it up may take long.
  if (hub_->resolver == nullptr) hub_->resolver = std::make_unique<LoopThread>();
  hub_->resolver->loop.post([self = shared_from_this()] {
    self->hub_->loop.post([self, addresses = resolve(self->address_, /*names=*/true)]() mutable {
      self->found(std::move(addresses));
    });
  });
}

void Dial::give_up() {
  link_.reset();
  if (socket_.valid()) hub_->loop.unwatch(socket_.get());
  socket_.reset();
}

// The link gives this dial up, too.
void Dial::fail(Status cause) const {
  if (const std::shared_ptr<TcpLink> link = link_) link->break_off(std::move(cause));
}

void Dial::found(Result<std::vector<SocketAddress>> addresses) {
  if (link_ == nullptr) return;
  if (!addresses.ok()) return fail(addresses.status());
  addresses_ = *std::move(addresses);
  try_next("it has no address");
}

void Dial::try_next(const std::string& last_error) {
  if (socket_.valid()) hub_->loop.unwatch(socket_.get());
  socket_.reset();
  if (next_address_ == addresses_.size())
    return fail(unavailable("nobody listens at " + address_ + ": " + last_error +
                            "; where only a proxy leads there, set transport = grpc on that host"));
  Result<Fd> socket = begin_connect(addresses_[next_address_++], hub_->limits.congestion);
  if (!socket.ok()) return try_next(socket.status().message());
  socket_ = *std::move(socket);
  const Status watched = hub_->loop.watch(
      socket_.get(), EPOLLOUT, [self = shared_from_this()](uint32_t) { self->connected(); });
  if (!watched.ok()) fail(watched);
}

void Dial::connected() {
  if (const int error = connect_error(socket_); error != 0) return try_next(std::strerror(error));
  if (!write_at_once(socket_, handshake_.hello())) return try_next("it takes no hello");
  stage_ = Stage::challenge;
  const Status watched = hub_->loop.watch(socket_.get(), EPOLLIN,
                                          [self = shared_from_this()](uint32_t) { self->ready(); });
  if (!watched.ok()) fail(watched);
}

void Dial::ready() {
  while (socket_.valid()) {
    const bool first = stage_ == Stage::challenge;
    const auto wanted = first ? Result<size_t>(sizeof(LinkChallenge)) : answer_bytes(in_);
    if (!wanted.ok()) return fail(unavailable(address_ + ": " + wanted.status().message()));
    const Intake intake = read_exactly(socket_, in_, *wanted);
    if (intake == Intake::partial) return;
    if (intake == Intake::broken)
      return fail(unavailable(address_ + " hung up before it had accepted the link"));
    heard();
  }
}

void Dial::heard() {
  if (stage_ == Stage::challenge) return challenged();
  const auto whole = answer_bytes(in_);  // Of a refusal, the words follow.
  if (!whole.ok() || *whole == in_.size()) answered();
}

void Dial::challenged() {
  const Result<std::string> proof = handshake_.prove(in_);
  if (!proof.ok()) return fail(proof.status());
  if (!write_at_once(socket_, *proof)) return fail(unavailable(address_ + " takes no proof"));
  stage_ = Stage::answer;
  in_.clear();
}

void Dial::answered() {
  if (const Status accepted = handshake_.check(in_); !accepted.ok()) return fail(accepted);
  hub_->loop.unwatch(socket_.get());
  link_->open(std::move(socket_), handshake_.silence_ms());
  link_.reset();
}

}  // namespace

void dial_tcp(std::shared_ptr<TcpHub> hub, std::shared_ptr<TcpLink> link,
              const std::string& address, const LinkHello& hello) {
  const auto dial = std::make_shared<Dial>(std::move(hub), link, address, hello);
  if (link->begin_dial([dial] { dial->give_up(); })) dial->start();
}

}  // namespace tutti
