// The in-process transport: links between transports that share a LocalNetwork. Within a process no
// peer goes silent and every listener answers, so the time limits do not apply.
#include <map>

#include "daemon/transport/local_link.h"
#include "daemon/transport/loop_thread.h"

namespace tutti {

// The listeners by address. Thread-safe.
class LocalNetwork {
 public:
  // Returns the address to dial. ALREADY_EXISTS: the address is in use.
  Result<std::string> add(const std::string& address, LocalListener listener) {
    std::lock_guard lock(mutex_);
    std::string where = address;
    if (where.ends_with(":0")) where.replace(where.size() - 1, 1, std::to_string(next_port_++));
    if (!listeners_.emplace(where, std::move(listener)).second)
      return already_exists("cannot listen at " + where + ": somebody does already");
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
      : network_(std::move(network)),
        core_(std::make_shared<TransportCore>(thread_.loop, limits)) {}

  ~LocalTransport() override {
    if (!address_.empty()) network_->remove(address_);
    core_->close_all(unavailable("its transport ends"));
    core_->wait_no_links();
    core_->pending_frames->wait_zero();
  }

  std::string name() const override { return "local"; }

  Result<std::string> listen(const std::string& address, Acceptor acceptor) override {
    if (!address_.empty()) return failed_precondition("listening at " + address_ + " already");
    auto where = network_->add(address, {core_, std::move(acceptor)});
    if (where.ok()) address_ = *where;
    return where;
  }

  std::shared_ptr<Link> connect(const std::string& address, const LinkHello& hello,
                                std::shared_ptr<LinkHandler> handler) override {
    return LocalLink::dial(core_, network_->find(address), address, hello, std::move(handler));
  }

 private:
  const std::shared_ptr<LocalNetwork> network_;
  LoopThread thread_;
  const std::shared_ptr<TransportCore> core_;
  std::string address_;
};

}  // namespace

std::shared_ptr<LocalNetwork> make_local_network() { return std::make_shared<LocalNetwork>(); }

std::unique_ptr<Transport> make_local_transport(std::shared_ptr<LocalNetwork> network,
                                                const LinkLimits& limits) {
  return std::make_unique<LocalTransport>(std::move(network), limits);
}

}  // namespace tutti
