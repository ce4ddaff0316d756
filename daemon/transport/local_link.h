// One end of an in-process link, and the part of a transport that its ends hold on to.
//
// Threads: each LocalNode has one mailbox; everything a handler is told, it is told there. A frame
// is copied there too, when it is delivered, and released: so the sender's bytes never depend on
// how long a receiver keeps a payload, exactly as with a network.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "daemon/transport/frame_codec.h"
#include "daemon/transport/lending.h"
#include "daemon/transport/mailbox.h"
#include "daemon/transport/transport.h"

namespace tutti {

class LocalLink;

class LocalNode {
 public:
  explicit LocalNode(const LinkLimits& limits)
      : limits(limits), lending(std::make_shared<Lending>()) {}

  // Keeps `link` alive until forget() and posts its first task. False, and neither, once
  // close_all() was called.
  bool keep(const std::shared_ptr<LocalLink>& link, Mailbox::Task first);
  void forget(const std::shared_ptr<LocalLink>& link);
  void close_all(const Status& cause);

  const LinkLimits limits;
  const std::shared_ptr<Lending> lending;
  Acceptor acceptor;  // Set before the network knows of this node.
  Mailbox mailbox;

 private:
  std::mutex mutex_;
  bool closing_ = false;  // Guarded by mutex_, as is links_.
  std::set<std::shared_ptr<LocalLink>> links_;
};

class LocalLink : public Link, public std::enable_shared_from_this<LocalLink> {
 public:
  using Ends = std::pair<std::shared_ptr<LocalLink>, std::shared_ptr<LocalLink>>;
  // Two joined ends, the dialler's (with its handler) and the acceptor's (without one yet).
  static Ends make_pair(std::shared_ptr<LocalNode> dialler, std::shared_ptr<LocalNode> acceptor,
                        std::shared_ptr<LinkHandler> handler);

  Status send(Outgoing frame) override;
  void close(Status cause) override;
  // Sends a header as it stands, so that tests can play a peer that lies.
  Status send_raw(Outgoing frame);
  // Closes both ends, each with its own cause.
  void end(const Status& mine, const Status& theirs);
  // On the mailbox: asks the node's acceptor who handles this end.
  void accept(const LinkHello& hello);

 private:
  // What both ends share: a frame is posted, and the link closed, under one lock.
  struct Joint {
    std::mutex mutex;
    bool closed = false;
  };

  LocalLink(std::shared_ptr<LocalNode> node, std::shared_ptr<Joint> joint,
            std::shared_ptr<LinkHandler> handler);
  Status post_frame(Outgoing& frame, bool sealed);
  void arrive(std::shared_ptr<Borrow> borrow);
  void deliver_some();
  void deliver(const Borrow& borrow);
  void post_closed(const Status& cause);

  const std::shared_ptr<LocalNode> node_;
  const std::shared_ptr<Joint> joint_;
  const std::shared_ptr<SendBudget> budget_;
  std::shared_ptr<LocalLink> peer_;  // Guarded by joint_->mutex; null once closed.
  FrameSealer sealer_;               // Guarded by joint_->mutex.
  // The rest belongs to the mailbox's thread.
  std::shared_ptr<LinkHandler> handler_;  // Null before acceptance and after on_closed.
  FrameChecker checker_;
  bool refused_ = false;
  std::deque<std::shared_ptr<Borrow>> arrived_;  // Held back while the handler keeps too much.
  size_t kept_bytes_ = 0;
};

}  // namespace tutti
