#include "daemon/transport/local_link.h"

#include <algorithm>
#include <iterator>

namespace tutti {
namespace {

// Payloads are delivered in fragments that split elements, so that tests cover such payloads.
constexpr size_t kFragmentBytes = 65'537;
constexpr int kNoSilenceLimitMs = 3'600'000;

}  // namespace

LocalLink::LocalLink(std::shared_ptr<TransportCore> transport, std::string peer,
                     std::shared_ptr<LinkHandler> handler, std::shared_ptr<std::mutex> pair_mutex)
    : LinkCore(std::move(transport), std::move(peer), std::move(handler)),
      checker_(transport_->limits.frame_bytes_max),
      pair_mutex_(std::move(pair_mutex)) {}

// ---- Beginning and end ----

std::shared_ptr<LocalLink> LocalLink::dial(const std::shared_ptr<TransportCore>& here,
                                           const LocalListener& there, const std::string& address,
                                           const LinkHello& hello,
                                           std::shared_ptr<LinkHandler> handler) {
  const auto pair_mutex = std::make_shared<std::mutex>();
  const std::shared_ptr<LocalLink> near(
      new LocalLink(here, address, std::move(handler), pair_mutex));
  const std::shared_ptr<LocalLink> far(
      there.transport ? new LocalLink(there.transport, "host " + hello.host, nullptr, pair_mutex)
                      : nullptr);
  const std::lock_guard lock(*pair_mutex);
  require(here->add(near), "a transport that ends dials nobody");
  if (!far || !there.transport->add(far)) {
    near->post_fail(unavailable("nobody listens at " + address));
    return near;
  }
  near->peer_link_ = far;
  far->peer_link_ = near;
  near->post([near] { (void)near->set_open(kNoSilenceLimitMs); });
  far->post([far, acceptor = there.acceptor, hello] { far->accept(acceptor, hello); });
  return near;
}

void LocalLink::accept(const Acceptor& acceptor, const LinkHello& hello) {
  const auto knows = [shown = hello.secret](const std::string& secret) { return secret == shown; };
  if (call_acceptor(acceptor, {hello.job, hello.epoch, hello.host, hello.host, knows}))
    (void)set_open(kNoSilenceLimitMs);
}

void LocalLink::disconnect(const Status& why) {
  Queue unread[2];
  {
    const std::lock_guard lock(*pair_mutex_);
    unread[0].swap(arrived_);
    if (const auto far = std::exchange(peer_link_, nullptr)) {
      unread[1].swap(far->arrived_);
      far->peer_link_ = nullptr;
      far->post_fail(why);
    }
  }
  for (Queue& frames : unread) frames.clear();
  on_wire_closed(why);
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
    while (std::unique_ptr<PendingFrame> next = next_frame_locked())
      frames.push_back(std::move(next));
  }
  write(std::move(frames));
}

// Where the peer's end is gone the frames are released: by the caller, without the lock.
void LocalLink::write(Queue frames) {
  const std::lock_guard lock(*pair_mutex_);
  if (!peer_link_) return;
  std::ranges::move(frames, std::back_inserter(peer_link_->arrived_));
  peer_link_->post([far = peer_link_] { far->read_some(); });
}

void LocalLink::send_raw(const FrameHeader& header, const std::string& payload) {
  Queue frames;
  frames.push_back(PendingFrame::make_internal(header.kind, payload, transport_->pending_frames));
  frames.back()->header = header;
  write(std::move(frames));
}

std::unique_ptr<PendingFrame> LocalLink::read_one() {
  const std::lock_guard lock(*pair_mutex_);
  if (arrived_.empty()) return nullptr;
  std::unique_ptr<PendingFrame> next = std::move(arrived_.front());
  arrived_.pop_front();
  return next;
}

void LocalLink::read_some() {
  while (is_open() && !pause_reading_if_full()) {
    std::unique_ptr<PendingFrame> next = read_one();
    if (!next) return;
    const FrameHeader header = next->header;
    const auto copy =
        std::make_shared<std::vector<std::byte>>(next->bytes().begin(), next->bytes().end());
    next.reset();
    if (const Status good = checker_.check(header, copy->size()); !good.ok())
      return close_on_bad_frame(good);
    std::vector<std::span<const std::byte>> fragments;
    for (size_t at = 0; at < copy->size(); at += kFragmentBytes)
      fragments.emplace_back(copy->data() + at, std::min(kFragmentBytes, copy->size() - at));
    deliver({header, {std::move(fragments), copy}});
  }
}

}  // namespace tutti
