#include "daemon/transport/tcp_listener.h"

#include <cerrno>

#include "daemon/transport/handshake.h"

namespace tutti {
namespace {

constexpr Millis kRest{100};  // Where descriptors have run out.

}  // namespace

// One connection from its accept to its proof, within connect_timeout_ms. Whoever does not speak
// the handshake is left without a word: who knows what it would make of one.
class Stranger : public std::enable_shared_from_this<Stranger> {
 public:
  Stranger(TcpListener& listener, Fd socket) : listener_(&listener), socket_(std::move(socket)) {}

  void start();
  void end();

 private:
  void ready();
  void challenge();
  void proven();

  TcpListener* listener_;  // Null once over.
  Fd socket_;
  Loop::TimerId timer_ = 0;
  std::string said_;  // The hello and the challenge, once it is sent.
  std::string in_;
};

void Stranger::start() {
  Loop& loop = listener_->hub_->loop;
  timer_ = loop.at(Clock::now() + Millis(listener_->hub_->limits.connect_timeout_ms),
                   [self = shared_from_this()] { self->end(); });
  const Status watched =
      loop.watch(socket_.get(), EPOLLIN, [self = shared_from_this()](uint32_t) { self->ready(); });
  if (!watched.ok()) end();
}

void Stranger::end() {
  if (listener_ == nullptr) return;
  const std::shared_ptr<Stranger> self = shared_from_this();
  TcpListener& listener = *std::exchange(listener_, nullptr);
  listener.hub_->loop.cancel(timer_);
  if (socket_.valid()) listener.hub_->loop.unwatch(socket_.get());
  socket_.reset();
  listener.strangers_.remove(self);
}

void Stranger::ready() {
  while (listener_ != nullptr) {
    const auto wanted = said_.empty() ? hello_bytes(in_) : Result<size_t>(sizeof(LinkProof));
    if (!wanted.ok()) return end();
    const Intake intake = read_exactly(socket_, in_, *wanted);
    if (intake == Intake::partial) return;
    if (intake == Intake::broken) return end();
    if (!said_.empty()) return proven();
    if (const auto whole = hello_bytes(in_); whole.ok() && *whole == in_.size()) challenge();
  }
}

void Stranger::challenge() {
  const std::string words = write_challenge(listener_->hub_->limits);
  if (!write_at_once(socket_, words)) return end();
  said_ = std::exchange(in_, {}) + words;
}

// What comes from here on are frames, which are not read before the link is open.
void Stranger::proven() {
  TcpListener& listener = *listener_;
  listener.hub_->loop.unwatch(socket_.get());
  const std::string from = "host " + host_of(said_) + " at " + name_of_peer(socket_);
  const auto link = std::make_shared<TcpLink>(listener.hub_, from, nullptr);
  Fd socket = std::move(socket_);
  end();
  if (listener.hub_->keep(link) && link->wait_with(std::move(socket)))
    link->ask(listener.acceptor_, said_, from_bytes<LinkProof>(in_));
  else
    link->break_off(unavailable("the listener ends"));
}

// ---- The listener ----

TcpListener::TcpListener(std::shared_ptr<TcpHub> hub, Fd socket, Acceptor acceptor)
    : hub_(std::move(hub)), socket_(std::move(socket)), acceptor_(std::move(acceptor)) {}

TcpListener::~TcpListener() {
  hub_->loop.cancel(rest_);
  hub_->loop.unwatch(socket_.get());
  while (!strangers_.empty()) strangers_.front()->end();
}

Status TcpListener::start() {
  return hub_->loop.watch(socket_.get(), EPOLLIN, [this](uint32_t) { accept_some(); });
}

void TcpListener::accept_some() {
  for (;;) {
    Fd socket(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) {
      const bool none_left = errno == EMFILE || errno == ENFILE || errno == ENOMEM;
      return none_left ? rest() : void();
    }
    if (strangers_.size() >= hub_->limits.half_open_max) strangers_.front()->end();
    strangers_.push_back(std::make_shared<Stranger>(*this, std::move(socket)));
    strangers_.back()->start();
  }
}

// Nothing can be accepted, and the waiting connections would call again at once.
void TcpListener::rest() {
  hub_->loop.unwatch(socket_.get());
  rest_ = hub_->loop.at(Clock::now() + kRest, [this] { (void)start(); });
}

}  // namespace tutti
