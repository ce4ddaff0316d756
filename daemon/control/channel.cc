#include "daemon/control/channel.h"

#include <grpc/support/log.h>

#include <cstdlib>

#include "daemon/base/foreign_text.h"

namespace tutti {
namespace {

constexpr int kConnectMs = 5'000;
constexpr const char* kTokenKey = "tutti-token-bin";  // gRPC passes any bytes in it.
constexpr const char* kPassKey = "tutti-pass-bin";
constexpr const char* kForwarded = "tutti-forwarded";
// For all connections together. Past it gRPC ends streams, honest ones too, so it is more than
// strangers can fill: as many connections as the agent may have descriptors, each with as many
// unfinished requests as it may have streams.
constexpr size_t kServerBytesMax = size_t{4} << 30;
constexpr int kServerThreadsMax = 64;       // Of calls that block, such as Admin's.
constexpr int kMetadataBytesMax = 8 << 10;  // Token or pass, and what gRPC adds.
constexpr int kStreamsMax = 4;              // Of one connection.
constexpr int kRequestBytesMax = 16 << 10;  // What a server holds of a caller before it knows who.

Caller caller_by_token(const grpc::ServerContextBase& context, const Credentials& credentials,
                       Caller::Kind role) {
  using Kind = Caller::Kind;
  const std::string peer = context.peer();  // "ipv4:10.0.0.7:40312"
  const auto& shown = context.client_metadata();
  const auto found = shown.find(kTokenKey);
  if (found == shown.end()) {
    const bool trusted = credentials.trust_network && !credentials.has_agent_token();
    return trusted ? Caller{.kind = Kind::agent, .name = peer + " (trust_network)"}
                   : Caller{.name = peer + " without a token"};
  }
  const std::string_view text(found->second.data(), found->second.size());
  const Token* token = find_token(credentials.tokens, text);
  if (token == nullptr) return {.name = peer + " with a wrong token"};
  if (token->admin && (role == Kind::admin || !token->agent))
    return {.kind = Kind::admin, .name = peer + " with an administrator's token"};
  if (token->agent) return {.kind = Kind::agent, .name = peer + " with an agent's token"};
  return {.name = peer + " with a trainer's token"};
}

// What a caller that should be an agent lacks.
std::string flaw_of(const grpc::ServerContextBase& context, const Credentials& credentials,
                    const ServerTls& tls) {
  const std::string remedy = "; give both the same token_file";
  if (!credentials.has_agent_token()) return "the coordinator has no token for agents" + remedy;
  const auto& shown = context.client_metadata();
  const auto found = shown.find(kTokenKey);
  if (found == shown.end()) return "no token" + remedy;
  const Token* token =
      find_token(credentials.tokens, std::string_view(found->second.data(), found->second.size()));
  if (token == nullptr) return "wrong token" + remedy;
  if (!token->agent) return "its token is not for agents; show one with role=agent";
  if (tls.store != nullptr) return "no certificate; with tls = require an agent shows its host's";
  return "it is no agent of this mesh" + remedy;
}

}  // namespace

std::shared_ptr<grpc::Channel> make_channel(const std::string& address, const Tls& tls,
                                            const std::string& host) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kPingEveryMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kPingTimeoutMs);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kRedialMs / 2);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kRedialMs);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetMaxReceiveMessageSize(kMessageBytesMax);
  const auto credentials = tls == nullptr ? grpc::InsecureChannelCredentials()
                                          : tls_channel_credentials(*tls, address, host);
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

void set_server_options(grpc::ServerBuilder& builder, int hello_timeout_ms) {
  // gRPC prints what we return as a Status; GRPC_VERBOSITY restores its output.
  if (std::getenv("GRPC_VERBOSITY") == nullptr)
    gpr_set_log_verbosity(static_cast<gpr_log_severity>(GPR_LOG_SEVERITY_ERROR + 1));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kPingEveryMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kPingTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kPingEveryMs / 3);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, hello_timeout_ms);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, hello_timeout_ms);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMetadataBytesMax);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kStreamsMax);
  builder.AddChannelArgument(GRPC_ARG_ENABLE_CHANNELZ, 0);  // Costs memory for each connection.
  builder.SetMaxReceiveMessageSize(kRequestBytesMax);
  grpc::ResourceQuota quota("control plane");
  quota.Resize(kServerBytesMax).SetMaxThreads(kServerThreadsMax);
  builder.SetResourceQuota(quota);
}

void show_token(grpc::ClientContext& context, const std::string& token) {
  if (!token.empty()) context.AddMetadata(kTokenKey, token);
}

