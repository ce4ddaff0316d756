// The in-process transport: links between transports that share a LocalNetwork. Nothing in one
// process goes silent and every listener answers, so neither time limit is needed here.
#include <map>

#include "daemon/transport/local_link.h"

namespace tutti {

// Who listens where. Any thread.
class LocalNetwork {
 public:
  // UNAVAILABLE: somebody listens there.
  Result<std::string> add(const std::string& address, std::shared_ptr<LocalNode> node) {
    std::lock_guard lock(mutex_);
    std::string where = address;
    if (where.ends_with(":0")) where.replace(where.size() - 1, 1, std::to_string(next_port_++));
    if (!nodes_.emplace(where, std::move(node)).second)
      return unavailable("cannot listen at " + where + ": somebody does already");
    return where;
  }
  void remove(const std::string& address) {
    std::lock_guard lock(mutex_);
    nodes_.erase(address);
  }
  std::shared_ptr<LocalNode> find(const std::string& address) {
    std::lock_guard lock(mutex_);
    auto found = nodes_.find(address);
    return found == nodes_.end() ? nullptr : found->second;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<LocalNode>> nodes_;
  int next_port_ = 1;
};

namespace {

class LocalTransport : public Transport {
 public:
  LocalTransport(std::shared_ptr<LocalNetwork> network, const LinkLimits& limits)
      : network_(std::move(network)), node_(std::make_shared<LocalNode>(limits)) {}

  ~LocalTransport() override {
    if (!address_.empty()) network_->remove(address_);
    node_->close_all(unavailable("its transport ends"));
    node_->mailbox.stop();
    node_->lending->wait_none();
  }

  std::string name() const override { return "local"; }

  Result<std::string> listen(const std::string& address, Acceptor acceptor) override {
    if (!address_.empty()) return failed_precondition("listening at " + address_ + " already");
    node_->acceptor = std::move(acceptor);
    auto where = network_->add(address, node_);
    if (where.ok()) address_ = *where;
    return where;
  }

  std::shared_ptr<Link> connect(const std::string& address, const LinkHello& hello,
                                std::shared_ptr<LinkHandler> handler) override {
    std::shared_ptr<LocalNode> there = network_->find(address);
    auto [near, far] = LocalLink::make_pair(node_, there ? there : node_, std::move(handler));
    node_->keep(near, [] {});
    if (!there || !there->keep(far, [far = far, hello] { far->accept(hello); })) {
      const Status nobody = unavailable("nobody listens at " + address);
      near->end(nobody, nobody);
    }
    return near;
  }

 private:
  const std::shared_ptr<LocalNetwork> network_;
  const std::shared_ptr<LocalNode> node_;
  std::string address_;
};

}  // namespace

std::shared_ptr<LocalNetwork> make_local_network() { return std::make_shared<LocalNetwork>(); }

std::unique_ptr<Transport> make_local_transport(std::shared_ptr<LocalNetwork> network,
                                                const LinkLimits& limits) {
  return std::make_unique<LocalTransport>(std::move(network), limits);
}

}  // namespace tutti
