// The gRPC transport: portable, and usable through HTTP/2 proxies.
#include <grpc/grpc.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <chrono>

#include "daemon/transport/endpoint.h"
#include "daemon/transport/grpc_link.h"
#include "daemon/transport/grpc_options.h"
#include "daemon/transport/grpc_tls.h"
#include "daemon/transport/loop_thread.h"
#include "daemon/transport/tcp_socket.h"

namespace tutti {
namespace {

class GrpcTransport : public Transport {
 public:
  // Initializes gRPC for the rest of the process: without a user left it would end its threads, and
  // wait up to 10 s for one that polls.
  explicit GrpcTransport(const LinkLimits& limits)
      : core_(std::make_shared<TransportCore>(thread_.loop, limits)),
        tls_(limits.tls ? std::make_unique<TlsIdentity>() : nullptr) {
    grpc_init();
  }

  // gRPC releases the last frames when the connections are gone, hence the order.
  ~GrpcTransport() override {
    core_->close_all(unavailable("its transport ends"));
    core_->wait_no_links();
    if (server_) server_->Shutdown(std::chrono::system_clock::now());
    server_.reset();
    core_->pending_frames->wait_zero();
  }

  std::string name() const override { return tls_ ? "grpc+tls" : "grpc"; }

  Result<std::string> listen(const std::string& address, Acceptor acceptor) override {
    if (server_) return failed_precondition("this transport listens already");
    // gRPC tells its log, and nobody else, why it cannot listen.
    if (Status checked = listen_at(address, "").status(); !checked.ok()) return checked;
    service_ = make_data_service(core_, std::move(acceptor));
    int port = 0;
    grpc::ServerBuilder builder;
    set_server_options(core_->limits, builder);
    builder.AddListeningPort(
        address, tls_ ? tls_server_credentials(*tls_) : grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    if (!server_) return unavailable("cannot listen at " + address);
    return to_string({address.substr(0, address.rfind(':') + 1) + std::to_string(port),
                      tls_ ? tls_->fingerprint() : ""});
  }

  std::shared_ptr<Link> connect(const std::string& address, const LinkHello& hello,
                                std::shared_ptr<LinkHandler> handler) override {
    return dial_grpc(core_, address, hello, std::move(handler));
  }

 private:
  LoopThread thread_;  // Its loop opens and closes the links.
  const std::shared_ptr<TransportCore> core_;
  const std::unique_ptr<const TlsIdentity> tls_;  // Null: all links are plain.
  std::unique_ptr<grpc::Service> service_;        // Outlives server_.
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

std::unique_ptr<Transport> make_grpc_transport(const LinkLimits& limits) {
  return std::make_unique<GrpcTransport>(limits);
}

}  // namespace tutti
