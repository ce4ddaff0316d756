#include "daemon/control/etcd_store.h"

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>

#include "daemon/base/foreign_text.h"
#include "daemon/base/program.h"
#include "daemon/base/text.h"
#include "daemon/base/token.h"
#include "daemon/control/address.h"
#include "proto/etcd.grpc.pb.h"

namespace tutti {
namespace {

namespace etcd = etcdserverpb;
namespace fs = std::filesystem;

constexpr int kEtcdPingEveryMs = 6'000;  // etcd takes pings below 5 s for an attack.
constexpr int kEtcdPingTimeoutMs = 3'000;
constexpr int kEtcdAnswerBytesMax = 64 << 20;
constexpr Millis kSecond{1'000};

// A member of the cluster, and a connection to it.
struct Member {
  explicit Member(const std::shared_ptr<grpc::Channel>& channel)
      : kv(channel), lease(channel), watch(channel), auth(channel) {}
  etcd::KV::Stub kv;
  etcd::Lease::Stub lease;
  etcd::Watch::Stub watch;
  etcd::Auth::Stub auth;
};

Result<std::string> read_file(const std::string& path) {
  std::string text = text_of_file(path);
  if (!text.empty()) return text;
  const std::string why = access(path.c_str(), R_OK) == 0 ? "it is empty" : std::strerror(errno);
  return failed_precondition("cannot read " + path + ", for etcd: " + why +
                             "; correct that, or the setting etcd_tls_dir");
}

Result<std::shared_ptr<grpc::ChannelCredentials>> credentials_of(const std::string& tls_dir) {
  if (tls_dir.empty()) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions ssl;
  Result<std::string> authority = read_file(tls_dir + "/ca.crt");
  if (!authority.ok()) return authority.status();
  ssl.pem_root_certs = *std::move(authority);
  if (fs::exists(tls_dir + "/tls.crt")) {
    Result<std::string> certificate = read_file(tls_dir + "/tls.crt");
    Result<std::string> key = read_file(tls_dir + "/tls.key");
    if (!certificate.ok()) return certificate.status();
    if (!key.ok()) return key.status();
    ssl.pem_cert_chain = *std::move(certificate);
    ssl.pem_private_key = *std::move(key);
  }
  return grpc::SslCredentials(ssl);
}

std::shared_ptr<grpc::Channel> channel_to(
    const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kEtcdPingEveryMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kEtcdPingTimeoutMs);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1'000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1'000);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetMaxReceiveMessageSize(kEtcdAnswerBytesMax);
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

// The first key that does not begin with `prefix`. No prefix of ours ends with 0xff.
std::string end_of(std::string prefix) {
  prefix.back() = static_cast<char>(prefix.back() + 1);
  return prefix;
}

KeyStore::Entry entry_of(const mvccpb::KeyValue& kv) {
  return {.key = kv.key(),
          .value = kv.value(),
          .created = kv.create_revision(),
          .modified = kv.mod_revision(),
          .lease = kv.lease()};
}

class EtcdStore final : public KeyStore {
 public:
  EtcdStore(EtcdOptions options, std::string password,
            const std::shared_ptr<grpc::ChannelCredentials>& credentials)
      : options_(std::move(options)), password_(std::move(password)) {
    for (const std::string& endpoint : options_.endpoints)
      members_.push_back(std::make_unique<Member>(channel_to(endpoint, credentials)));
  }

  Result<Lease> grant(Millis ttl) override {
    etcd::LeaseGrantRequest request;
    etcd::LeaseGrantResponse reply;
    request.set_ttl(std::chrono::ceil<std::chrono::seconds>(ttl).count());
    const Status status = call([&](Member& member, grpc::ClientContext& context) {
      return member.lease.LeaseGrant(&context, request, &reply);
    });
    if (!status.ok()) return status;
    return reply.id();
  }

  Status keep_alive(Lease lease) override {
    etcd::LeaseKeepAliveRequest request;
    etcd::LeaseKeepAliveResponse reply;
    request.set_id(lease);
    const Status status = call([&](Member& member, grpc::ClientContext& context) {
      const auto stream = member.lease.LeaseKeepAlive(&context);
      const bool answered = stream->Write(request) && stream->Read(&reply);
      if (answered) context.TryCancel();
      const grpc::Status ended = stream->Finish();
      return answered ? grpc::Status::OK : ended;
    });
    if (status.ok() && reply.ttl() <= 0) return not_found("the lease has ended");
    return status;
  }

