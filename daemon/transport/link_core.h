// What every link between hosts is, whatever carries its bytes: the queue of borrowed frames, their
// numbers, the account of kept payloads, silence, and the link's beginning and end. A transport
// derives from it and adds the wire: a socket or a gRPC stream.
//
// The life of a link: waiting (for the handshake) -> open -> ending -> done. It ends once: by
// end(), where this side closes it or refuses a frame (the peer is told in a goodbye, or in the
// handshake's answer, and given a moment to hear it), or by lost(), where the wire failed or the
// peer said goodbye.
//
// Silence: each side sends a ping where it has sent nothing else for a quarter of silence_ms, and
// gives up a peer of which it has read nothing for more than three, unless the wire knows better.
//
// Threads: beginnings, ends and timers run on the hub's loop. Frames may come and go on any thread;
// what they share with the loop is guarded by mutex_, which is never held while a handler, an
// acceptor or a release runs. The loop may be gone once the link is done, so other threads post to
// it only through post() and post_locked().
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/base/loop.h"
#include "daemon/transport/frame_codec.h"
#include "daemon/transport/lending.h"
#include "daemon/transport/transport.h"
#include "proto/handshake.h"

namespace tutti {

// A loop and the thread that turns it.
class LoopThread {
 public:
  LoopThread() : thread_([this] { loop.run(); }) {}
  // What was posted before still runs. Not from its thread.
  ~LoopThread() {
    loop.stop();
    thread_.join();
  }
  Loop loop;

 private:
  std::thread thread_;
};

class LinkCore;
using LinkSet = std::set<std::shared_ptr<LinkCore>>;

// The part of a transport that its links hold on to. Any thread, but for park() and unpark().
class LinkHub {
 public:
  LinkHub(Loop& loop, const LinkLimits& limits)
      : loop(loop), limits(limits), lending(std::make_shared<Lending>()) {}

  // Keeps `link` alive until forget(). False once close_all() was called.
  bool keep(std::shared_ptr<LinkCore> link);
  void forget(const std::shared_ptr<LinkCore>& link);
  LinkSet links();
  void close_all(const Status& cause);
  // Until none is left; not from the loop.
  void wait_none();
  // On the loop: links whose diallers' proofs the acceptor has not checked yet. Where there are
  // more than half_open_max, the oldest ends.
  void park(std::shared_ptr<LinkCore> link);
  void unpark(const std::shared_ptr<LinkCore>& link) { parked_.remove(link); }

  Loop& loop;
  const LinkLimits limits;
  const std::shared_ptr<Lending> lending;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool closing_ = false;  // Guarded by mutex_, as is links_.
  LinkSet links_;
  std::list<std::shared_ptr<LinkCore>> parked_;  // Oldest first. The loop's.
};

class LinkCore : public Link, public std::enable_shared_from_this<LinkCore> {
 public:
  Status send(Outgoing frame) final;
  void close(Status cause) final;
  void abort(Status cause) final { lost(std::move(cause)); }
  // Closes with `mine` here and `theirs` at the peer. Any thread.
  void end(Status mine, Status theirs);

  // The rest is called on the loop.

  // A listener's: asks who takes the link, and welcomes the dialler once its proof, of what it
  // `said`, is known to be right; not for longer than connect_timeout_ms.
  void ask(const Acceptor& acceptor, const std::string& said, const LinkProof& shown);
  // Ends the link where the peer can no longer be told.
  void break_off(Status cause);
  // Says goodbye behind what is on its way; what is not begun is dropped.
  void wind_up();

  const std::string& peer() const { return peer_; }

 protected:
  enum class State { waiting, open, ending, done };
  using Queue = std::deque<std::unique_ptr<Borrow>>;

  LinkCore(std::shared_ptr<LinkHub> hub, std::string peer, std::shared_ptr<LinkHandler> handler);

  // ---- The wire ----

  // next_locked() has more, or said_all_locked() holds. Any thread, mutex_ held.
  virtual void wake_writer_locked() = 0;
  // Reading may begin, or go on after holds_back(). As above.
  virtual void wake_reader_locked() = 0;
  // Says so to a dialler, and opens.
  virtual void welcome(const std::string& answer) = 0;
  // Ends what was never open, telling a dialler why; then finished().
  virtual void refuse(const Status& why) = 0;
  // Lets go of the wire at once; then finished(). Idempotent.
  virtual void cut() = 0;
  // Whether the peer lives although nothing of it was received lately.
  virtual bool shows_life() const = 0;

  // ---- For the wire ----

