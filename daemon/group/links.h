// One epoch's links to the workers of the other hosts. Loop thread only.
//
// Every follower dials the leader at once and exchanges control frames with it over that link, so
// the leader notices the death of a worker, and all workers that of the leader. Data frames use
// links of their own, one per direction, dialled at the first frame.
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

// Forwards a link's events to the loop thread. Events before bind() are kept until then.
class LoopHandler final : public LinkHandler, public std::enable_shared_from_this<LoopHandler> {
 public:
  explicit LoopHandler(Loop& loop) : loop_(loop) {}
  void on_frame(Frame frame) override;
  void on_closed(Status cause) override;
  std::shared_ptr<RecvBuffer> recv_buffer_for(const FrameHeader& header) override;

  using OnFrame = std::function<void(Frame)>;
  using OnClosed = std::function<void(Status)>;
  using FindRecvBuffer = std::function<std::shared_ptr<RecvBuffer>(const FrameHeader&)>;
  void bind(OnFrame frame, OnClosed closed, FindRecvBuffer find = nullptr);  // Loop thread.
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
  FindRecvBuffer find_recv_buffer_;
};

// What was sent to another host, and what the kernel has counted of the connections to it.
struct LinkCounts {
  std::string host;
  uint64_t frames = 0;                        // Of data.
  std::vector<ConnectionCounts> connections;  // Of the link that carries data; empty: none is open.
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
  // A follower dials the leader. Once, before anything is sent.
  void start();

  Status send_data(int host, Outgoing frame);
  // To or from the leader. At the leader frames are queued until the follower has dialled.
  void send_control(int host, Outgoing frame);
  // Aborts all links, so that they release what they have borrowed.
  void abort(const Status& cause);
  // Takes over a link that another host dialled and that has shown this epoch's secret.
  void add_link(int host, std::shared_ptr<Link> link, std::shared_ptr<LoopHandler> handler);

  uint64_t sent_bytes() const { return sent_bytes_; }    // Of data frames.
  uint64_t sent_frames() const { return sent_frames_; }  // Data and control.
  std::vector<LinkCounts> counts() const;                // Of all other hosts.

 private:
  struct Open {
    int host;
    std::shared_ptr<Link> link;
    std::shared_ptr<LoopHandler> handler;
  };

  std::shared_ptr<Link> dial(int host);
  void attach(int host, std::shared_ptr<Link> link, const std::shared_ptr<LoopHandler>& handler);

  Loop& loop_;
  Transport& transport_;
  const Roster& roster_;
  const std::vector<Host>& hosts_;
  const int self_;
  Events& events_;
  std::vector<Open> open_;
  std::vector<std::shared_ptr<Link>> data_;     // By host; null until needed.
  std::vector<uint64_t> data_frames_;           // By host.
  std::vector<std::shared_ptr<Link>> control_;  // By host; a follower has one, with the leader.
  std::vector<std::vector<Outgoing>> queued_control_;  // By host: until the follower has dialled.
  uint64_t sent_bytes_ = 0;
  uint64_t sent_frames_ = 0;
};

}  // namespace tutti
