#include "daemon/transport/local_link.h"

#include <algorithm>
#include <cstring>

#include "daemon/transport/secrets.h"

namespace tutti {
namespace {

// A payload comes in pieces, as from a network, cut where no element ends.
constexpr size_t kFragmentBytes = 65'537;

Payload copy_payload(std::span<const std::byte> bytes) {
  auto copy = std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
  Payload payload;
  for (size_t at = 0; at < copy->size(); at += kFragmentBytes)
    payload.fragments.emplace_back(copy->data() + at, std::min(kFragmentBytes, copy->size() - at));
  payload.owner = std::move(copy);
  return payload;
}

}  // namespace

bool LocalNode::keep(const std::shared_ptr<LocalLink>& link, Mailbox::Task first) {
  std::lock_guard lock(mutex_);
  if (closing_) return false;
  links_.insert(link);
  mailbox.post(std::move(first));
  return true;
}

void LocalNode::forget(const std::shared_ptr<LocalLink>& link) {
  std::lock_guard lock(mutex_);
  links_.erase(link);
}

void LocalNode::close_all(const Status& cause) {
  std::set<std::shared_ptr<LocalLink>> links;
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
    links.swap(links_);
  }
  for (const auto& link : links) link->close(cause);
}

LocalLink::LocalLink(std::shared_ptr<LocalNode> node, std::shared_ptr<Joint> joint,
                     std::shared_ptr<LinkHandler> handler)
    : node_(std::move(node)),
      joint_(std::move(joint)),
      budget_(std::make_shared<SendBudget>(node_->limits.queue_bytes_max)),
      handler_(std::move(handler)),
      checker_(node_->limits.frame_bytes_max) {}

LocalLink::Ends LocalLink::make_pair(std::shared_ptr<LocalNode> dialler,
                                     std::shared_ptr<LocalNode> acceptor,
                                     std::shared_ptr<LinkHandler> handler) {
  auto joint = std::make_shared<Joint>();
  std::shared_ptr<LocalLink> near(new LocalLink(std::move(dialler), joint, std::move(handler)));
  std::shared_ptr<LocalLink> far(new LocalLink(std::move(acceptor), joint, nullptr));
  near->peer_ = far;
  far->peer_ = near;
  return {std::move(near), std::move(far)};
}

Status LocalLink::send(Outgoing frame) {
  Status allowed = check_outgoing(frame.header, frame.bytes.size(), node_->limits.frame_bytes_max);
  return allowed.ok() ? post_frame(frame, /*sealed=*/false) : allowed;
}

Status LocalLink::send_raw(Outgoing frame) { return post_frame(frame, /*sealed=*/true); }

Status LocalLink::post_frame(Outgoing& frame, bool sealed) {
  std::lock_guard lock(joint_->mutex);
  if (joint_->closed) return unavailable("the link is closed");
  std::shared_ptr<Borrow> borrow = Borrow::take(frame, budget_, node_->lending);
  if (!borrow) return resource_exhausted("the link's queue is full");
  if (!sealed) borrow->header = sealer_.seal(borrow->header, borrow->bytes().size());
  peer_->node_->mailbox.post(
      [peer = peer_, borrow = std::move(borrow)]() mutable { peer->arrive(std::move(borrow)); });
  return {};
}

void LocalLink::arrive(std::shared_ptr<Borrow> borrow) {
  arrived_.push_back(std::move(borrow));
  deliver_some();
}

void LocalLink::deliver_some() {
  while (!arrived_.empty() && kept_bytes_ <= node_->limits.queue_bytes_max) {
    const std::shared_ptr<Borrow> next = std::move(arrived_.front());
    arrived_.pop_front();
    if (handler_ && !refused_) deliver(*next);
  }
}

void LocalLink::deliver(const Borrow& borrow) {
  Status good = checker_.check(borrow.header, borrow.bytes().size());
  if (!good.ok()) {
    refused_ = true;
    end(good, unavailable(good.message()));
    return;
  }
  if (borrow.header.kind == FrameKind::ping) return;
  const size_t bytes = sizeof(FrameHeader) + borrow.bytes().size();
  kept_bytes_ += bytes;
  auto dropped = [weak = weak_from_this(), bytes] {
    const auto link = weak.lock();
    if (!link) return;
    link->node_->mailbox.post([link, bytes] {
      link->kept_bytes_ -= bytes;
      link->deliver_some();
    });
  };
  handler_->on_frame({borrow.header, counted(copy_payload(borrow.bytes()), std::move(dropped))});
}

void LocalLink::close(Status cause) {
  const Status theirs = unavailable("the peer closed the link: " + cause.message());
  end(cause, theirs);
}

void LocalLink::end(const Status& mine, const Status& theirs) {
  std::shared_ptr<LocalLink> peer;
  std::lock_guard lock(joint_->mutex);
  if (std::exchange(joint_->closed, true)) return;
  peer.swap(peer_);
  peer->peer_.reset();
  post_closed(mine);
  peer->post_closed(theirs);
}

void LocalLink::post_closed(const Status& cause) {
  node_->mailbox.post([self = shared_from_this(), cause] {
    self->arrived_.clear();
    if (auto handler = std::exchange(self->handler_, nullptr)) handler->on_closed(cause);
    self->node_->forget(self);
  });
}

void LocalLink::accept(const LinkHello& hello) {
  const LinkGuest guest{
      hello.job, hello.epoch, hello.host,
      [shown = hello.secret](const std::string& secret) { return same_secret(secret, shown); }};
  auto answer = node_->acceptor(guest, shared_from_this());
  if (!answer.ok()) {
    end(answer.status(), answer.status());
    return;
  }
  handler_ = *answer;
}

}  // namespace tutti
