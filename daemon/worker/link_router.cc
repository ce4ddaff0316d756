#include "daemon/worker/link_router.h"

namespace tutti {
namespace {

constexpr size_t kSecretsMax = 1024;  // Those of the newest epochs are kept.

}  // namespace

// Forwards to the link's handler, and tells the router when the link closes.
class LinkRouter::ClosingObserver final : public LinkHandler {
 public:
  ClosingObserver(Loop& loop, std::shared_ptr<LoopHandler> handler, std::function<void()> on_close)
      : loop_(loop), handler_(std::move(handler)), on_close_(std::move(on_close)) {}
  std::shared_ptr<RecvBuffer> recv_buffer_for(const FrameHeader& header) override {
    return handler_->recv_buffer_for(header);
  }
  void on_frame(Frame frame) override { handler_->on_frame(std::move(frame)); }
  void on_closed(Status cause) override {
    handler_->on_closed(std::move(cause));
    loop_.post(std::move(on_close_));
  }

 private:
  Loop& loop_;
  const std::shared_ptr<LoopHandler> handler_;
  std::function<void()> on_close_;
};

LinkRouter::LinkRouter(Loop& loop, std::string job, Millis wait_timeout, size_t waiting_max,
                       Events& events)
    : loop_(loop),
      job_(std::move(job)),
      wait_timeout_(wait_timeout),
      waiting_max_(waiting_max),
      events_(events) {}

LinkRouter::~LinkRouter() {
  lifetime_.end();
  loop_.cancel(timer_);
  while (const auto incoming = waiting_.pop()) incoming->handler->unbind();
}

Acceptor LinkRouter::acceptor() {
  return [&loop = loop_, job = job_, timeout = wait_timeout_,
          come = lifetime_.guard([this](const Incoming& incoming) { route(incoming); }),
          go = lifetime_.guard([this](const LoopHandler* handler) { remove_waiting(handler); })](
             const IncomingLink& hello,
             std::shared_ptr<Link> link) -> Result<std::shared_ptr<LinkHandler>> {
    if (hello.job != job) return not_found("this worker serves job " + job + ", not " + hello.job);
    auto handler = std::make_shared<LoopHandler>(loop);
    Incoming incoming{hello, std::move(link), handler, Clock::now() + timeout};
    loop.post([come, incoming = std::move(incoming)] { come(incoming); });
    return std::shared_ptr<LinkHandler>(
        std::make_shared<ClosingObserver>(loop, handler, [=] { go(handler.get()); }));
  };
}

void LinkRouter::route(Incoming incoming) {
  const IncomingLink& hello = incoming.hello;
  if (const std::string* secret = events_.secret_of(hello.epoch)) {
    if (secret->empty() || !hello.verify_secret(*secret))
      return refuse(incoming, unauthenticated("the link does not know the job's secret"));
    return events_.add_link(hello.epoch, hello.host, incoming.link, incoming.handler);
  }
  if (is_over(hello))
    return refuse(incoming, failed_precondition("epoch " + std::to_string(hello.epoch) +
                                                " of job " + job_ + " is over"));
  if (timer_ == 0) timer_ = loop_.at(incoming.deadline, [this] { expire_waiting(); });
  const std::string from = hello.address;
  waiting_.push(from, std::move(incoming));
  if (const auto evicted = waiting_.pop_beyond(waiting_max_))
    refuse(*evicted, resource_exhausted("too many links wait for epochs to come"));
}

void LinkRouter::refuse(const Incoming& incoming, const Status& cause) {
  incoming.handler->unbind();
  incoming.link->close(cause);
}

bool LinkRouter::is_over(const IncomingLink& hello) const {
  const auto secret = secrets_.find(hello.epoch);
  return secret != secrets_.end() && hello.verify_secret(secret->second);
}

void LinkRouter::remove_waiting(const LoopHandler* handler) {
  const auto is_it = [&](const Incoming& each) { return each.handler.get() == handler; };
  if (const auto closed = waiting_.remove_if(is_it)) closed->handler->unbind();
}

void LinkRouter::on_epoch_formed(uint32_t number) {
  if (const std::string* secret = events_.secret_of(number)) secrets_[number] = *secret;
  if (secrets_.size() > kSecretsMax) secrets_.erase(secrets_.begin());
  FairQueue<Incoming> waiting = std::exchange(waiting_, {});
  while (auto incoming = waiting.pop()) route(*std::move(incoming));
}

void LinkRouter::expire_waiting() {
  timer_ = 0;
  const TimePoint now = Clock::now();
  const Status unknown = unauthenticated("this worker knows of no such epoch of job " + job_);
  while (const Incoming* oldest = waiting_.oldest()) {
    if (oldest->deadline > now) {
      timer_ = loop_.at(oldest->deadline, [this] { expire_waiting(); });
      return;
    }
    refuse(*waiting_.pop(), unknown);
  }
}

}  // namespace tutti
