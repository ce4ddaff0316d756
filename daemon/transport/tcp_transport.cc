// The TCP transport: its links live on the caller's loop.
#include <future>
#include <optional>

#include "daemon/transport/endpoint.h"
#include "daemon/transport/tcp_listener.h"

namespace tutti {
namespace {

class TcpTransport final : public Transport {
 public:
  TcpTransport(Loop& loop, const LinkLimits& limits)
      : loop_(loop), core_(std::make_shared<TcpTransportCore>(loop, limits)) {}
  ~TcpTransport() override;

  std::string name() const override { return core_->tls ? "tcp+tls" : "tcp"; }
  Result<std::string> listen(const std::string& address, Acceptor acceptor) override;
  std::shared_ptr<Link> connect(const std::string& address, const LinkHello& hello,
                                std::shared_ptr<LinkHandler> handler) override;

 private:
  // Runs `task` on the loop's thread and waits for it.
  void run(const std::function<void()>& task);

  Loop& loop_;
  const std::shared_ptr<TcpTransportCore> core_;
  std::unique_ptr<TcpListener> listener_;
};

void TcpTransport::run(const std::function<void()>& task) {
  if (loop_.in_loop_thread()) return task();
  std::promise<void> ran;
  loop_.post([&] {
    task();
    ran.set_value();
  });
  ran.get_future().wait();
}

TcpTransport::~TcpTransport() {
  run([this] {
    core_->resolver.reset();
    core_->close_all(unavailable("its transport ends"));
    listener_.reset();
  });
  loop_.in_loop_thread() ? core_->run_until_no_links() : core_->wait_no_links();
  core_->pending_frames->wait_zero();
  core_->io_threads.clear();
}

Result<std::string> TcpTransport::listen(const std::string& address, Acceptor acceptor) {
  if (listener_) return failed_precondition("this transport listens already");
  Result<Fd> socket = listen_at(address, core_->limits.congestion);
  if (!socket.ok()) return socket.status();
  const std::string where = address.substr(0, address.rfind(':') + 1) +
                            std::to_string(own_address(socket->get()).numeric().port);
  listener_ = std::make_unique<TcpListener>(core_, *std::move(socket), std::move(acceptor));
  Status started;
  run([&] { started = listener_->start(); });
  if (!started.ok()) return started;
  return to_string({where, core_->tls ? core_->tls->fingerprint() : ""});
}

std::shared_ptr<Link> TcpTransport::connect(const std::string& address, const LinkHello& hello,
                                            std::shared_ptr<LinkHandler> handler) {
  const std::string peer = address.substr(0, address.find('#'));
  auto link = std::make_shared<TcpLink>(core_, peer, std::move(handler));
  require(core_->add(link), "a transport that ends dials nobody");
  loop_.post([core = core_, link, address, hello] { dial_tcp(core, link, address, hello); });
  return link;
}

}  // namespace

std::unique_ptr<Transport> make_tcp_transport(Loop& loop, const LinkLimits& limits) {
  return std::make_unique<TcpTransport>(loop, limits);
}

}  // namespace tutti
