// A TCP link, and the part of a transport that its links hold on to.
//
// All of it lives on the worker's loop: a frame is read, handed over, folded and its successor
// written by one thread, with no wake-up in between. Only send(), close() and the dropping of
// payloads may come from other threads; they leave a task on the loop.
//
// The life of a link: waiting (for its socket, see tcp_dial.h and tcp_listener.h) -> open -> ending
// -> done. It ends once, by end() (this side closes or refuses a frame: the peer is told in a
// goodbye and given a moment to hear it) or by break_off() (the socket failed, or the peer said
// goodbye).
//
// Silence: each side sends a ping where it has sent nothing else for a quarter of silence_ms, and
// gives up a peer of which it has read nothing for more than three. While this side holds its peer
// back it reads nothing and so does not judge; a host that vanishes then is noticed by the kernel's
// missing acknowledgements.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <set>

#include "daemon/base/loop.h"
#include "daemon/transport/frame_codec.h"
#include "daemon/transport/frame_reader.h"
#include "daemon/transport/lending.h"
#include "daemon/transport/mailbox.h"
#include "daemon/transport/slab_pool.h"
#include "daemon/transport/tcp_socket.h"
#include "daemon/transport/transport.h"

namespace tutti {

class TcpLink;

class TcpHub {
 public:
  TcpHub(Loop& loop, const LinkLimits& limits)
      : loop(loop),
        limits(limits),
        lending(std::make_shared<Lending>()),
        pool(std::make_shared<SlabPool>(limits.queue_bytes_max)) {}

  // Keeps `link` alive until forget(). False once close_all() was called.
  bool keep(std::shared_ptr<TcpLink> link);
  void forget(const std::shared_ptr<TcpLink>& link);
  // On the loop: closes every link.
  void close_all(const Status& cause);
  // Waits until the loop, on another thread, has ended them.
  void wait_none();
  // Ends them from the loop's own thread, which does nothing else meanwhile.
  void drive_to_end();

  Loop& loop;
  const LinkLimits limits;
  const std::shared_ptr<Lending> lending;
  const std::shared_ptr<SlabPool> pool;
  std::unique_ptr<Mailbox> resolver;  // Looks up hosts' names, once there is one. On the loop.

 private:
  std::set<std::shared_ptr<TcpLink>> links();

  std::mutex mutex_;
  std::condition_variable changed_;
  bool closing_ = false;  // Guarded by mutex_, as is links_.
  std::set<std::shared_ptr<TcpLink>> links_;
};

class TcpLink final : public Link, public std::enable_shared_from_this<TcpLink> {
 public:
  TcpLink(std::shared_ptr<TcpHub> hub, std::string peer, std::shared_ptr<LinkHandler> handler);

  Status send(Outgoing frame) override;
  void close(Status cause) override;
  // Closes with `mine` here and `theirs` at the peer. Any thread.
  void end(Status mine, Status theirs);

  // The rest is called on the loop.

  void set_handler(std::shared_ptr<LinkHandler> handler) { handler_ = std::move(handler); }
  // Whatever opens the link is told when the link ends before, with the cause for the peer. False:
  // it is done already.
  using GiveUp = std::function<void(const Status& theirs)>;
  bool set_opening(GiveUp give_up);
  void open(Fd socket, int silence_ms);
  void break_off(Status cause);
  void wind_up();
  void ready(uint32_t events);

  const std::string& peer() const { return peer_; }
  int descriptor() const { return socket_.get(); }

 private:
  static constexpr int kSilentTicks = 4;
  enum class State { waiting, open, ending, done };
  // One frame on its way out: a caller's, or the link's own.
  struct Parcel {
    std::span<const std::byte> bytes() const;
    size_t size() const { return sizeof(FrameHeader) + bytes().size(); }
    FrameHeader header;
    std::unique_ptr<Borrow> borrow;
    std::string text;
  };

  struct Held;

  State state();
  Status broken(const std::string& why) const;
  void flush_soon_locked();
  void flush();
  void write_some();
  ssize_t write_once();
  void cannot_write(int error);
  void written(size_t bytes);
  void add_own(FrameKind kind, std::string text);
  void read_soon();
  void read_some();
  bool fill();
  void discard_some();
  bool holds_back();
  void take(FrameReader::Whole whole);
  void dropped(size_t bytes);
  void tick();
  bool acknowledged_lately() const;
  void finish();

  const std::shared_ptr<TcpHub> hub_;
  const std::string peer_;  // For messages: "host b at 10.0.0.2:7000".
  const std::shared_ptr<SendBudget> budget_;
  std::atomic<size_t> kept_bytes_ = 0;  // Of delivered payloads that the handler has not dropped.
  std::atomic<bool> paused_ = false;    // Nothing is read until some are.

  std::mutex mutex_;
  // Guarded by mutex_.
  State state_ = State::waiting;
  std::deque<std::unique_ptr<Borrow>> queue_;
  bool flush_posted_ = false;
  std::optional<Status> cause_;
  Status their_cause_;

  // The loop's alone.
  Fd socket_;
  std::shared_ptr<LinkHandler> handler_;
  GiveUp give_up_;
  FrameSealer sealer_;
  std::deque<Parcel> writing_;
  size_t written_ = 0;    // Of writing_'s first.
  bool blocked_ = false;  // Until the socket takes more.
  bool winding_up_ = false;
  FrameReader reader_;
  bool empty_ = false;  // The socket, until it says otherwise.
  bool hung_up_ = false;
  bool read_posted_ = false;
  Millis tick_{0};
  Loop::TimerId timer_ = 0;
  bool heard_ = false;  // Since the last tick, as is spoke_.
  bool spoke_ = false;
  int quiet_ticks_ = 0;
};

}  // namespace tutti
