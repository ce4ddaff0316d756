#include "daemon/transport/tcp_listener.h"

#include <netdb.h>

#include <array>
#include <cerrno>

#include "daemon/transport/secrets.h"
#include "daemon/transport/tcp_handshake.h"

namespace tutti {
namespace {

constexpr size_t kStrangersMost = 256;  // At a time; the oldest makes room.
constexpr Millis kRest{100};            // Where descriptors have run out.

std::string name_of_peer(const Fd& socket) {
  SocketAddress from{.bytes = sizeof(sockaddr_storage)};
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (getpeername(socket.get(), reinterpret_cast<sockaddr*>(&from.storage), &from.bytes) != 0 ||
      getnameinfo(from.get(), from.bytes, host.data(), host.size(), port.data(), port.size(),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return "an unknown address";
  return std::string(host.data()) + ":" + port.data();
}

}  // namespace

// One stranger, from its connect to its welcome, within connect_timeout_ms.
class Greeting : public std::enable_shared_from_this<Greeting> {
 public:
  Greeting(TcpListener& listener, Fd socket)
      : listener_(&listener),
        hub_(listener.hub_),
        socket_(std::move(socket)),
        from_(name_of_peer(socket_)),
        wanted_(sizeof(LinkHelloHead)) {}

  void start();
  // Hangs up, with `words` if there are any.
  void end(const std::string& words = {});

 private:
  enum class Stage { head, names, proof, judged, over };

  Status watch(uint32_t events);
  void ready(uint32_t events);
  void heard();
  void met();
  void named();
  void proven();
  void judge(LinkGuest guest);
  LinkGuest guest_of(const LinkProof& shown);
  void welcome(const LinkProof& proof);
  void late();
  void hung_up();

  TcpListener* listener_;  // Null once over.
  const std::shared_ptr<TcpHub> hub_;
  Fd socket_;
  const std::string from_;
  Stage stage_ = Stage::head;
  Loop::TimerId timer_ = 0;
  std::string said_;
  std::string in_;
  size_t wanted_;
  LinkHelloHead hello_;
  std::shared_ptr<TcpLink> link_;  // Once judged.
};

void Greeting::start() {
  timer_ = hub_->loop.at(Clock::now() + Millis(hub_->limits.connect_timeout_ms),
                         [self = shared_from_this()] { self->late(); });
  if (!watch(EPOLLIN).ok()) end();
}

Status Greeting::watch(uint32_t events) {
  return hub_->loop.watch(socket_.get(), events,
                          [self = shared_from_this()](uint32_t what) { self->ready(what); });
}

void Greeting::end(const std::string& words) {
  if (stage_ == Stage::over) return;
  stage_ = Stage::over;
  const std::shared_ptr<Greeting> self = shared_from_this();
  hub_->loop.cancel(timer_);
  if (socket_.valid()) {
    hub_->loop.unwatch(socket_.get());
    if (!words.empty()) (void)write_at_once(socket_, words);
  }
  socket_.reset();
  link_.reset();
  listener_->forget(self);
  listener_ = nullptr;
}

void Greeting::late() {
  if (link_ == nullptr) return end();
  link_->end(deadline_exceeded(link_->peer() + " was not let in within " +
                               std::to_string(hub_->limits.connect_timeout_ms) + " ms"),
             unavailable("the link was not let in in time"));
}

void Greeting::hung_up() {
  const std::shared_ptr<TcpLink> link = link_;
  end();
  if (link != nullptr) link->break_off(unavailable("the link from " + link->peer() + " broke"));
}

void Greeting::ready(uint32_t events) {
  if (stage_ == Stage::judged) {
    if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) hung_up();
    return;
  }
  while (stage_ < Stage::judged) {
    const Intake intake = read_exactly(socket_, in_, wanted_);
    if (intake == Intake::partial) return;
    if (intake == Intake::broken) return end();
    heard();
  }
}

void Greeting::heard() {
  if (stage_ == Stage::head) return met();
  if (stage_ == Stage::names) return named();
  proven();
}

void Greeting::met() {
  hello_ = from_bytes<LinkHelloHead>(in_);
  if (!check_hello(hello_).ok()) return end();  // No words: who knows what it would make of them.
  stage_ = Stage::names;
  wanted_ = sizeof(hello_) + hello_.job_bytes + hello_.host_bytes;
}

void Greeting::named() {
  LinkChallenge challenge;
  challenge.silence_ms = static_cast<uint32_t>(hub_->limits.silence_ms);
  challenge.nonce = make_nonce();
  const std::string words = to_bytes(challenge);
  if (!write_at_once(socket_, words)) return end();
  said_ = in_ + words;
  stage_ = Stage::proof;
  in_.clear();
  wanted_ = sizeof(LinkProof);
}

// Nothing more is read before the link is open: what comes then are frames.
void Greeting::proven() {
  stage_ = Stage::judged;
  listener_->let_wait(shared_from_this());
  if (!watch(EPOLLRDHUP).ok()) return end();
  judge(guest_of(from_bytes<LinkProof>(in_)));
}

LinkGuest Greeting::guest_of(const LinkProof& shown) {
  LinkGuest guest;
  guest.job = said_.substr(sizeof(LinkHelloHead), hello_.job_bytes);
  guest.epoch = hello_.epoch;
  guest.host = said_.substr(sizeof(LinkHelloHead) + hello_.job_bytes, hello_.host_bytes);
  guest.knows = [weak = weak_from_this(), said = said_, shown](const std::string& secret) {
    if (!same_proof(shown, prove(secret, "d" + said))) return false;
    const std::shared_ptr<Greeting> greeting = weak.lock();
    if (greeting != nullptr)
      greeting->hub_->loop.post(
          [greeting, proof = prove(secret, "l" + said)] { greeting->welcome(proof); });
    return true;
  };
  return guest;
}

void Greeting::judge(LinkGuest guest) {
  link_ = std::make_shared<TcpLink>(hub_, "host " + guest.host + " at " + from_, nullptr);
  if (!hub_->keep(link_)) return end(write_refusal(unavailable("the listener ends")));
  const std::shared_ptr<TcpLink> link = link_;
  auto handler = listener_->acceptor_(guest, link);
  if (!handler.ok()) {
    end(write_refusal(handler.status()));
    return link->break_off(handler.status());
  }
  link->set_handler(*std::move(handler));
  link->set_opening(
      [self = shared_from_this()](const Status& theirs) { self->end(write_refusal(theirs)); });
}

void Greeting::welcome(const LinkProof& proof) {
  if (stage_ != Stage::judged) return;
  if (!write_at_once(socket_, write_welcome(proof))) return hung_up();
  hub_->loop.unwatch(socket_.get());
  Fd socket = std::move(socket_);
  const std::shared_ptr<TcpLink> link = link_;
  end();
  link->open(std::move(socket), common_silence_ms(hub_->limits, hello_.silence_ms));
}

// ---- The listener ----

TcpListener::TcpListener(std::shared_ptr<TcpHub> hub, Fd socket, Acceptor acceptor)
    : hub_(std::move(hub)), socket_(std::move(socket)), acceptor_(std::move(acceptor)) {}

TcpListener::~TcpListener() { stop(); }

Status TcpListener::start() {
  return hub_->loop.watch(socket_.get(), EPOLLIN, [this](uint32_t) { accept_some(); });
}

void TcpListener::stop() {
  hub_->loop.cancel(rest_);
  hub_->loop.unwatch(socket_.get());
  while (!strangers_.empty()) strangers_.front()->end();
  while (!guests_.empty()) guests_.front()->end();
}

void TcpListener::let_wait(const std::shared_ptr<Greeting>& greeting) {
  strangers_.remove(greeting);
  guests_.push_back(greeting);
}

void TcpListener::forget(const std::shared_ptr<Greeting>& greeting) {
  strangers_.remove(greeting);
  guests_.remove(greeting);
}

void TcpListener::accept_some() {
  for (;;) {
    Fd socket(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) {
      const bool none_left = errno == EMFILE || errno == ENFILE || errno == ENOMEM;
      return none_left ? rest() : void();
    }
    if (strangers_.size() >= kStrangersMost) strangers_.front()->end();
    strangers_.push_back(std::make_shared<Greeting>(*this, std::move(socket)));
    strangers_.back()->start();
  }
}

// Nothing can be accepted, and the waiting connections would call again at once.
void TcpListener::rest() {
  hub_->loop.unwatch(socket_.get());
  rest_ = hub_->loop.at(Clock::now() + kRest, [this] { (void)start(); });
}

}  // namespace tutti
