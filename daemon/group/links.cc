#include "daemon/group/links.h"

#include <string_view>

namespace tutti {
namespace {

constexpr std::string_view kEndedEpoch = " has ended this epoch";

// By its message: the transport gives both ends of a link one cause.
bool is_orderly(const Status& cause) { return cause.message().ends_with(kEndedEpoch); }

}  // namespace

void LoopHandler::on_frame(Frame frame) {
  if (loop_.in_loop_thread()) return take(std::move(frame));
  loop_.post([self = shared_from_this(), frame = std::move(frame)]() mutable {
    self->take(std::move(frame));
  });
}

void LoopHandler::on_closed(Status cause) {
  if (loop_.in_loop_thread()) return end(std::move(cause));
  loop_.post([self = shared_from_this(), cause = std::move(cause)]() mutable {
    self->end(std::move(cause));
  });
}

void LoopHandler::take(Frame frame) {
  if (dropped_) return;
  bound_ ? frame_(std::move(frame)) : early_.push_back(std::move(frame));
}

void LoopHandler::end(Status cause) {
  if (dropped_) return;
  bound_ ? closed_(std::move(cause)) : void(early_end_ = std::move(cause));
}

std::shared_ptr<RecvBuffer> LoopHandler::recv_buffer_for(const FrameHeader& header) {
  return bound_ && !dropped_ && find_recv_buffer_ ? find_recv_buffer_(header) : nullptr;
}

void LoopHandler::bind(OnFrame frame, OnClosed closed, FindRecvBuffer find) {
  find_recv_buffer_ = std::move(find);
  frame_ = std::move(frame);
  closed_ = std::move(closed);
  bound_ = true;
  while (!early_.empty() && !dropped_) {
    Frame first = std::move(early_.front());
    early_.pop_front();
    frame_(std::move(first));
  }
  if (early_end_ && !dropped_) closed_(*early_end_);
}

void LoopHandler::unbind() {
  dropped_ = true;
  early_.clear();
}

Links::Links(Loop& loop, Transport& transport, const Roster& roster, const std::vector<Host>& hosts,
             int self, Events& events)
    : loop_(loop),
      transport_(transport),
      roster_(roster),
      hosts_(hosts),
      self_(self),
      events_(events),
      data_(hosts.size()),
      data_frames_(hosts.size()),
      control_(hosts.size()),
      queued_control_(hosts.size()) {}

Links::~Links() {
  for (const Open& open : open_) {
    open.handler->unbind();
    open.link->close(Status(Code::cancelled,
                            "the worker of host " + hosts_[self_].name + std::string(kEndedEpoch)));
  }
}

void Links::abort(const Status& cause) {
  const std::vector<Open> open = open_;  // A copy: events may change it.
  for (const Open& each : open) each.link->abort(cause);
}

void Links::start() {
  if (self_ != 0) control_[0] = dial(0);
}

std::shared_ptr<Link> Links::dial(int host) {
  auto handler = std::make_shared<LoopHandler>(loop_);
  const LinkHello hello{roster_.job, roster_.epoch, hosts_[self_].name, roster_.secret};
  std::shared_ptr<Link> link = transport_.connect(hosts_[host].address, hello, handler);
  attach(host, link, handler);
  return link;
}

void Links::add_link(int host, std::shared_ptr<Link> link, std::shared_ptr<LoopHandler> handler) {
  const bool first = self_ == 0 && control_[host] == nullptr;  // A follower dials control first.
  if (first) control_[host] = link;
  attach(host, std::move(link), handler);
  if (!first) return;
  for (Outgoing& frame : std::exchange(queued_control_[host], {}))
    send_control(host, std::move(frame));
}

// A worker that ends its epoch in order closes all of its links. Those that carry control say
// before that which of its ranks have left; others may be seen to close first, and tell nothing.
void Links::attach(int host, std::shared_ptr<Link> link,
                   const std::shared_ptr<LoopHandler>& handler) {
  open_.push_back({host, std::move(link), handler});
  handler->bind(
      [this, host](Frame frame) { events_.on_frame(host, std::move(frame)); },
      [this, host, closed = open_.back().link.get()](Status cause) {
        if (is_orderly(cause) && closed != control_[host].get()) return;
        events_.on_lost(host, std::move(cause));
      },
      [this, host](const FrameHeader& header) { return events_.recv_buffer_for(host, header); });
}

std::vector<LinkCounts> Links::counts() const {
  std::vector<LinkCounts> all;
  for (size_t host = 0; host < hosts_.size(); ++host) {
    if (host == static_cast<size_t>(self_)) continue;
    all.push_back({.host = hosts_[host].name, .frames = data_frames_[host]});
    if (data_[host] != nullptr) all.back().connections = data_[host]->connections();
  }
  return all;
}

Status Links::send_data(int host, Outgoing frame) {
  if (data_[host] == nullptr) data_[host] = dial(host);
  const uint64_t bytes = frame.bytes.size() + sizeof(FrameHeader);
  Status status = data_[host]->send(std::move(frame));
  if (!status.ok()) return status;
  sent_bytes_ += bytes;
  ++sent_frames_;
  ++data_frames_[host];
  return status;
}

// A full or broken control link means a peer that has stopped reading: it is closed, and on_lost()
// reports it.
void Links::send_control(int host, Outgoing frame) {
  if (control_[host] == nullptr) return queued_control_[host].push_back(std::move(frame));
  ++sent_frames_;
  if (Status status = control_[host]->send(std::move(frame)); !status.ok())
    control_[host]->close(std::move(status));
}

}  // namespace tutti