Caller caller_of(const grpc::ServerContextBase& context, const Credentials& credentials,
                 const ServerTls& tls, Caller::Kind role) {
  using Kind = Caller::Kind;
  Caller caller = caller_by_token(context, credentials, role);
  const std::optional<CertificateNames> names = peer_names(*context.auth_context());
  if (tls.store != nullptr && !names && caller.kind == Kind::agent)
    return {.name = caller.name + " and no certificate"};
  if (!names) return caller;
  if (role == Kind::admin && names_admin(*names, tls.admin, tls.store->current()->names))
    caller.kind = Kind::admin;
  caller.name += ", certificate of " + names->to_string();
  return caller;
}

Status check_agent(const grpc::ServerContextBase& context, const Credentials& credentials,
                   const ServerTls& tls) {
  const Caller caller = caller_of(context, credentials, tls, Caller::Kind::agent);
  const Status allowed = permit(Rpc::enlist, caller, "the coordinator");
  return allowed.ok() ? allowed : Status(allowed.code(), flaw_of(context, credentials, tls));
}

std::string caller_address(const grpc::ServerContextBase& context) {
  const std::string peer = context.peer();  // "ipv4:10.0.0.7:40312"
  const size_t begin = peer.find(':') + 1;
  return peer.substr(begin, peer.rfind(':') - begin);
}

void show_pass(grpc::ClientContext& context, const v1::Pass& pass) {
  context.AddMetadata(kPassKey, pass.SerializeAsString());
}

Result<v1::Pass> shown_pass(const grpc::ServerContextBase& context) {
  const auto& shown = context.client_metadata();
  const auto found = shown.find(kPassKey);
  v1::Pass pass;
  if (found == shown.end() ||
      !pass.ParseFromArray(found->second.data(), static_cast<int>(found->second.size())))
    return unauthenticated(context.peer() + " shows no pass; workers are started by their agents");
  clean_texts(pass);
  return pass;
}

void mark_forwarded(grpc::ClientContext& context) { context.AddMetadata(kForwarded, "1"); }

bool is_forwarded(const grpc::ServerContextBase& context) {
  return context.client_metadata().contains(kForwarded);
}

std::string registration_obstacle(const std::string& coordinator, const Status& why,
                                  const Tls& tls) {
  const std::string who = "the coordinator " + coordinator;
  const std::string& text = why.message();
  if (why.code() == Code::unauthenticated || why.code() == Code::permission_denied)
    return who + " refuses this agent: " + text;
  if (why.code() == Code::unimplemented)
    return who + " speaks another protocol version; install one release of Tutti on all nodes";
  if (const size_t names = text.find("its certificate is for "); names != std::string::npos)
    return who + " cannot prove its name: " + text.substr(names) +
           "; issue one that names it, see docs/tls.md";
  const std::string remedy = tls_remedy(text, tls.get());
  return remedy.empty() ? unreachable_text(coordinator, text, tls)
                        : who + " and this agent cannot speak with each other: " + remedy;
}

std::string unreachable_text(const std::string& address, const std::string& why, const Tls& tls) {
  const std::string remedy = tls_remedy(why, tls.get());
  if (!remedy.empty())
    return "cannot speak with tuttid at " + address + " (" + why + "): " + remedy;
  if (why.starts_with("this agent does not coordinate") || why.starts_with("nobody coordinates"))
    return "tuttid at " + address + ": " + why;
  if (why == "Deadline Exceeded")
    return "tuttid at " + address +
           " does not answer in time; see there whether it is stopped or starved (systemctl status "
           "tuttid), and whether the network to it loses packets";
  if (why.starts_with("Cancelled"))
    return "tuttid at " + address + " ended the call (" + why +
           "), as it does when it stops or no longer coordinates; ask again";
  if (why.starts_with("DNS resolution failed"))
    return "the name of " + address + " leads nowhere (" + why + "); it is looked up again";
  return "no tuttid answers at " + address + " (" + why + "); start one there: tuttid --listen " +
         address;
}

// gRPC says nothing about a call that the other side does not know.
std::string reason_of(const grpc::Status& status) {
  if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED && status.error_message().empty())
    return "it speaks another protocol version; install one version of Tutti on all nodes";
  return clean_text(status.error_message());
}

Status from_grpc(const grpc::Status& status, const std::string& address, const Tls& tls) {
  if (status.ok()) return {};
  const Code code = code_of(status.error_code());
  const std::string why = reason_of(status);
  const bool silent = code == Code::unavailable || code == Code::deadline_exceeded;
  return {silent ? Code::unavailable : code, silent ? unreachable_text(address, why, tls) : why};
}

grpc::Status to_grpc(const Status& status) {
  return {static_cast<grpc::StatusCode>(status.code()), status.message()};
}

}  // namespace tutti
