#include "daemon/transport/tcp_dial.h"

#include <cstring>

#include "daemon/transport/secrets.h"
#include "daemon/transport/tcp_handshake.h"

namespace tutti {
namespace {

// One dial; it lives as long as the loop or the resolver may still call it.
class Dial : public std::enable_shared_from_this<Dial> {
 public:
  Dial(std::shared_ptr<TcpHub> hub, std::shared_ptr<TcpLink> link, const std::string& address,
       const LinkHello& hello)
      : hub_(std::move(hub)), link_(std::move(link)), address_(address), hello_(hello) {}

  void start();
  void give_up();

 private:
  enum class Stage { connecting, challenge, answer, text, over };

  void found(Result<std::vector<SocketAddress>> addresses);
  void try_next(const std::string& last_error);
  void connected();
  void ready();
  void expect(Stage stage, size_t bytes);
  void heard();
  void challenged();
  void answered();
  void welcomed(const LinkAnswerHead& answer);
  void late();
  void fail(Status cause);

  const std::shared_ptr<TcpHub> hub_;
  std::shared_ptr<TcpLink> link_;  // Null once over.
  const std::string address_;
  const LinkHello hello_;
  std::vector<SocketAddress> addresses_;
  size_t next_address_ = 0;
  Fd socket_;
  Stage stage_ = Stage::connecting;
  Loop::TimerId timer_ = 0;
  std::string said_;  // The hello, then the challenge: what proofs are made of.
  std::string in_;
  size_t wanted_ = 0;
  int silence_ms_ = 0;
};

void Dial::start() {
  timer_ = hub_->loop.at(Clock::now() + Millis(hub_->limits.connect_timeout_ms),
                         [self = shared_from_this()] { self->late(); });
  Result<std::vector<SocketAddress>> addresses = resolve(address_, /*names=*/false);
  if (addresses.ok() || addresses.status().code() == Code::invalid_argument)
    return found(std::move(addresses));
  // A name, then; to look it up may take long.
  if (hub_->resolver == nullptr) hub_->resolver = std::make_unique<Mailbox>();
  hub_->resolver->post([self = shared_from_this()] {
    self->hub_->loop.post([self, addresses = resolve(self->address_, /*names=*/true)]() mutable {
      self->found(std::move(addresses));
    });
  });
}

void Dial::give_up() {
  if (stage_ == Stage::over) return;
  stage_ = Stage::over;
  hub_->loop.cancel(timer_);
  if (socket_.valid()) hub_->loop.unwatch(socket_.get());
  socket_.reset();
  link_.reset();
}

void Dial::fail(Status cause) {
  const std::shared_ptr<TcpLink> link = link_;
  give_up();
  if (link != nullptr) link->break_off(std::move(cause));
}

void Dial::late() {
  fail(deadline_exceeded(address_ + " did not accept the link within " +
                         std::to_string(hub_->limits.connect_timeout_ms) + " ms"));
}

void Dial::found(Result<std::vector<SocketAddress>> addresses) {
  if (stage_ == Stage::over) return;
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
  said_ = write_hello(hello_, hub_->limits);
  if (!write_at_once(socket_, said_)) return try_next("it takes no hello");
  expect(Stage::challenge, sizeof(LinkChallenge));
  const Status watched = hub_->loop.watch(socket_.get(), EPOLLIN,
                                          [self = shared_from_this()](uint32_t) { self->ready(); });
  if (!watched.ok()) fail(watched);
}

void Dial::expect(Stage stage, size_t bytes) {
  stage_ = stage;
  in_.clear();
  wanted_ = bytes;
}

void Dial::ready() {
  while (stage_ != Stage::over) {
    const Intake intake = read_exactly(socket_, in_, wanted_);
    if (intake == Intake::partial) return;
    if (intake == Intake::broken)
      return fail(unavailable(address_ + " hung up before it had accepted the link"));
    heard();
  }
}

void Dial::heard() {
  if (stage_ == Stage::challenge) return challenged();
  if (stage_ == Stage::answer) return answered();
  const auto head = from_bytes<LinkAnswerHead>(in_);
  fail({code_of(static_cast<int>(head.code)), in_.substr(sizeof(head))});
}

void Dial::challenged() {
  const auto challenge = from_bytes<LinkChallenge>(in_);
  if (Status good = check_challenge(challenge); !good.ok())
    return fail(unavailable(address_ + ": " + good.message()));
  silence_ms_ = common_silence_ms(hub_->limits, challenge.silence_ms);
  said_ += in_;
  if (!write_at_once(socket_, to_bytes(prove(hello_.secret, "d" + said_))))
    return fail(unavailable(address_ + " takes no proof"));
  expect(Stage::answer, sizeof(LinkAnswerHead));
}

void Dial::answered() {
  const auto answer = from_bytes<LinkAnswerHead>(in_);
  if (answer.code == 0) return welcomed(answer);
  if (answer.text_bytes > kLinkTextBytesMax)
    return fail(unavailable(address_ + " refuses the link at more length than is allowed"));
  stage_ = Stage::text;  // Behind the head, which is kept.
  wanted_ = sizeof(answer) + answer.text_bytes;
}

void Dial::welcomed(const LinkAnswerHead& answer) {
  if (!same_proof(answer.proof, prove(hello_.secret, "l" + said_)))
    return fail(unauthenticated("what listens at " + address_ + " does not know the job's secret"));
  hub_->loop.unwatch(socket_.get());
  Fd socket = std::move(socket_);
  const std::shared_ptr<TcpLink> link = link_;
  give_up();
  link->open(std::move(socket), silence_ms_);
}

}  // namespace

void dial_tcp(std::shared_ptr<TcpHub> hub, std::shared_ptr<TcpLink> link,
              const std::string& address, const LinkHello& hello) {
  const auto dial = std::make_shared<Dial>(std::move(hub), link, address, hello);
  if (link->set_opening([dial](const Status&) { dial->give_up(); })) dial->start();
}

}  // namespace tutti
