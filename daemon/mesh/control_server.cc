// The agent's control plane: one gRPC server, and one thread for timers and for the registration at
// the coordinator.
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <optional>
#include <thread>

#include "daemon/mesh/address.h"
#include "daemon/mesh/admin_service.h"
#include "daemon/mesh/channel.h"
#include "daemon/mesh/mesh.h"
#include "daemon/mesh/mesh_service.h"
#include "daemon/mesh/reconnecting_stream.h"
#include "proto/segment.h"

namespace tutti {
namespace {

constexpr Millis kShutdownGrace{300};  // For calls in progress when the server shuts down.

// Keeps this agent in the coordinator's list.
class AgentRegistration {
 public:
  AgentRegistration(Loop& loop, const std::string& coordinator, v1::AgentMessage self,
                    const std::string& token)
      : self_(std::move(self)),
        stub_(v1::Mesh::NewStub(make_channel(coordinator))),
        stream_(loop,
                [this, token](auto* context, auto* reactor) {
                  show_token(*context, token);
                  stub_->async()->Enlist(context, reactor);
                },
                {.on_open = [this] { stream_.send(self_); },
                 .on_message = [](const v1::AgentAnswer&) {},
                 .on_broken = [](const std::string&) {}}) {}

 private:
  const v1::AgentMessage self_;
  const std::unique_ptr<v1::Mesh::Stub> stub_;
  ReconnectingStream<v1::AgentMessage, v1::AgentAnswer> stream_;
};

class GrpcControlServer final : public ControlServer {
 public:
  // `remote_coordinator` is empty if this agent coordinates.
  GrpcControlServer(const ControlOptions& options, const std::string& remote_coordinator,
                    AgentControl& agent)
      : host_(options.host),
        remote_coordinator_(remote_coordinator),
        coordinator_(options.token, [this] { schedule_expiry(); }),
        mesh_(coordinator_, remote_coordinator, options.token),
        admin_(agent, coordinator_, options.token),
        token_(options.token) {}

  ~GrpcControlServer() override {
    coordinator_.mute();
    if (server_ != nullptr) {
      server_->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
      server_->Wait();
    }
    loop_.stop();
    if (thread_.joinable()) thread_.join();
    registration_.reset();
  }

  Status start(Address listen) {
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    set_keepalive(builder);
    builder.RegisterService(&mesh_);
    builder.RegisterService(&admin_);
    int port = 0;
    builder.AddListeningPort(listen.to_string(), grpc::InsecureServerCredentials(), &port);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port == 0)
      return unavailable("cannot listen on " + listen.to_string() +
                         "; is another tuttid running there? Choose another with --listen");
    listen.port = static_cast<uint16_t>(port);
    address_ = reachable(listen, remote_coordinator_).to_string();
    admin_.set_addresses({address_, coordinator()});
    if (!remote_coordinator_.empty()) register_agent();
    thread_ = std::thread([this] { loop_.run(); });
    return {};
  }

  std::string address() const override { return address_; }
  std::string coordinator() const override {
    return remote_coordinator_.empty() ? address_ : remote_coordinator_;
  }

 private:
  void register_agent() {
    v1::AgentMessage self;
    self.set_host(host_);
    self.set_address(address_);
    self.set_version(kProtocolVersion);
    registration_.emplace(loop_, remote_coordinator_, std::move(self), token_);
  }

  // Any thread. Expires joins at the next deadline, which may have changed.
  void schedule_expiry() {
    loop_.post([this] { set_expiry_timer(); });
  }
  void set_expiry_timer() {
    loop_.cancel(timer_);
    const TimePoint deadline = coordinator_.next_deadline();
    if (deadline == TimePoint::max()) return;
    timer_ = loop_.at(deadline, [this] {
      coordinator_.expire();
      set_expiry_timer();
    });
  }

  const std::string host_;
  const std::string remote_coordinator_;
  std::string address_;  // Set by start().
  Loop loop_;
  Loop::TimerId timer_ = 0;  // Loop thread only.
  Coordinator coordinator_;
  MeshService mesh_;
  AdminService admin_;
  const std::string token_;
  std::optional<AgentRegistration> registration_;  // If another agent coordinates.
  std::unique_ptr<grpc::Server> server_;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<ControlServer>> serve_control(const ControlOptions& options,
                                                     AgentControl& agent) {
  const Result<Address> listen = parse_address(options.listen);
  if (!listen.ok()) return listen.status();
  std::string remote_coordinator = options.coordinator;
  if (!remote_coordinator.empty()) {
    const Result<Address> coordinator = parse_address(remote_coordinator);
    if (!coordinator.ok()) return coordinator.status();
    if (is_self(*coordinator, *listen)) remote_coordinator.clear();
  }
  auto server = std::make_unique<GrpcControlServer>(options, remote_coordinator, agent);
  const Status status = server->start(*listen);
  if (!status.ok()) return status;
  return std::unique_ptr<ControlServer>(std::move(server));
}

}  // namespace tutti
