#include <grpc/grpc.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <chrono>

#include "daemon/transport/grpc_link.h"
#include "daemon/transport/grpc_options.h"

namespace tutti {
namespace {

class GrpcTransport : public Transport {
 public:
  // gRPC's own start is kept for good: with its last user gone it would end all its threads, and
  // wait up to 10 s for one that polls.
  explicit GrpcTransport(const LinkLimits& limits)
      : hub_(std::make_shared<LinkHub>(thread_.loop, limits)) {
    grpc_init();
  }

  // gRPC drops the last of what was lent once the connections are gone, hence the order.
  ~GrpcTransport() override {
    hub_->close_all(unavailable("its transport ends"));
    hub_->wait_none();
    if (server_) server_->Shutdown(std::chrono::system_clock::now());
    server_.reset();
    hub_->lending->wait_none();
  }

  std::string name() const override { return "grpc"; }

  Result<std::string> listen(const std::string& address, Acceptor acceptor) override {
    if (server_) return failed_precondition("this transport listens already");
    const size_t colon = address.rfind(':');
    if (colon == std::string::npos)
      return invalid_argument("\"" + address + "\" is not an address of the form host:port");
    service_ = make_data_service(hub_, std::move(acceptor));
    int port = 0;
    grpc::ServerBuilder builder;
    set_server_options(hub_->limits, builder);
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    if (!server_)
      return unavailable("cannot listen at " + address +
                         ": the port is taken or the address is not this machine's");
    return address.substr(0, colon + 1) + std::to_string(port);
  }

  std::shared_ptr<Link> connect(const std::string& address, const LinkHello& hello,
                                std::shared_ptr<LinkHandler> handler) override {
    return dial_grpc(hub_, address, hello, std::move(handler));
  }

 private:
  LoopThread thread_;  // Where links begin and end.
  const std::shared_ptr<LinkHub> hub_;
  std::unique_ptr<grpc::Service> service_;  // Outlives server_.
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

std::unique_ptr<Transport> make_grpc_transport(const LinkLimits& limits) {
  return std::make_unique<GrpcTransport>(limits);
}

}  // namespace tutti
