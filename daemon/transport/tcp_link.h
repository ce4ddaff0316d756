// The wire of a TCP link: its socket. All of it lives on the worker's loop: a frame is read, handed
// over, folded and its successor written by one thread, with no wake-up in between. Only send(),
// close() and the dropping of payloads may come from other threads; they leave a task on the loop.
//
// While this side holds its peer back it reads nothing and so does not judge its silence; a host
// that vanishes then is noticed by the kernel's missing acknowledgements.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "daemon/transport/frame_reader.h"
#include "daemon/transport/link_core.h"
#include "daemon/transport/slab_pool.h"
#include "daemon/transport/tcp_socket.h"

namespace tutti {

class TcpHub final : public LinkHub {
 public:
  TcpHub(Loop& loop, const LinkLimits& limits)
      : LinkHub(loop, limits), pool(std::make_shared<SlabPool>(limits.queue_bytes_max)) {}
  // Ends the links from the loop's own thread, which does nothing else meanwhile.
  void drive_to_end();

  const std::shared_ptr<SlabPool> pool;
  std::unique_ptr<LoopThread> resolver;  // Looks up hosts' names, once there is one. On the loop.
};

class TcpLink final : public LinkCore {
 public:
  TcpLink(std::shared_ptr<TcpHub> hub, std::string peer, std::shared_ptr<LinkHandler> handler);

  // On the loop.

  // A dialler's: within connect_timeout_ms something calls open(). It is told to stop where the
  // link ends before. False: the link is done already.
  bool begin_dial(std::function<void()> give_up);
  // A listener's: nothing is read before the dialler is let in. False: it cannot be waited for.
  bool wait_with(Fd socket);
  // The handshake is through.
  void open(Fd socket, int silence_ms);
  void ready(uint32_t events);
  int descriptor() const { return socket_.get(); }

 private:
  void wake_writer_locked() override;
  void wake_reader_locked() override { post_locked(&TcpLink::read_some); }
  void welcome(const std::string& answer) override;
  void refuse(const Status& why) override;
  void cut() override;
  bool shows_life() const override;

  Status watch(uint32_t events);
  Status broken(const std::string& why) const;
  void flush();
  void write_some();
  bool refill();
  ssize_t write_once();
  void cannot_write(int error);
  void written(size_t bytes);
  void read_soon();
  void read_some();
  bool fill();
  void discard_some();
  void take(FrameReader::Whole whole);

  const std::shared_ptr<SlabPool> pool_;
  bool flush_posted_ = false;  // Guarded by mutex_.
  // The loop's alone.
  Fd socket_;
  std::function<void()> give_up_;
  std::deque<std::unique_ptr<Borrow>> writing_;
  size_t unwritten_ = 0;  // Bytes of writing_, less written_.
  size_t written_ = 0;    // Of writing_'s first.
  bool blocked_ = false;  // Until the socket takes more.
  FrameReader reader_;
  bool empty_ = false;  // The socket, until it says otherwise.
  bool hung_up_ = false;
  bool holding_ = false;  // Nothing is read until the handler drops some.
  bool read_posted_ = false;
};

// The dialling end of a TCP link, from its address to its open socket. On the loop.
void dial_tcp(std::shared_ptr<TcpHub> hub, std::shared_ptr<TcpLink> link,
              const std::string& address, const LinkHello& hello);

}  // namespace tutti