  Status revoke(Lease lease) override {
    etcd::LeaseRevokeRequest request;
    etcd::LeaseRevokeResponse reply;
    request.set_id(lease);
    return call([&](Member& member, grpc::ClientContext& context) {
      return member.lease.LeaseRevoke(&context, request, &reply);
    });
  }

  Result<Entry> create(const std::string& key, const std::string& value, Lease lease) override {
    etcd::TxnRequest request;
    compare(request, {key, 0});
    add(request, {key, value, lease});
    request.add_success()->mutable_request_range()->set_key(key);
    request.add_failure()->mutable_request_range()->set_key(key);
    const Result<etcd::TxnResponse> reply = transact(request);
    if (!reply.ok()) return reply.status();
    const auto& last = (*reply).responses((*reply).responses_size() - 1).response_range();
    if (last.kvs_size() != 1) return unavailable(key + " was there, and is not");
    return entry_of(last.kvs(0));
  }

  Result<int64_t> write(const std::vector<Fence>& fences,
                        const std::vector<Write>& writes) override {
    etcd::TxnRequest request;
    for (const Fence& fence : fences) compare(request, fence);
    for (const Write& write : writes) add(request, write);
    const Result<etcd::TxnResponse> reply = transact(request);
    if (!reply.ok()) return reply.status();
    if (!(*reply).succeeded()) return aborted("a key in etcd changed meanwhile");
    return (*reply).header().revision();
  }

  Result<std::vector<Entry>> list(const std::string& prefix) override {
    etcd::RangeRequest request;
    etcd::RangeResponse reply;
    request.set_key(prefix);
    request.set_range_end(end_of(prefix));
    const Status status = call([&](Member& member, grpc::ClientContext& context) {
      return member.kv.Range(&context, request, &reply);
    });
    if (!status.ok()) return status;
    std::vector<Entry> entries;
    for (const auto& kv : reply.kvs()) entries.push_back(entry_of(kv));
    return entries;
  }

  Status watch(const std::string& prefix, const Watcher& watcher) override {
    etcd::WatchRequest request;
    request.mutable_create_request()->set_key(prefix);
    request.mutable_create_request()->set_range_end(end_of(prefix));
    const auto [member, number] = current();
    return attempt(*member, number, {}, [&](Member& at, grpc::ClientContext& context) {
      const auto stream = at.watch.Watch(&context);
      stream->Write(request);
      read_events(*stream, watcher);
      context.TryCancel();
      return stream->Finish();
    });
  }

  void set_deadline(TimePoint deadline) override {
    const std::lock_guard lock(mutex_);
    deadline_ = deadline;
  }

  void cancel() override {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    for (grpc::ClientContext* context : calls_) context->TryCancel();
  }

  std::string name() const override {
    std::string text;
    for (const std::string& endpoint : options_.endpoints)
      text += (text.empty() ? "etcd at " : ",") + endpoint;
    return text;
  }

 private:
  static void compare(etcd::TxnRequest& request, const Fence& fence) {
    etcd::Compare& compare = *request.add_compare();
    compare.set_result(etcd::Compare::EQUAL);
    compare.set_target(fence.modified ? etcd::Compare::MOD : etcd::Compare::CREATE);
    compare.set_key(fence.key);
    if (fence.modified)
      compare.set_mod_revision(*fence.modified);
    else
      compare.set_create_revision(fence.created);
  }
  static void add(etcd::TxnRequest& request, const Write& write) {
    etcd::RequestOp& op = *request.add_success();
    if (!write.value) return op.mutable_request_delete_range()->set_key(write.key);
    op.mutable_request_put()->set_key(write.key);
    op.mutable_request_put()->set_value(*write.value);
    op.mutable_request_put()->set_lease(write.lease);
  }
  template <class Stream>
  static void read_events(Stream& stream, const Watcher& watcher) {
    etcd::WatchResponse reply;
    while (stream.Read(&reply) && !reply.canceled()) {
      if (reply.created()) watcher.on_open();
      for (const mvccpb::Event& event : reply.events()) {
        const bool removed = event.type() == mvccpb::Event::DELETE;
        watcher.on_change(event.kv().key(),
                          removed ? std::nullopt : std::optional(event.kv().value()));
      }
    }
  }

  Result<etcd::TxnResponse> transact(const etcd::TxnRequest& request) {
    etcd::TxnResponse reply;
    const Status status = call([&](Member& member, grpc::ClientContext& context) {
      return member.kv.Txn(&context, request, &reply);
    });
    if (!status.ok()) return status;
    return reply;
  }

