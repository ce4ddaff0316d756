// The in-process transport: links between transports that share a LocalNetwork. Nothing in one
// process goes silent and every listener answers, so neither time limit is needed here.
#include <map>

#include "daemon/transport/local_link.h"

namespace tutti {

// Who listens where. Any thread.
class LocalNetwork {
 public:
  // UNAVAILABLE: somebody listens there.
  Result<std::string> add(const std::string& address, LocalListener listener) {
    std::lock_guard lock(mutex_);
    std::string where = address;
    if (where.ends_with(":0")) where.replace(where.size() - 1, 1, std::to_string(next_port_++));
    if (!listeners_.emplace(where, std::move(listener)).second)
      return unavailable("cannot listen at " + where + ": somebody does already");
    return where;
  }
  void remove(const std::string& address) {
    std::lock_guard lock(mutex_);
    listeners_.erase(address);
  }
  LocalListener find(const std::string& address) {
    std::lock_guard lock(mutex_);
    auto found = listeners_.find(address);
    return found == listeners_.end() ? LocalListener() : found->second;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, LocalListener> listeners_;
  int next_port_ = 1;
};

namespace {

class LocalTransport : public Transport {
 public:
  LocalTransport(std::shared_ptr<LocalNetwork> network, const LinkLimits& limits)
      : network_(std::move(network)), hub_(std::make_shared<LinkHub>(thread_.loop, limits)) {}

  ~LocalTransport() override {
    if (!address_.empty()) network_->remove(address_);
    hub_->close_all(unavailable("its transport ends"));
    hub_->wait_none();
    hub_->lending->wait_none();
  }

  std::string name() const override { return "local"; }

  Result<std::string> listen(const std::string& address, Acceptor acceptor) override {
    if (!address_.empty()) return failed_precondition("listening at " + address_ + " already");
    auto where = network_->add(address, {hub_, std::move(acceptor)});
    if (where.ok()) address_ = *where;
    return where;
  }

  std::shared_ptr<Link> connect(const std::string& address, const LinkHello& hello,
                                std::shared_ptr<LinkHandler> handler) override {
    return LocalLink::dial(hub_, network_->find(address), address, hello, std::move(handler));
  }

 private:
  const std::shared_ptr<LocalNetwork> network_;
  LoopThread thread_;
  const std::shared_ptr<LinkHub> hub_;
  std::string address_;
};

}  // namespace

std::shared_ptr<LocalNetwork> make_local_network() { return std::make_shared<LocalNetwork>(); }

std::unique_ptr<Transport> make_local_transport(std::shared_ptr<LocalNetwork> network,
                                                const LinkLimits& limits) {
  return std::make_unique<LocalTransport>(std::move(network), limits);
}

}  // namespace tutti
