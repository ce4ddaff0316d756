// A link over a TCP socket. Everything runs on the worker's loop: one thread reads a frame, hands
// it over, folds it and writes its successor, without waking another. Only send(), close() and the
// dropping of payloads may come from other threads; they post a task to the loop.
//
// While this side holds its peer back it reads nothing, so it cannot judge the peer by what it
// receives; a host that vanishes then is noticed by its kernel's missing acknowledgements.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "daemon/transport/buffer_pool.h"
#include "daemon/transport/frame_reader.h"
#include "daemon/transport/link_core.h"
#include "daemon/transport/loop_thread.h"
#include "daemon/transport/tcp_socket.h"
#include "daemon/transport/tls_identity.h"
#include "daemon/transport/wire.h"

namespace tutti {

class TcpTransportCore final : public TransportCore {
 public:
  TcpTransportCore(Loop& loop, const LinkLimits& limits)
      : TransportCore(loop, limits),
        pool(std::make_shared<BufferPool>(limits.queue_bytes_max)),
        tls(limits.tls ? std::make_unique<TlsIdentity>() : nullptr) {}
  // Blocks until no link is left, serving the links' sockets meanwhile. On the loop's thread, which
  // runs nothing else until this returns.
  void run_until_no_links();

  const std::shared_ptr<BufferPool> pool;
  const std::unique_ptr<const TlsIdentity> tls;  // Null: all links are plain.
  std::unique_ptr<LoopThread>
      resolver;  // Looks up host names; made on first use. Loop thread only.
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
  void open(std::unique_ptr<Wire> wire, int silence_ms);
  void on_ready(uint32_t events);
  int descriptor() const { return wire_ == nullptr ? -1 : wire_->descriptor(); }

 private:
  void wake_writer_locked() override;
  void wake_reader_locked() override { post_locked(&TcpLink::read_some); }
  void welcome(const std::string& answer) override;
  void refuse(const Status& why) override;
  void close_wire() override;
  bool peer_is_alive() const override;

  Status watch(uint32_t events);
  Status broken(const std::string& why) const;
  void flush();
  void write_some();
  bool refill();
  ssize_t write_once();
  void on_write_error(int error);
  void on_written(size_t bytes);
  void post_read();
  void read_some();
  bool fill();
  void discard_some();

  const std::shared_ptr<BufferPool> pool_;
  bool flush_posted_ = false;  // Guarded by mutex_.
  // Loop thread only.
  std::unique_ptr<Wire> wire_;  // Null until it is known, and once it is closed.
  std::function<void()> stop_dial_;
  std::deque<std::unique_ptr<PendingFrame>> writing_;
  size_t unwritten_ = 0;        // Bytes of writing_ that the wire has not taken.
  size_t written_ = 0;          // Bytes of writing_'s first frame that it has taken.
  bool write_blocked_ = false;  // Until the socket is writable.
  FrameReader reader_;
  bool drained_ = false;  // The wire has no more to read until its socket is readable again.
  bool hung_up_ = false;
  bool reading_paused_ = false;  // Until the handler drops payloads.
  bool read_posted_ = false;
};

// Dials `endpoint` (endpoint.h) for `link`, from the lookup of its name to its open socket. Loop
// thread only.
void dial_tcp(std::shared_ptr<TcpTransportCore> transport, std::shared_ptr<TcpLink> link,
              const std::string& endpoint, const LinkHello& hello);

}  // namespace tutti
