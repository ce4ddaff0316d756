#include "daemon/transport/local_link.h"

#include <algorithm>

#include "daemon/transport/handshake.h"

namespace tutti {
namespace {

// A payload comes in pieces, as from a network, cut where no element ends.
constexpr size_t kFragmentBytes = 65'537;
constexpr int kForeverMs = 3'600'000;

}  // namespace

LocalLink::LocalLink(std::shared_ptr<LinkHub> hub, std::string peer,
                     std::shared_ptr<LinkHandler> handler, std::shared_ptr<std::mutex> joint)
    : LinkCore(std::move(hub), std::move(peer), std::move(handler)),
      joint_(std::move(joint)),
      checker_(hub_->limits.frame_bytes_max) {}

std::shared_ptr<LocalLink> LocalLink::dial(const std::shared_ptr<LocalHub>& here,
                                           const std::shared_ptr<LocalHub>& there,
                                           const std::string& address, const LinkHello& hello,
                                           std::shared_ptr<LinkHandler> handler) {
  const auto joint = std::make_shared<std::mutex>();
  const std::shared_ptr<LocalLink> near(new LocalLink(here, address, std::move(handler), joint));
  require(here->keep(near), "a transport that ends dials nobody");
  const std::lock_guard lock(*joint);
  const std::shared_ptr<LocalLink> far(
      there ? new LocalLink(there, "host " + hello.host, nullptr, joint) : nullptr);
  if (!far || !there->keep(far)) {
    near->lost(unavailable("nobody listens at " + address));
    return near;
  }
  near->far_end_ = far;
  far->far_end_ = near;
  near->post([](LocalLink& self) { self.opened(kForeverMs); });
  far->post([there, hello](LocalLink& self) { self.accept(there->acceptor, hello); });
  return near;
}

void LocalLink::accept(const Acceptor& acceptor, const LinkHello& hello) {
  const auto knows = [shown = hello.secret](const std::string& secret) { return secret == shown; };
  if (put_to(acceptor, {hello.job, hello.epoch, hello.host, knows})) opened(kForeverMs);
}

void LocalLink::post(std::function<void(LocalLink& self)> task) {
  hub_->loop.post([self = std::static_pointer_cast<LocalLink>(shared_from_this()),
                   task = std::move(task)] { task(*self); });
}

void LocalLink::tell_peer(std::function<void(LocalLink& peer)> task) {
  const std::lock_guard lock(*joint_);
  if (far_end_) far_end_->post(std::move(task));
}

// ---- End ----

void LocalLink::refuse(const std::string& answer) {
  const auto head = from_bytes<LinkAnswerHead>(answer);
  const Status why(code_of(static_cast<int>(head.code)), answer.substr(sizeof(head)));
  tell_peer([why](LocalLink& peer) { peer.lost(why); });
  cut();
}

void LocalLink::cut() {
  const Status why = unavailable("the peer's end of the link is gone");
  tell_peer([why](LocalLink& peer) { peer.lost(why); });
  {
    const std::lock_guard lock(*joint_);
    far_end_.reset();
  }
  arrived_.clear();
  finished(why);
}

// ---- Frames ----

void LocalLink::wake_writer_locked() {
  if (!std::exchange(flush_posted_, true)) post([](LocalLink& self) { self.flush(); });
}

void LocalLink::flush() {
  Queue frames;
  bool last = false;
  {
    const std::lock_guard lock(mutex_);
    flush_posted_ = false;
    while (std::unique_ptr<Borrow> next = next_locked()) frames.push_back(std::move(next));
    last = said_all_locked();
  }
  for (std::unique_ptr<Borrow>& frame : frames)
    tell_peer([frame = std::shared_ptr(std::move(frame))](LocalLink& peer) {
      peer.arrived_.push_back(frame);
      peer.deliver_some();
    });
  if (last && state() != State::done) cut();
}

void LocalLink::send_raw(const FrameHeader& header, const std::string& payload) {
  const std::shared_ptr<Borrow> frame = Borrow::own(header.kind, payload, hub_->lending);
  frame->header = header;
  tell_peer([frame](LocalLink& peer) {
    peer.arrived_.push_back(frame);
    peer.deliver_some();
  });
}

void LocalLink::wake_reader() {
  post([](LocalLink& self) { self.deliver_some(); });
}

void LocalLink::deliver_some() {
  while (!arrived_.empty() && !holds_back()) {
    const std::shared_ptr<Borrow> next = std::move(arrived_.front());
    arrived_.pop_front();
    const Status good = checker_.check(next->header, next->bytes().size());
    if (!good.ok()) return refuse_frame(good);
    std::vector<std::byte> copy(next->bytes().begin(), next->bytes().end());
    std::vector<std::span<const std::byte>> fragments;
    for (size_t at = 0; at < copy.size(); at += kFragmentBytes)
      fragments.emplace_back(copy.data() + at, std::min(kFragmentBytes, copy.size() - at));
    deliver(next->header, std::move(fragments), std::move(copy));
  }
}

}  // namespace tutti