  // Asks who takes the link. False: nobody, and the link ends.
  bool put_to(const Acceptor& acceptor, const IncomingLink& guest);
  // The link ends unless it is opened within connect_timeout_ms: "<peer> <what it did not do>".
  void expect_opening(const std::string& what);
  // The handshake is through: the peer may be silent for so long. False: the link is done.
  bool opened(int silence_ms);
  // Runs `task` on the loop, soon, unless the link is done. Any thread.
  void post(Loop::Task task);
  template <class Wire>
  void post_locked(void (Wire::*task)());
  // The next frame to write, sealed; null: none now.
  std::unique_ptr<Borrow> next_locked();
  // The goodbye was the last.
  bool said_all_locked() const { return winding_up_ && queue_.empty(); }
  // Something of the peer has come.
  void heard() { heard_ = true; }
  // A checked frame has come, its payload in memory that `owner` keeps.
  template <class Owner>
  void deliver(const FrameHeader& header, std::vector<std::span<const std::byte>> fragments,
               Owner owner);
  // Whether the handler keeps so much that nothing may be read before wake_reader_locked().
  bool holds_back();
  // Closes on a frame that is not sound.
  void refuse_frame(const Status& bad);
  // break_off(), soon, from any thread.
  void lost(Status cause);
  // The wire is gone. `cause` where nothing better is known.
  void finished(Status cause);

  State state();
  int silence_ms() const { return silence_ms_; }  // Of a listener's handshake.
  bool is_open() const { return opened_; }
  bool is_winding_up() const { return winding_up_; }
  // Null once done.
  LinkHandler* handler() const { return handler_.get(); }

  const std::shared_ptr<LinkHub> hub_;
  const std::string peer_;  // For messages: "host b at 10.0.0.2:7000".
  std::mutex mutex_;

 private:
  template <class Owner>
  struct Held;

  void queue_own_locked(FrameKind kind, const std::string& text);
  bool set_cause_locked(Status cause);
  std::shared_ptr<LinkHandler> receiver_of(const Frame& frame);
  void dropped(size_t bytes);
  void set_timer(Millis delay, void (LinkCore::*task)());
  void tick();
  void late();

  static constexpr size_t kKeepingBytes = 512;  // What a kept frame takes beside its payload.

  const std::shared_ptr<SendBudget> budget_;
  std::atomic<size_t> kept_bytes_ = 0;  // Of delivered payloads that the handler has not dropped.
  std::atomic<bool> paused_ = false;    // Nothing is read until some are.
  std::atomic<bool> heard_ = false;     // Since the last tick, as is spoke_.

  // Guarded by mutex_.
  State state_ = State::waiting;
  std::shared_ptr<LinkHandler> handler_;
  Queue queue_;
  FrameSealer sealer_;
  bool spoke_ = false;
  std::optional<Status> cause_;
  Status their_cause_;
  bool winding_up_ = false;

  // The loop's alone.
  bool opened_ = false;
  std::string not_done_;  // By the peer, so far.
  int silence_ms_ = 0;
  Millis tick_{0};  // A quarter of it.
  int quiet_ticks_ = 0;
  Loop::TimerId timer_ = 0;
};

template <class Wire>
void LinkCore::post_locked(void (Wire::*task)()) {
  if (state_ == State::done) return;
  hub_->loop.post([self = shared_from_this(), task] { (static_cast<Wire&>(*self).*task)(); });
}

// What keeps a delivered payload.
template <class Owner>
struct LinkCore::Held {
  Held(Owner from, std::weak_ptr<LinkCore> keeper, size_t cost)
      : owner(std::move(from)), link(std::move(keeper)), bytes(cost) {}
  ~Held() {
    owner.reset();
    if (const auto keeper = link.lock()) keeper->dropped(bytes);
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  std::optional<Owner> owner;
  const std::weak_ptr<LinkCore> link;
  const size_t bytes;
};

template <class Owner>
void LinkCore::deliver(const FrameHeader& header, std::vector<std::span<const std::byte>> fragments,
                       Owner owner) {
  Frame frame{header, {std::move(fragments), nullptr}};
  const std::shared_ptr<LinkHandler> handler = receiver_of(frame);
  if (handler == nullptr) return;
  const size_t bytes = kKeepingBytes + header.payload_bytes;
  kept_bytes_ += bytes;
  frame.payload.owner = std::make_shared<Held<Owner>>(std::move(owner), weak_from_this(), bytes);
  handler->on_frame(std::move(frame));
}

}  // namespace tutti
