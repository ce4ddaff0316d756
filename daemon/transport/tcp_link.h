// A link over a TCP socket. Without data streams everything runs on the worker's loop: one thread
// reads a frame, hands it over, folds it and writes its successor, without waking another. Only
// send(), close() and the dropping of payloads may come from other threads; they post a task to the
// loop.
//
// With data streams (LinkLimits::streams) the headers of large data frames go by that socket, too,
// and their payloads, from the second slice of an operation on, by the stream that has least to
// write. Frames are delivered in
// the order of their headers. Until a stream is open, and for small frames, the socket carries all.
// A stream that breaks breaks the link; one that cannot be opened is dialled again for as long as
// the link lives.
//
// While this side holds its peer back it reads nothing, so it cannot judge the peer by what it
// receives; a host that vanishes then is noticed by its kernel's missing acknowledgements.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "daemon/transport/buffer_pool.h"
#include "daemon/transport/data_stream.h"
#include "daemon/transport/frame_reader.h"
#include "daemon/transport/link_core.h"
#include "daemon/transport/loop_thread.h"
#include "daemon/transport/tcp_socket.h"
#include "daemon/transport/tls_identity.h"
#include "daemon/transport/wire.h"

namespace tutti {

class TcpLink;

class TcpTransportCore final : public TransportCore {
 public:
  TcpTransportCore(Loop& loop, const LinkLimits& limits)
      : TransportCore(loop, limits),
        pool(std::make_shared<BufferPool>(limits.queue_bytes_max)),
        tls(limits.tls ? std::make_unique<TlsIdentity>() : nullptr) {}
  // Blocks until no link is left, serving the links' sockets meanwhile. On the loop's thread, which
  // runs nothing else until this returns.
  void run_until_no_links();

  // The loop of the thread that serves the data streams of one number. Loop thread only.
  Loop& io(size_t stream);
  // The listener's link that takes this data stream; null: none. Loop thread only.
  std::shared_ptr<TcpLink> link_of(const LinkProof& token, size_t stream);

  const std::shared_ptr<BufferPool> pool;
  const std::unique_ptr<const TlsIdentity> tls;  // Null: all links are plain.
  // Both are made on first use, on the loop's thread.
  std::unique_ptr<LoopThread> resolver;  // Looks up host names.
  std::vector<std::unique_ptr<LoopThread>> io_threads;
};

// Loop thread only, except for what LinkCore allows on others.
class TcpLink final : public LinkCore {
 public:
  TcpLink(std::shared_ptr<TcpTransportCore> transport, std::string peer,
          std::shared_ptr<LinkHandler> handler);

  // For a dialler: open() must follow within connect_timeout_ms. `stop_dial` is called if the link
  // is closed before. Returns false if it is closed already.
  bool set_dial(std::function<void()> stop_dial);
  // For a listener: holds the wire until the dialler is accepted. No frame is read until then.
  // Returns false if its socket cannot be watched.
  bool await_acceptance(std::unique_ptr<Wire> wire);
  // The handshake is complete.
  void open(std::unique_ptr<Wire> wire, const LinkTerms& terms);
  // For a dialler: `stop_dial` is called if the link closes while a data stream is dialled.
  void on_dial(std::function<void()> stop_dial) { stop_dials_.push_back(std::move(stop_dial)); }
  // That data stream is open; ignored if the link has none such or is closed.
  void attach(size_t stream, std::unique_ptr<Wire> wire);
  void on_ready(uint32_t events);
  // For a listener: whether that data stream with this token is the link's, and not open yet.
  bool takes_stream(const LinkProof& token, size_t stream) const;
  std::vector<ConnectionCounts> connections() const override;
  int descriptor() const { return wire_ == nullptr ? -1 : wire_->descriptor(); }

 private:
  // A frame that is being written. Its payload is not here if it goes by a stream.
  struct Writing {
    FrameHeader header;
    std::unique_ptr<PendingFrame> frame;  // Null: the payload is not here.
    std::span<const std::byte> payload() const {
      return frame ? frame->bytes() : std::span<const std::byte>();
    }
    size_t size() const { return sizeof(header) + payload().size(); }
  };
  // A frame that waits for its payload, or for those before it.
  struct Arriving {
    Frame frame;
    std::shared_ptr<DataStream::Read> read;  // Null: it is whole.
  };

  void wake_writer_locked() override;
  void wake_reader_locked() override { post_locked(&TcpLink::read_some); }
  void welcome(const std::string& answer, const LinkTerms& terms) override;
  void refuse(const Status& why) override;
  void close_wire() override;
  bool peer_is_alive() const override;
  bool is_stuck() override;

  Status watch(uint32_t events);
  Status broken(const std::string& why) const;
  void flush();
  void write_some();
  bool refill();
  ssize_t write_once();
  void on_write_error(int error);
  void on_written(size_t bytes);
  void acknowledge_at_once() const;
  void post_read();
  void read_some();
  bool fill();
  void discard_some();

  DataStream::Events events_of(size_t stream);
  size_t least_loaded() const;
  Writing divert(std::unique_ptr<PendingFrame> next);
  Status take(Frame frame);
  std::optional<Frame> next_arrived();
  bool holds_enough() const;
  void post_moved();
  bool has_goodbye() const;
  void end_by_broken_stream();

  const std::shared_ptr<BufferPool> pool_;
  bool flush_posted_ = false;  // Guarded by mutex_.
  // Loop thread only.
  std::unique_ptr<Wire> wire_;  // Null until it is known, and once it is closed.
  std::function<void()> stop_dial_;
  std::deque<Writing> writing_;
  size_t unwritten_ = 0;        // Bytes of writing_ that the wire has not taken.
  size_t written_ = 0;          // Bytes of writing_'s first frame that it has taken.
  bool write_blocked_ = false;  // Until the socket is writable.
  FrameReader reader_;
  bool drained_ = false;  // The wire has no more to read until its socket is readable again.
  bool hung_up_ = false;
  bool reading_paused_ = false;  // Until the handler drops payloads.
  bool read_posted_ = false;

  std::atomic<bool> moved_posted_ = false;
  // Loop thread only.
  Millis silence_{0};
  std::optional<LinkProof> token_;  // Of a listener.
  std::vector<std::shared_ptr<DataStream>> streams_;
  std::vector<std::function<void()>> stop_dials_;  // Of streams.
  std::deque<Arriving> arriving_;  // In the order of their headers; the first is not whole.
  size_t arriving_bytes_ = 0;
  std::string broken_stream_;  // Why a stream broke; empty: none did.
};

// Dials `endpoint` (endpoint.h) for `link`, from the lookup of its name to its open socket. Loop
// thread only.
void dial_tcp(std::shared_ptr<TcpTransportCore> transport, std::shared_ptr<TcpLink> link,
              const std::string& endpoint, const LinkHello& hello);

}  // namespace tutti
