// The common base of all links: the queue of frames to send, their sequence numbers, flow control
// of received payloads, detection of silent peers, and the link's states. A transport derives its
// link from it and adds the wire: a socket, a gRPC stream or an in-process queue.
//
// States: connecting (until the handshake is complete) -> open -> closing -> closed. A link closes
// once, in one of two ways. close_with(): this side closes it or rejects a frame; the peer learns
// in a goodbye frame, or in the handshake's answer, and has a moment to read it. fail(): the wire
// failed or the peer said goodbye.
//
// Silence: each side sends a ping in every eighth of silence_ms, unless frames wait to be sent. It
// fails the link if it has received nothing for more than seven eighths, unless peer_is_alive(),
// and closes it if is_stuck(). So a peer that stops is lost after six eighths at the earliest.
//
// Threads: state changes and timers run on the transport's loop. Frames may be sent and delivered
// on any thread; what these share with the loop is guarded by mutex_, which is never held while a
// handler, an acceptor or a `released` runs. The loop may be destroyed once the link is closed, so
// other threads post to it only through post() and post_locked().
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "daemon/base/loop.h"
#include "daemon/transport/frame_codec.h"
#include "daemon/transport/handshake.h"
#include "daemon/transport/pending_frame.h"
#include "daemon/transport/transport.h"
#include "daemon/transport/transport_core.h"

namespace tutti {

inline constexpr int kSilentTicksMax = 8;       // In silence_ms.
inline constexpr size_t kKeptFrameBytes = 512;  // Counted for each kept frame beside its payload.
// Before a dialler tries again whom the listener had no room for.
inline constexpr Millis kRedialPause{100};

class LinkCore : public Link, public std::enable_shared_from_this<LinkCore> {
 public:
  Status send(Outgoing frame) final;
  void close(Status cause) final;
  void abort(Status cause) final { post_fail(std::move(cause)); }
  // Closes with `own_cause` on this side and `peer_cause` on the other. Any thread.
  void close_with(Status own_cause, Status peer_cause);

  // All that follows is called on the loop unless stated otherwise.

  // The listening side: offers the link of a dialler at `address` to the acceptor, and calls
  // welcome() once its `proof` over `transcript` is verified; closes the link if that takes longer
  // than connect_timeout_ms.
  void offer_to(const Acceptor& acceptor, const std::string& transcript, const LinkProof& proof,
                const std::string& address);
  // The dialling side: the listener refuses for now. The dialler tries again after kRedialPause;
  // if the link never opens, its cause says why.
  void note_refusal(const Status& why) { refusal_ = ": " + why.message(); }
  // Closes the link without telling the peer.
  void fail(Status cause);
  // Drops the queue, and sends a goodbye behind the frame that is being sent. Idempotent.
  void shut_down();

 protected:
  enum class State { connecting, open, closing, closed };
  using Queue = std::deque<std::unique_ptr<PendingFrame>>;

  LinkCore(std::shared_ptr<TransportCore> transport, std::string peer,
           std::shared_ptr<LinkHandler> handler);

  // ---- What the wire implements ----

  // next_frame_locked() may have a frame, or all_sent_locked() holds. Any thread, mutex_ held.
  virtual void wake_writer_locked() = 0;
  // Reading may start, or continue after pause_reading_if_full(). Any thread, mutex_ held.
  virtual void wake_reader_locked() = 0;
  // Sends `answer` to the dialler and opens the link.
  virtual void welcome(const std::string& answer, const LinkTerms& terms) = 0;
  // Closes a link that was never open, telling a dialler why; then calls on_wire_closed().
  virtual void refuse(const Status& why) = 0;
  // Closes the wire at once, then calls on_wire_closed(). Idempotent.
  virtual void close_wire() = 0;
  // Whether the peer is known to be alive although nothing was received from it lately.
  virtual bool peer_is_alive() const = 0;
  // Whether bytes that were sent, beside those that pings follow, stay unanswered for silence_ms.
  // Called once a tick.
  virtual bool is_stuck() { return false; }

  // ---- What the wire calls ----

  // Asks the acceptor for a handler. Returns false if it refused, and closes the link.
  bool call_acceptor(const Acceptor& acceptor, const IncomingLink& incoming);
  // Closes the link with "<peer> <failure> within <connect_timeout_ms>" unless it opens in time.
  void start_open_timer(const std::string& failure);
  // The handshake is complete; `silence_ms` is what both sides agreed on. Returns false if the link
  // is closed.
  bool set_open(int silence_ms);
  // Runs `task` on the loop unless the link is closed. Any thread.
  void post(Loop::Task task);
  template <class Wire>
  void post_locked(void (Wire::*task)());
  // Returns the next frame to write, its header complete; null if there is none now.
  std::unique_ptr<PendingFrame> next_frame_locked();
  // Whether the goodbye was handed out by next_frame_locked().
  bool all_sent_locked() const { return shutting_down_ && queue_.empty(); }
  // Notes that the peer sent something. Any thread.
  void note_received() { received_since_tick_ = true; }
  // Hands a checked frame to the handler. Any thread, one frame at a time.
  void deliver(Frame frame);
  // Returns true if the handler keeps so many bytes that nothing may be read until
  // wake_reader_locked(). Any thread.
  bool pause_reading_if_full();
  // Closes the link because the peer sent a frame that is not valid. Any thread.
  void close_on_bad_frame(const Status& bad);
  // Calls fail() on the loop. Any thread.
  void post_fail(Status cause);
  // The wire is closed. `cause` is used if no other is known.
  void on_wire_closed(Status cause);

  State state();
  bool is_open() const { return opened_; }
  bool is_shutting_down() const { return shutting_down_; }
  // Null once closed.
  LinkHandler* handler() const { return handler_.get(); }

  const std::shared_ptr<TransportCore> transport_;
  const std::string peer_;  // For messages: "host b at 10.0.0.2:7000".
  std::mutex mutex_;

 private:
  void queue_internal_locked(FrameKind kind, const std::string& text);
  bool start_closing_locked(Status cause);
  std::shared_ptr<LinkHandler> receiver_of(const Frame& frame);
  void on_payload_dropped(size_t bytes);
  void set_timer(Millis delay, void (LinkCore::*task)());
  void on_open_timeout();
  void on_tick();

  const std::shared_ptr<SendBudget> budget_;
  std::atomic<size_t> kept_bytes_ = 0;  // Delivered payloads that the handler has not dropped.
  std::atomic<bool> paused_ = false;    // Reading waits for kept_bytes_ to fall.
  std::atomic<bool> received_since_tick_ = false;

  // Guarded by mutex_.
  State state_ = State::connecting;
  std::shared_ptr<LinkHandler> handler_;
  Queue queue_;
  FrameSequencer sequencer_;
  std::optional<Status> cause_;
  Status peer_cause_;  // What the goodbye says.
  bool shutting_down_ = false;

  // Loop thread only.
  bool opened_ = false;
  std::string open_failure_;
  std::string refusal_;  // The last one.
  int silence_ms_ = 0;
  Millis tick_{0};  // An eighth of silence_ms_.
  int silent_ticks_ = 0;
  Loop::TimerId timer_ = 0;
};

template <class Wire>
void LinkCore::post_locked(void (Wire::*task)()) {
  if (state_ == State::closed) return;
  transport_->loop.post([self = shared_from_this(), task] { (static_cast<Wire&>(*self).*task)(); });
}

}  // namespace tutti
