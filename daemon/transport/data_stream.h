// One of a link's data streams: a connection beside the link's first that carries payloads without
// headers, in the order in which their headers go by the first. A thread of the transport reads and
// writes it; it never looks at values.
//
// Its end is noticed at once, whether or not a payload is under way.
//
// Once close() has returned, the thread touches no memory of a payload.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "daemon/base/loop.h"
#include "daemon/transport/incoming_payload.h"
#include "daemon/transport/pending_frame.h"
#include "daemon/transport/transport.h"
#include "daemon/transport/wire.h"

namespace tutti {

class DataStream : public std::enable_shared_from_this<DataStream> {
 public:
  // Called by the stream's thread, without locks. None is called once close() has returned, but for
  // a call that is under way.
  struct Events {
    std::function<void()> moved;  // A payload was written or received as a whole.
    std::function<void(const std::string& why)> broke;  // At most once.
  };

  // `io` is the loop of the stream's thread.
  DataStream(Loop& io, Events events) : io_(io), events_(std::move(events)) {}

  // Any thread, each.

  // The stream begins with the next byte of `wire`. Ignored unless awaits_wire().
  void attach(std::unique_ptr<Wire> wire);
  bool awaits_wire();
  bool is_attached() const { return attached_; }
  // Queues a frame's payload; releases the frame when it is written.
  void write(std::unique_ptr<PendingFrame> frame);
  size_t unwritten() const { return unwritten_; }
  // The stream may be attached later. `payload` belongs to the stream's thread while not is_whole.
  struct Read {
    explicit Read(IncomingPayload payload) : payload(std::move(payload)) {}
    IncomingPayload payload;
    std::atomic<bool> is_whole = false;
  };
  void read(std::shared_ptr<Read> into);
  // Drops what is queued. May wait for one read or write. Idempotent.
  void close();
  // Whether bytes were received since the last call.
  bool take_received() { return received_.exchange(false); }
  // Whether the peer's host acknowledges nothing although bytes are under way. Returns true if that
  // was so for `ticks` calls in a row, which are `tick` apart. The link's thread.
  bool is_stuck(Millis tick, int ticks);
  ConnectionCounts counts();  // All 0 while it is not open. May wait for one read or write.

 private:
  void wake();
  void serve();
  void on_ready(uint32_t events);
  bool write_some();
  bool read_some();
  bool meet_end();
  ssize_t write_part(std::span<const std::byte> payload);
  template <class Item>
  Item first_of(const std::deque<Item>& queue);
  template <class Item>
  void pop(std::deque<Item>& queue);
  bool check(int error);

  Loop& io_;
  const Events events_;
  std::atomic<bool> attached_ = false;
  std::atomic<bool> woken_ = false;
  std::atomic<bool> received_ = false;
  std::atomic<size_t> unwritten_ = 0;

  std::mutex using_;            // Held while memory of payloads, or the wire, is used; taken first.
  bool closed_ = false;         // Guarded by using_.
  std::unique_ptr<Wire> wire_;  // Guarded by using_.

  std::mutex mutex_;
  std::deque<std::shared_ptr<PendingFrame>> writes_;  // Guarded by mutex_.
  std::deque<std::shared_ptr<Read>> reads_;           // Guarded by mutex_.

  int stuck_ticks_ = 0;  // The link's thread only.

  // The stream's thread only.
  size_t written_ = 0;  // Of the first frame's payload.
  bool write_blocked_ = false;
  bool hung_up_ = false;  // The peer sends no more, or the connection is gone.
  bool ended_ = false;
};

}  // namespace tutti
