// The agent's control plane: one gRPC server, and one thread for timers and for the registration at
// the coordinator.
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <thread>

#include "daemon/base/text.h"
#include "daemon/control/address.h"
#include "daemon/control/admin_calls.h"
#include "daemon/control/admin_service.h"
#include "daemon/control/agent_registration.h"
#include "daemon/control/channel.h"
#include "daemon/control/control.h"
#include "daemon/control/elector.h"
#include "daemon/control/epoch_file.h"
#include "daemon/control/etcd_store.h"
#include "daemon/control/mesh_service.h"
#include "daemon/control/passes.h"
#include "daemon/membership/rules.h"
#include "proto/mesh.pb.h"
#include "proto/segment.h"

namespace tutti {
namespace {

constexpr Millis kRenewCertificates{5'000};
constexpr Millis kShutdownGrace{300};  // For calls in progress when the server shuts down.

Credentials credentials_of(const ControlOptions& options) {
  Credentials credentials = options.credentials;
  credentials.certified_hosts = options.tls != nullptr;
  return credentials;
}

class GrpcControlServer final : public ControlServer {
 public:
  // `remote_coordinator` is empty if this agent coordinates from the start, or if `store` is there,
  // through which the coordinator is elected.
  GrpcControlServer(const ControlOptions& options, const std::string& remote_coordinator,
                    std::unique_ptr<KeyStore> store, AgentControl& agent)
      : host_(options.host),
        hello_timeout_ms_(options.hello_timeout_ms),
        remote_coordinator_(remote_coordinator),
        credentials_(credentials_of(options)),
        tls_{options.tls, options.tls_admin},
        tls_published_(options.tls_published),
        server_credentials_(options.tls == nullptr ? grpc::InsecureServerCredentials()
                                                   : tls_server_credentials(options.tls)),
        etcd_(options.etcd),
        coordinator_setting_(options.coordinator),
        on_coordinator_(options.on_coordinator),
        store_(std::move(store)),
        epoch_file_(options.state_file),
        coordinator_(credentials_, {.host = options.host, .grace = options.coordinator_grace},
                     [this] { schedule_expiry(); }),
        mesh_(coordinator_, credentials_, tls_),
        calls_(agent, coordinator_, credentials_, options.tls,
               [this](v1::AgentReport& report) { describe_peers(report); }),
        admin_(calls_, credentials_, tls_) {}

  ~GrpcControlServer() override {
    coordinator_.stop_sending();
    if (server_ != nullptr) {
      server_->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
      server_->Wait();
    }
    loop_.stop();
    if (thread_.joinable()) thread_.join();
    elector_.reset();  // Another agent is elected at once.
    if (registration_) registration_->finish();
    registration_.reset();
  }

  Status start(Address listen, const Names& names) {
    if (Status published = renew_certificates(); !published.ok()) return published;
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    set_server_options(builder, hello_timeout_ms_);
    builder.RegisterService(&mesh_);
    builder.RegisterService(&admin_);
    int port = 0;
    builder.AddListeningPort(listen.to_string(), server_credentials_, &port);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port == 0)
      return unavailable("cannot listen on " + listen.to_string() +
                         "; is another tuttid running there? Choose another with --listen");
    listen.port = static_cast<uint16_t>(port);
    address_ = reachable(listen, toward_others(names), names).to_string();
    listen_ = listen;
    set_registered(unavailable("not yet registered at the coordinator " + remote_coordinator_));
    if (store_ != nullptr)
      elect();
    else if (remote_coordinator_.empty())
      lead(epoch_file_);
    else
      follow(remote_coordinator_);
    calls_.set_address(address_);
    thread_ = std::thread([this] { loop_.run(); });
    return {};
  }

  std::string address() const override { return address_; }
  std::string coordinator() const override { return coordinator_.leader(); }
  Status registered() const override {
    const std::lock_guard lock(health_mutex_);
    return registered_;
  }
  void set_serving(bool serving) override {
    const std::lock_guard lock(health_mutex_);
    is_serving_ = serving;
    show_health();
  }
  v1::AdminAnswer admin(const v1::AdminRequest& request, const Caller& caller) override {
    return calls_.call(request, caller, false);
  }

 private:
  // An address on the way to other agents; empty: not known.
  std::string toward_others(const Names& names) const {
    if (etcd_.members.empty()) return remote_coordinator_;
    for (const std::string& member : split(etcd_.members, ','))
      if (const Result<Address> one = parse_address(member); one.ok() && !is_loopback(*one, names))
        return member;
    return {};
  }

  void set_registered(const Status& registered) {
    const std::lock_guard lock(health_mutex_);
    registered_ = registered;
    show_health();
  }
  // The caller holds the lock.
  void show_health() {
    server_->GetHealthCheckService()->SetServingStatus(is_serving_ && registered_.ok());
  }

  void lead(StateStore& store) {
    coordinator_.lead(address_, store);
    set_registered({});
  }

  // What the elector says is done on the loop's thread, in the order in which it says it.
  void elect() {
    Elector::Events events;
    events.on_lead = [this] {
      loop_.post([this] {
        stop_following();
        lead(*elector_);
        on_coordinator_(address_, {});
      });
    };
    events.on_follow = [this](const std::string& address) {
      loop_.post([this, address] {
        stop_following();
        follow(address);
        on_coordinator_(address, {});
      });
    };
    events.on_stand_by = [this](const std::string& why) {
      loop_.post([this, why] {
        stop_following();
        coordinator_.follow({}, why);
        set_registered(unavailable(why));
        on_coordinator_({}, why);
      });
    };
    events.on_saved = [this](const v1::JobState& state) { coordinator_.saved(state); };
    elector_ = std::make_unique<Elector>(
        std::move(store_), Election::Options{etcd_.prefix, host_, address_, etcd_.ttl}, events);
  }

  void stop_following() {
    const std::lock_guard lock(registration_mutex_);
    registration_.reset();
  }

  void follow(const std::string& leader) {
    coordinator_.follow(leader);
    v1::AgentMessage self;
    self.set_host(host_);
    self.set_address(address_);
    self.set_version(kProtocolVersion);
    if (credentials_.certified_hosts) self.set_pass_key(public_pass_key(credentials_.own_key));
    const std::lock_guard lock(registration_mutex_);
    registration_.emplace(loop_, leader, std::move(self),
                          credentials_.has_agent_token() ? credentials_.agent_token() : "",
                          tls_.store, [this](const Status& now) { on_registered(now); });
  }

  // All agents may have the same setting, a name that leads to one of them; which one may not be
  // known at the start, when names of hosts that are starting, too, lead nowhere.
  void on_registered(const Status& now) {
    set_registered(now);
    if (now.ok()) return;
    const Result<Address> coordinator = parse_address(remote_coordinator_);
    if (elector_ != nullptr || !coordinator.ok() || !is_self(*coordinator, listen_)) return;
    loop_.post([this] {
      stop_following();
      spdlog::info("coordinates: {} leads to this agent", remote_coordinator_);
      lead(epoch_file_);
    });
  }

  void describe_peers(v1::AgentReport& report) const {
    const std::lock_guard lock(registration_mutex_);
    report.set_coordinator_setting(coordinator_setting_);
    if (tls_.store != nullptr) report.set_certificate_expires(tls_.store->current()->expires);
    if (registration_) report.set_coordinator_state(registration_->reachability().text());
    if (elector_ != nullptr) report.set_etcd_state(elector_->reachability().text());
  }

  // Looks for new certificates even if nobody connects, and publishes them.
  Status renew_certificates() {
    if (tls_.store == nullptr) return {};
    loop_.at(Clock::now() + kRenewCertificates, [this] {
      if (const Status renewed = renew_certificates(); !renewed.ok())
        spdlog::warn("{}", renewed.message());
    });
    const std::shared_ptr<const Certificates> now = tls_.store->current();
    if (now == published_) return {};
    if (!tls_published_.empty())
      if (Status status = publish_certificates(now->files, tls_published_); !status.ok())
        return status;
    published_ = now;
    spdlog::info("uses the certificate {}/tls.crt for {}, which expires at {}",
                 tls_.store->directory(), now->names.to_string(), format_time(now->expires));
    return {};
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
  const int hello_timeout_ms_;
  const std::string remote_coordinator_;
  std::string address_;  // This and the next are set by start().
  Address listen_;
  Loop loop_;
  Loop::TimerId timer_ = 0;  // Loop thread only.
  const Credentials credentials_;
  const ServerTls tls_;
  const std::string tls_published_;
  std::shared_ptr<const Certificates> published_;  // Null: none yet.
  const std::shared_ptr<grpc::ServerCredentials> server_credentials_;
  const EtcdSettings etcd_;
  const std::string coordinator_setting_;  // Which remote_coordinator_ is only if it is elsewhere.
  const std::function<void(const std::string&, const std::string&)> on_coordinator_;
  std::unique_ptr<KeyStore> store_;  // The elector's, until it is there.
  EpochFile epoch_file_;             // Without etcd.
  Coordinator coordinator_;
  MeshService mesh_;
  AdminCalls calls_;
  AdminService admin_;
  mutable std::mutex registration_mutex_;
  std::optional<AgentRegistration> registration_;  // While another agent coordinates.
  mutable std::mutex health_mutex_;                // Guards the next two.
  Status registered_;
  bool is_serving_ = true;
  std::unique_ptr<Elector> elector_;  // Set by start(), with etcd.
  std::unique_ptr<grpc::Server> server_;
  std::thread thread_;
};

// Before certificates are read, credentials tell.
bool speaks_tls(const ControlOptions& options) {
  return options.tls != nullptr || options.credentials.certified_hosts;
}

// Anyone who listens everywhere means others to come in, who must be able to prove who they are.
Status check_openness(const ControlOptions& options, bool is_everywhere) {
  if (!is_everywhere || speaks_tls(options) || options.credentials.trust_network ||
      !options.credentials.tokens.empty())
    return {};
  return failed_precondition("listen = " + options.listen +
                             " is open to every network, and there are neither tokens nor TLS; set "
                             "token_file or tls = require (SECURITY.md), or listen on 127.0.0.1");
}

// Without either anybody on the network could be the coordinator, or an agent.
Status check_trust(const ControlOptions& options, const std::string& remote) {
  const bool is_elected = !options.etcd.members.empty();
  if (remote.empty() && !is_elected) return {};
  if (options.credentials.has_agent_token() || options.credentials.trust_network) return {};
  const std::string other = is_elected
                                ? "etcd = " + options.etcd.members + ": another host may be elected"
                                : "coordinator = " + remote + " is another host";
  return failed_precondition(other +
                             ", and nothing proves to it that this is an agent of its mesh; give "
                             "the agents of all hosts the same token (token_file, see "
                             "SECURITY.md), or set trust_network = yes");
}

// Anyone who may write to etcd says who coordinates, and agents show that one their token.
Status check_etcd(const ControlOptions& options, const Names& names) {
  const EtcdSettings& etcd = options.etcd;
  if (etcd.members.empty()) return {};
  if (!etcd.tls_dir.empty() || options.credentials.trust_network) return {};
  const std::vector<std::string> members = split(etcd.members, ',');
  const bool stays_here = std::ranges::all_of(members, [&](const std::string& member) {
    const Result<Address> address = parse_address(member);
    return address.ok() && is_loopback(*address, names);
  });
  if (stays_here) return {};
  if (!etcd.user.empty())
    return failed_precondition("etcd_user = " + etcd.user +
                               " would send its password in the clear; set etcd_tls_dir "
                               "(SECURITY.md)");
  if (speaks_tls(options)) return {};
  return failed_precondition(
      "etcd = " + etcd.members +
      ": who reaches it without TLS can name a coordinator, to which agents show their token; set "
      "etcd_tls_dir (SECURITY.md), or trust_network = yes");
}

// Null: there is no etcd.
Result<std::unique_ptr<KeyStore>> open_store(const ControlOptions& options) {
  const EtcdSettings& etcd = options.etcd;
  if (etcd.members.empty()) return std::unique_ptr<KeyStore>();
  const Millis timeout = std::clamp(etcd.ttl / 5, Millis(300), Millis(2'000));
  return open_etcd({.endpoints = split(etcd.members, ','),
                    .user = etcd.user,
                    .password_file = etcd.password_file,
                    .tls_dir = etcd.tls_dir,
                    .call_timeout = timeout});
}

// Checks all; the result is empty if this agent coordinates.
Result<std::string> remote_coordinator_of(const ControlOptions& options, const Names& names) {
  if (Status texts = check_control_texts(options); !texts.ok()) return texts;
  const Address listen = *parse_address(options.listen);
  std::string remote = options.coordinator;
  if (!remote.empty()) {
    const Result<Address> coordinator = parse_address(remote);
    if (!coordinator.ok()) return coordinator.status();
    if (is_self(*coordinator, listen, names)) remote.clear();
  }
  if (Status trusted = check_trust(options, remote); !trusted.ok()) return trusted;
  if (Status open = check_openness(options, is_wildcard(listen.host, names)); !open.ok())
    return open;
  if (Status etcd = check_etcd(options, names); !etcd.ok()) return etcd;
  return remote;
}

}  // namespace

Status check_control_texts(const ControlOptions& options) {
  const Result<Address> listen = parse_address(options.listen);
  if (!listen.ok()) return listen.status();
  if (speaks_tls(options) && options.credentials.trust_network)
    return invalid_argument(
        "tls = require and trust_network = yes contradict each other: remove "
        "trust_network, and give the agents of all hosts the same token");
  if (!options.etcd.members.empty() && !options.coordinator.empty())
    return invalid_argument("etcd = " + options.etcd.members +
                            " and coordinator = " + options.coordinator +
                            " contradict each other: with etcd the agents elect the coordinator; "
                            "remove one of the two settings");
  const EtcdSettings& etcd = options.etcd;
  if (!etcd.members.empty() && !etcd.user.empty() && etcd.password_file.empty())
    return invalid_argument("etcd_user = " + etcd.user +
                            " has no password; set etcd_password_file");
  return check_openness(options, is_wildcard_number(listen->host));
}

Status check_control(const ControlOptions& options, const Names& names) {
  return remote_coordinator_of(options, names).status();
}

Status check_etcd_files(const ControlOptions& options) { return open_store(options).status(); }

Result<std::unique_ptr<ControlServer>> serve_control(const ControlOptions& options,
                                                     AgentControl& agent, const Names& names) {
  const Result<std::string> remote_coordinator = remote_coordinator_of(options, names);
  if (!remote_coordinator.ok()) return remote_coordinator.status();
  Result<std::unique_ptr<KeyStore>> store = open_store(options);
  if (!store.ok()) return store.status();
  auto server =
      std::make_unique<GrpcControlServer>(options, *remote_coordinator, *std::move(store), agent);
  const Status status = server->start(*parse_address(options.listen), names);
  if (!status.ok()) return status;
  return std::unique_ptr<ControlServer>(std::move(server));
}

}  // namespace tutti
