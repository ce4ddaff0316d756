#include "daemon/transport/local_link.h"

#include <algorithm>
#include <iterator>

namespace tutti {
namespace {

// A payload comes in pieces, as from a network, cut where no element ends.
constexpr size_t kFragmentBytes = 65'537;
constexpr int kForeverMs = 3'600'000;

}  // namespace

LocalLink::LocalLink(std::shared_ptr<LinkHub> hub, std::string peer,
                     std::shared_ptr<LinkHandler> handler, std::shared_ptr<std::mutex> joint)
    : LinkCore(std::move(hub), std::move(peer), std::move(handler)),
      checker_(hub_->limits.frame_bytes_max),
      joint_(std::move(joint)) {}

// ---- Beginning and end ----

std::shared_ptr<LocalLink> LocalLink::dial(const std::shared_ptr<LinkHub>& here,
                                           const LocalListener& there, const std::string& address,
                                           const LinkHello& hello,
                                           std::shared_ptr<LinkHandler> handler) {
  const auto joint = std::make_shared<std::mutex>();
  const std::shared_ptr<LocalLink> near(new LocalLink(here, address, std::move(handler), joint));
  const std::shared_ptr<LocalLink> far(
      there.hub ? new LocalLink(there.hub, "host " + hello.host, nullptr, joint) : nullptr);
  const std::lock_guard lock(*joint);
  require(here->keep(near), "a transport that ends dials nobody");
  if (!far || !there.hub->keep(far)) {
    near->lost(unavailable("nobody listens at " + address));
    return near;
  }
  near->far_end_ = far;
  far->far_end_ = near;
  near->post([near] { (void)near->opened(kForeverMs); });
  far->post([far, acceptor = there.acceptor, hello] { far->accept(acceptor, hello); });
  return near;
}

void LocalLink::accept(const Acceptor& acceptor, const LinkHello& hello) {
  const auto knows = [shown = hello.secret](const std::string& secret) { return secret == shown; };
  if (put_to(acceptor, {hello.job, hello.epoch, hello.host, knows})) (void)opened(kForeverMs);
}

void LocalLink::part(const Status& why) {
  Queue unread[2];
  {
    const std::lock_guard lock(*joint_);
    unread[0].swap(arrived_);
    if (const auto far = std::exchange(far_end_, nullptr)) {
      unread[1].swap(far->arrived_);
      far->far_end_ = nullptr;
      far->lost(why);
    }
  }
  for (Queue& frames : unread) frames.clear();
  finished(why);
}

// ---- Frames ----

void LocalLink::wake_writer_locked() {
  if (!std::exchange(flush_posted_, true)) post_locked(&LocalLink::flush);
}

void LocalLink::flush() {
  Queue frames;
  {
    const std::lock_guard lock(mutex_);
    flush_posted_ = false;
    while (std::unique_ptr<Borrow> next = next_locked()) frames.push_back(std::move(next));
  }
  write(std::move(frames));
}

// Where the peer's end is gone the frames are released: by the caller, without the lock.
void LocalLink::write(Queue frames) {
  const std::lock_guard lock(*joint_);
  if (!far_end_) return;
  std::ranges::move(frames, std::back_inserter(far_end_->arrived_));
  far_end_->post([far = far_end_] { far->read_some(); });
}

void LocalLink::send_raw(const FrameHeader& header, const std::string& payload) {
  Queue frames;
  frames.push_back(Borrow::own(header.kind, payload, hub_->lending));
  frames.back()->header = header;
  write(std::move(frames));
}

std::unique_ptr<Borrow> LocalLink::read_one() {
  const std::lock_guard lock(*joint_);
  if (arrived_.empty()) return nullptr;
  std::unique_ptr<Borrow> next = std::move(arrived_.front());
  arrived_.pop_front();
  return next;
}

void LocalLink::read_some() {
  while (is_open() && !holds_back()) {
    std::unique_ptr<Borrow> next = read_one();
    if (!next) return;
    const FrameHeader header = next->header;
    std::vector<std::byte> copy(next->bytes().begin(), next->bytes().end());
    next.reset();
    if (const Status good = checker_.check(header, copy.size()); !good.ok())
      return refuse_frame(good);
    std::vector<std::span<const std::byte>> fragments;
    for (size_t at = 0; at < copy.size(); at += kFragmentBytes)
      fragments.emplace_back(copy.data() + at, std::min(kFragmentBytes, copy.size() - at));
    deliver(header, std::move(fragments), std::move(copy));
  }
}

}  // namespace tutti
