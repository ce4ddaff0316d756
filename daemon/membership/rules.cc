#include "daemon/membership/rules.h"

#include <array>

namespace tutti {
namespace {

using Kind = Caller::Kind;

constexpr unsigned bit(Kind kind) { return 1U << static_cast<unsigned>(kind); }
constexpr unsigned kAnybody =
    bit(Kind::anybody) | bit(Kind::user) | bit(Kind::agent) | bit(Kind::admin);
constexpr unsigned kUsersAndAbove = bit(Kind::user) | bit(Kind::agent) | bit(Kind::admin);

struct RpcRule {
  Rpc rpc;
  unsigned kinds;  // Bits of the kinds of callers that may.
  Rule rule;
};

constexpr std::string_view kAdminProof =
    "Unix socket: the process's user and groups; control plane: a token, with TLS an agent's "
    "beside "
    "its certificate, or an administrator's certificate";

constexpr std::string_view kPassProof =
    "a signed pass; with TLS, that host's agent is registered now";

// By Rpc.
constexpr std::array kRpcs = {
    RpcRule{Rpc::attend,
            0,  // Coordinator::check() decides: workers have no token.
            {"Mesh.Attend", "workers of this mesh; each message in it has a rule of its own",
             "a signed pass"}},
    RpcRule{Rpc::enlist,
            bit(Kind::agent),
            {"Mesh.Enlist", "agents of this mesh",
             "a token for agents; with TLS, the host's certificate, too"}},
    RpcRule{Rpc::status,
            kUsersAndAbove,
            {"Admin.Status", "administrators and agents: all; users: their own jobs", kAdminProof}},
    RpcRule{Rpc::trace,
            kUsersAndAbove,
            {"Admin.Trace", "administrators and agents: all; users: their own jobs, ended ones too",
             kAdminProof}},
    RpcRule{
        Rpc::set_strategy,
        kUsersAndAbove,
        {"Admin.SetStrategy", "administrators and agents: any job; users: their own", kAdminProof}},
    RpcRule{Rpc::drain, bit(Kind::admin), {"Admin.Drain", "administrators", kAdminProof}},
    RpcRule{Rpc::stop, bit(Kind::admin), {"Admin.Stop", "administrators", kAdminProof}},
    RpcRule{Rpc::stop_job,
            kUsersAndAbove,
            {"Admin.StopJob", "administrators and agents: any job; users: their own", kAdminProof}},
    RpcRule{Rpc::health, kAnybody, {"grpc.health.v1.Health", "anybody", "none"}},
    RpcRule{Rpc::reflection, kAnybody, {"grpc.reflection", "anybody", "none"}},
};

constexpr std::array kOthers = {
    Rule{"JoinRank", "a worker of the job's owner, from the host that it names", kPassProof},
    Rule{"Resume", "a worker of the job's owner, from the host that it names", kPassProof},
    Rule{"RankGone", "the worker whose rank it is", "the stream on which the rank joined"},
    Rule{"hello", "users of this host; with tokens for trainers, those who have one",
         "the process's user; a token"},
    Rule{"admin request on the Unix socket", "users of this host", "the process's user and groups"},
    Rule{"worker's control socket", "the agent of this host",
         "a directory that only the agent's user may enter"},
    Rule{"trainer's socket (descriptor to the worker)",
         "the worker of the trainer's own user and "
         "subject",
         "a signed pass in the same message"},
    Rule{"a rank's segment, board, recorder and eventfd (descriptors to trainers)",
         "ranks of the same job, user and host", "a hello that was admitted"},
    Rule{"recorder (descriptor to the agent)", "the agent of this host",
         "the worker's control socket"},
    Rule{"Data.Exchange and TCP links", "workers of the same epoch of the job",
         "HMAC with the epoch's secret, both ways"},
    Rule{"run_dir", "the agent's user", "file modes"},
    Rule{"HTTP /healthz and /readyz", "anybody who reaches metrics_listen", "none"},
    Rule{"HTTP /, /api/status, /api/diagnosis and /metrics",
         "administrators and, without TLS, agents: all; anybody: what names no job and no user; "
         "with metrics_public = yes: anybody, all",
         "a token"},
};

constexpr auto make_rules() {
  std::array<Rule, kRpcs.size() + kOthers.size()> all{};
  size_t next = 0;
  for (const RpcRule& row : kRpcs) all[next++] = row.rule;
  for (const Rule& row : kOthers) all[next++] = row;
  return all;
}
constexpr auto kRules = make_rules();

const RpcRule& rule_of(Rpc rpc) { return kRpcs.at(static_cast<size_t>(rpc)); }

// What a caller may do about it.
std::string remedy(Rpc rpc, const std::string& agent) {
  if (rpc == Rpc::enlist)
    return "show a token for agents, the same token_file on all hosts, and with tls = require "
           "also this host's certificate; see SECURITY.md";
  return "ask through the Unix socket of tuttid on " + agent +
         " as root or a member of its admin_group, set TUTTI_TOKEN to a token with role=admin, or "
         "show a certificate of the name tls_admin";
}

}  // namespace

std::span<const Rule> rules() { return kRules; }

std::string_view name_of(Rpc rpc) { return rule_of(rpc).rule.door; }

Status permit(Rpc rpc, const Caller& caller, const std::string& agent) {
  const RpcRule& row = rule_of(rpc);
  if ((row.kinds & bit(caller.kind)) != 0) return {};
  const std::string why = std::string(row.rule.door) + " is for " + std::string(row.rule.who) +
                          ", not for " + caller.name + "; " + remedy(rpc, agent);
  return caller.kind == Kind::anybody ? unauthenticated(why) : permission_denied(why);
}

}  // namespace tutti
