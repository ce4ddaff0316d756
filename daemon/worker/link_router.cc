#include "daemon/worker/link_router.h"

#include <algorithm>

#include "daemon/mesh/mesh.h"

namespace tutti {

namespace {
constexpr size_t kWaitingMost = 256;
constexpr size_t kSecretsMost = 1024;  // The newest epochs' are kept.
}  // namespace

// Tells the door when a link ends, which may wait there.
class LinkRouter::Caller final : public LinkHandler {
 public:
  Caller(Loop& loop, std::shared_ptr<LoopHandler> handler, std::function<void()> gone)
      : loop_(loop), handler_(std::move(handler)), gone_(std::move(gone)) {}
  std::shared_ptr<RecvBuffer> recv_buffer_for(const FrameHeader& header) override {
    return handler_->recv_buffer_for(header);
  }
  void on_frame(Frame frame) override { handler_->on_frame(std::move(frame)); }
  void on_closed(Status cause) override {
    handler_->on_closed(std::move(cause));
    loop_.post(std::move(gone_));
  }

 private:
  Loop& loop_;
  const std::shared_ptr<LoopHandler> handler_;
  std::function<void()> gone_;
};

LinkRouter::LinkRouter(Loop& loop, std::string job, Millis patience, Events& events)
    : loop_(loop), job_(std::move(job)), patience_(patience), events_(events) {}

LinkRouter::~LinkRouter() {
  *alive_ = false;
  loop_.cancel(timer_);
  for (const Guest& guest : waiting_) guest.handler->unbind();
}

Acceptor LinkRouter::acceptor() {
  return [this, &loop = loop_, job = job_, patience = patience_, alive = alive_](
             const IncomingLink& hello,
             std::shared_ptr<Link> link) -> Result<std::shared_ptr<LinkHandler>> {
    if (hello.job != job) return not_found("this worker serves job " + job + ", not " + hello.job);
    auto handler = std::make_shared<LoopHandler>(loop);
    Guest guest{hello, std::move(link), handler, Clock::now() + patience};
    loop.post([this, alive, guest = std::move(guest)] {
      if (*alive) receive(guest);
    });
    return std::shared_ptr<LinkHandler>(std::make_shared<Caller>(loop, handler, [=, this] {
      if (*alive) gone(handler.get());
    }));
  };
}

void LinkRouter::receive(Guest guest) {
  if (Epoch* epoch = events_.find_epoch(guest.hello.epoch)) return lead_in(guest, *epoch);
  if (is_over(guest.hello)) {
    guest.handler->unbind();
    return guest.link->close(failed_precondition("epoch " + std::to_string(guest.hello.epoch) +
                                                 " of job " + job_ + " is over"));
  }
  if (waiting_.size() >= kWaitingMost) {
    guest.handler->unbind();
    return guest.link->close(resource_exhausted("too many links wait for epochs to come"));
  }
  waiting_.push_back(std::move(guest));
  if (timer_ == 0) timer_ = loop_.at(waiting_.back().until, [this] { turn_away_late(); });
}

bool LinkRouter::is_over(const IncomingLink& hello) const {
  const auto had = secrets_.find(hello.epoch);
  return had != secrets_.end() && hello.verify_secret(had->second);
}

void LinkRouter::gone(const LoopHandler* handler) {
  const auto guest = std::ranges::find_if(
      waiting_, [&](const Guest& each) { return each.handler.get() == handler; });
  if (guest == waiting_.end()) return;
  guest->handler->unbind();
  waiting_.erase(guest);
}

void LinkRouter::on_epoch_formed(uint32_t number) {
  if (const Epoch* epoch = events_.find_epoch(number)) secrets_[number] = epoch->roster().secret;
  if (secrets_.size() > kSecretsMost) secrets_.erase(secrets_.begin());
  std::list<Guest> waiting;
  waiting.swap(waiting_);
  for (Guest& guest : waiting) receive(std::move(guest));
}

void LinkRouter::lead_in(const Guest& guest, Epoch& epoch) {
  const std::string& secret = epoch.roster().secret;
  if (!secret.empty() && guest.hello.verify_secret(secret))
    return epoch.adopt(guest.hello.host, guest.link, guest.handler);
  guest.handler->unbind();
  guest.link->close(unauthenticated("the link does not know the job's secret"));
}

void LinkRouter::turn_away_late() {
  timer_ = 0;
  const TimePoint now = Clock::now();
  while (!waiting_.empty() && waiting_.front().until <= now) {
    waiting_.front().handler->unbind();
    waiting_.front().link->close(
        unauthenticated("this worker knows of no such epoch of job " + job_));
    waiting_.pop_front();
  }
  if (!waiting_.empty()) timer_ = loop_.at(waiting_.front().until, [this] { turn_away_late(); });
}

}  // namespace tutti
