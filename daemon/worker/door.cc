#include "daemon/worker/door.h"

#include <algorithm>

#include "daemon/mesh/mesh.h"

namespace tutti {

namespace {
constexpr size_t kWaitingMost = 256;
}

Door::Door(Loop& loop, std::string job, Millis patience, Events& events)
    : loop_(loop), job_(std::move(job)), patience_(patience), events_(events) {}

Door::~Door() {
  *alive_ = false;
  loop_.cancel(timer_);
  for (const Guest& guest : waiting_) guest.handler->unbind();
}

Acceptor Door::acceptor() {
  return [this, &loop = loop_, job = job_, patience = patience_, alive = alive_](
             const LinkGuest& hello,
             std::shared_ptr<Link> link) -> Result<std::shared_ptr<LinkHandler>> {
    if (hello.job != job) return not_found("this worker serves job " + job + ", not " + hello.job);
    auto handler = std::make_shared<LoopHandler>(loop);
    Guest guest{hello, std::move(link), handler, Clock::now() + patience};
    loop.post([this, alive, guest = std::move(guest)] {
      if (*alive) receive(guest);
    });
    return std::shared_ptr<LinkHandler>(handler);
  };
}

void Door::receive(Guest guest) {
  if (World* world = events_.find_world(guest.hello.epoch)) return lead_in(guest, *world);
  if (guest.hello.epoch <= newest_) {
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

void Door::opened(uint32_t epoch) {
  newest_ = std::max(newest_, epoch);
  std::list<Guest> waiting;
  waiting.swap(waiting_);
  for (Guest& guest : waiting) receive(std::move(guest));
}

void Door::lead_in(const Guest& guest, World& world) {
  const std::string& secret = world.roster().secret;
  if (!secret.empty() && guest.hello.knows(secret))
    return world.adopt(guest.hello.host, guest.link, guest.handler);
  guest.handler->unbind();
  guest.link->close(unauthenticated("the link does not know the job's secret"));
}

void Door::turn_away_late() {
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
