// The transport between hosts. A host listens over TCP or gRPC and names it in its address,
// "tcp://10.0.0.1:7000", or "tcp+tls://10.0.0.1:7000#fingerprint"; it is dialled that way, however
// the dialling host listens.
#include "daemon/transport/transport.h"

namespace tutti {
namespace {

constexpr std::string_view kSchemeEnd = "://";

class NetworkTransport final : public Transport {
 public:
  NetworkTransport(Loop& loop, bool over_grpc, const LinkLimits& limits)
      : over_grpc_(over_grpc), limits_(limits), tcp_(make_tcp_transport(loop, limits)) {}

  std::string name() const override {
    return std::string(over_grpc_ ? "grpc" : "tcp") + (limits_.tls ? "+tls" : "");
  }

  Result<std::string> listen(const std::string& address, Acceptor acceptor) override {
    Transport& own = over_grpc_ ? grpc() : *tcp_;
    Result<std::string> where = own.listen(address, std::move(acceptor));
    if (!where.ok()) return where;
    return name().append(kSchemeEnd) + *where;
  }

  std::shared_ptr<Link> connect(const std::string& address, const LinkHello& hello,
                                std::shared_ptr<LinkHandler> handler) override {
    const size_t end = address.find(kSchemeEnd);
    const std::string scheme = end == std::string::npos ? "" : address.substr(0, end);
    Transport& theirs = scheme.starts_with("grpc") ? grpc() : *tcp_;
    const size_t begin = scheme.empty() ? 0 : end + kSchemeEnd.size();
    return theirs.connect(address.substr(begin), hello, std::move(handler));
  }

 private:
  // Made on first use, because it starts threads.
  Transport& grpc() {
    if (grpc_ == nullptr) grpc_ = make_grpc_transport(limits_);
    return *grpc_;
  }

  const bool over_grpc_;
  const LinkLimits limits_;
  const std::unique_ptr<Transport> tcp_;
  std::unique_ptr<Transport> grpc_;
};

}  // namespace

std::unique_ptr<Transport> make_network_transport(Loop& loop, const std::string& kind,
                                                  const LinkLimits& limits) {
  require(kind == "auto" || kind == "tcp" || kind == "grpc",
          "a transport between hosts is auto, tcp or grpc");
  return std::make_unique<NetworkTransport>(loop, kind == "grpc", limits);
}

}  // namespace tutti