  // Tries one member after the other, from the one that answered last.
  template <class Call>
  Status call(const Call& call) {
    Status status;
    for (size_t tried = 0; tried <= members_.size(); ++tried) {
      const auto [member, number] = current();
      const Millis left = time_left(options_.call_timeout);
      if (left.count() <= 0) return status.ok() ? deadline_exceeded("no time is left") : status;
      status = attempt(*member, number, left, call);
      const bool silent =
          status.code() == Code::unavailable || status.code() == Code::deadline_exceeded;
      if (!silent && status.code() != Code::unauthenticated) return status;
    }
    return status;
  }

  // `timeout` 0: none. A member that does not answer is not the next to be asked.
  template <class Call>
  Status attempt(Member& member, size_t number, Millis timeout, const Call& call) {
    grpc::ClientContext context;
    if (timeout.count() != 0) context.set_deadline(std::chrono::system_clock::now() + timeout);
    context.AddMetadata("hasleader", "true");  // Else a member that is cut off stays silent.
    if (Status shown = show_token(member, context); !shown.ok()) return leave(number, shown);
    if (!begin(context)) return {Code::cancelled, "etcd is no longer asked"};
    const grpc::Status status = call(member, context);
    return leave(number, end(context, status));
  }

  Status leave(size_t number, const Status& status) {
    const std::lock_guard lock(mutex_);
    const Code code = status.code();
    if (code == Code::unauthenticated) token_.clear();
    const bool silent = code == Code::unavailable || code == Code::deadline_exceeded;
    if (silent && current_ == number) current_ = (current_ + 1) % members_.size();
    if (!silent) return status;
    return {code, options_.endpoints[number] + ": " + status.message()};
  }

  bool begin(grpc::ClientContext& context) {
    const std::lock_guard lock(mutex_);
    if (!cancelled_) calls_.insert(&context);
    return !cancelled_;
  }
  Status end(grpc::ClientContext& context, const grpc::Status& status) {
    const std::lock_guard lock(mutex_);
    calls_.erase(&context);
    if (cancelled_) return {Code::cancelled, "etcd is no longer asked"};
    return {code_of(status.error_code()), clean_text(status.error_message())};
  }

  // Of `patience`, until the deadline.
  Millis time_left(Millis patience) {
    const std::lock_guard lock(mutex_);
    const TimePoint latest = Clock::now() + patience;
    return std::chrono::duration_cast<Millis>(std::min(latest, deadline_) - Clock::now());
  }

  std::pair<Member*, size_t> current() {
    const std::lock_guard lock(mutex_);
    return {members_[current_].get(), current_};
  }

  Status show_token(Member& member, grpc::ClientContext& context) {
    if (options_.user.empty()) return {};
    const std::lock_guard lock(token_mutex_);
    if (token().empty()) {
      etcd::AuthenticateRequest request;
      etcd::AuthenticateResponse reply;
      request.set_name(options_.user);
      request.set_password(password_);
      grpc::ClientContext asked;
      asked.set_deadline(std::chrono::system_clock::now() +
                         time_left(std::max(options_.call_timeout, kSecond)));
      const grpc::Status status = member.auth.Authenticate(&asked, request, &reply);
      if (!status.ok())
        return {code_of(status.error_code()), "etcd does not take the user " + options_.user +
                                                  ": " + clean_text(status.error_message())};
      const std::lock_guard guard(mutex_);
      token_ = reply.token();
    }
    context.AddMetadata("token", token());
    return {};
  }
  std::string token() {
    const std::lock_guard lock(mutex_);
    return token_;
  }

  const EtcdOptions options_;
  const std::string password_;
  std::vector<std::unique_ptr<Member>> members_;
  std::mutex token_mutex_;  // Held while one call gets a token for all.
  std::mutex mutex_;        // Guards what follows.
  std::set<grpc::ClientContext*> calls_;
  std::string token_;
  size_t current_ = 0;
  TimePoint deadline_ = TimePoint::max();
  bool cancelled_ = false;
};

}  // namespace

Result<std::unique_ptr<KeyStore>> open_etcd(const EtcdOptions& options) {
  for (const std::string& endpoint : options.endpoints)
    if (const Result<Address> address = parse_address(endpoint); !address.ok())
      return invalid_argument("setting etcd = " + address.status().message());
  std::string password;
  if (!options.user.empty()) {
    const Result<std::string> read = read_secret_file(options.password_file);
    if (!read.ok())
      return Status(read.status().code(), "setting etcd_password_file: " + read.status().message());
    password = split(*read, '\n').front();
  }
  const auto credentials = credentials_of(options.tls_dir);
  if (!credentials.ok()) return credentials.status();
  return std::unique_ptr<KeyStore>(
      std::make_unique<EtcdStore>(options, std::move(password), *credentials));
}

}  // namespace tutti
