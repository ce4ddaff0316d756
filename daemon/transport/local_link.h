// The wire of an in-process link: the peer's loop. Each transport's links live on a loop of its
// own; everything a handler is told, it is told there. A frame is copied there too, when it is
// delivered, and released: so the sender's bytes never depend on how long a receiver keeps a
// payload, exactly as with a network.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "daemon/transport/link_core.h"

namespace tutti {

class LocalHub final : public LinkHub {
 public:
  LocalHub(const std::shared_ptr<LoopThread>& thread, const LinkLimits& limits)
      : LinkHub(thread->loop, limits), thread_(thread) {}
  Acceptor acceptor;  // Set before the network knows of this hub.

 private:
  const std::shared_ptr<LoopThread> thread_;  // Far ends may post to it when its transport is gone.
};

class LocalLink final : public LinkCore {
 public:
  // `there` is null where nobody listens.
  static std::shared_ptr<LocalLink> dial(const std::shared_ptr<LocalHub>& here,
                                         const std::shared_ptr<LocalHub>& there,
                                         const std::string& address, const LinkHello& hello,
                                         std::shared_ptr<LinkHandler> handler);
  // Sends a header as it stands, so that tests can play a peer that lies.
  void send_raw(const FrameHeader& header, const std::string& payload);

 private:
  LocalLink(std::shared_ptr<LinkHub> hub, std::string peer, std::shared_ptr<LinkHandler> handler,
            std::shared_ptr<std::mutex> joint);
  void wake_writer_locked() override;
  void wake_reader() override;
  void welcome(const std::string&) override {}  // There is no handshake.
  void refuse(const std::string& answer) override;
  void cut() override;
  bool shows_life() const override { return true; }

  void accept(const Acceptor& acceptor, const LinkHello& hello);
  void tell_peer(std::function<void(LocalLink& peer)> task);
  void post(std::function<void(LocalLink& self)> task);
  void flush();
  void deliver_some();

  const std::shared_ptr<std::mutex> joint_;
  std::shared_ptr<LocalLink> far_end_;  // Guarded by joint_.
  bool flush_posted_ = false;           // Guarded by mutex_.
  // The loop's alone.
  FrameChecker checker_;
  std::deque<std::shared_ptr<Borrow>> arrived_;  // Held back while the handler keeps too much.
};

}  // namespace tutti
