// One epoch's links to the workers of the other hosts. Loop thread only.
//
// Every member dials the leader at once and speaks control with it both ways over that link, so a
// worker's death is seen by the leader, and the leader's by all. Data flows over links dialled at
// the first frame, one way each.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/loop.h"
#include "daemon/base/roster.h"
#include "daemon/group/communicator.h"
#include "daemon/transport/transport.h"

namespace tutti {

// Brings a link's events to the loop, where they do not come on its thread already. Until bind()
// they wait.
class LoopHandler final : public LinkHandler, public std::enable_shared_from_this<LoopHandler> {
 public:
  explicit LoopHandler(Loop& loop) : loop_(loop) {}
  void on_frame(Frame frame) override;
  void on_closed(Status cause) override;
  std::shared_ptr<RecvBuffer> recv_buffer_for(const FrameHeader& header) override;

  using OnFrame = std::function<void(Frame)>;
  using OnClosed = std::function<void(Status)>;
  using Place = std::function<std::shared_ptr<RecvBuffer>(const FrameHeader&)>;
  void bind(OnFrame frame, OnClosed closed, Place place = nullptr);  // Loop thread.
  void unbind();  // Loop thread; later events are dropped.

 private:
  void take(Frame frame);
  void end(Status cause);

  Loop& loop_;
  bool bound_ = false;
  bool dropped_ = false;
  std::deque<Frame> early_;
  std::optional<Status> early_end_;
  OnFrame frame_;
  OnClosed closed_;
  Place place_;
};

class Links {
 public:
  class Events {
   public:
    virtual ~Events() = default;
    virtual void on_frame(int host, Frame frame) = 0;
    virtual void on_lost(int host, Status cause) = 0;
    // As LinkHandler's.
    virtual std::shared_ptr<RecvBuffer> recv_buffer_for(int host, const FrameHeader& header) = 0;
  };

  Links(Loop& loop, Transport& transport, const Roster& roster, const std::vector<Host>& hosts,
        int self, Events& events);
  ~Links();

  Status send_data(int host, Outgoing frame);
  // Control goes over the link with the leader; at the leader it waits for a member's first dial.
  void send_control(int host, Outgoing frame);
  // Ends all links: what they have borrowed is released.
  void cut(const Status& cause);
  // A link that another host dialled, already proven to belong to this epoch.
  void adopt(int host, std::shared_ptr<Link> link, std::shared_ptr<LoopHandler> handler);

  uint64_t sent_bytes() const { return sent_bytes_; }    // Of data.
  uint64_t sent_frames() const { return sent_frames_; }  // Of data and control.

 private:
  struct Open {
    int host;
    std::shared_ptr<Link> link;
    std::shared_ptr<LoopHandler> handler;
  };

  std::shared_ptr<Link> dial(int host);
  void keep(int host, std::shared_ptr<Link> link, const std::shared_ptr<LoopHandler>& handler);

  Loop& loop_;
  Transport& transport_;
  const Roster& roster_;
  const std::vector<Host>& hosts_;
  const int self_;
  Events& events_;
  std::vector<Open> open_;
  std::vector<std::shared_ptr<Link>> data_;       // By host; null until needed.
  std::vector<std::shared_ptr<Link>> control_;    // By host; a member has one, with the leader.
  std::vector<std::vector<Outgoing>> undialled_;  // By host: control for members yet to dial.
  uint64_t sent_bytes_ = 0;
  uint64_t sent_frames_ = 0;
};

}  // namespace tutti
