#include "daemon/group/failures.h"

namespace tutti::failures {
namespace {

int job_rank(const Ranks& members, int rank) { return members.at(static_cast<size_t>(rank)); }

Culprit blame(const Roster& roster, int job_rank) {
  return {job_rank, roster.ranks.at(static_cast<size_t>(job_rank)).host};
}

// No rank is to blame for a worker or its host.
Culprit blame(const Host& host) { return {-1, host.name}; }

std::string timed_out(const Signature& signature, uint64_t number, uint32_t timeout_ms) {
  return operation(signature, number) + " timed out after " + std::to_string(timeout_ms) + " ms";
}

std::string timed_out(const Report& late) {
  return timed_out(late.signature, late.op.number, late.timeout_ms);
}

std::string departure(const Roster& roster, const RankGone& gone) {
  return gone.cause.ok() ? describe_rank(roster, gone.rank) + " left" : gone.cause.message();
}

std::string describe(const Roster& roster, const Ranks& members, const Asked& asked) {
  if (asked.rank < 0) return "another host asks for something else";
  return describe_rank(roster, job_rank(members, asked.rank)) + " asks for " +
         to_string(asked.signature);
}

}  // namespace

std::string operation(const Signature& signature, uint64_t number) {
  return std::string(name_of(signature.collective)) + " #" + std::to_string(number);
}

Status disagreement(const Roster& roster, const Ranks& members, uint64_t number, const Asked& one,
                    const Asked& other) {
  return failed_precondition("the ranks disagree at operation #" + std::to_string(number) + ": " +
                             describe(roster, members, one) + ", " +
                             describe(roster, members, other) +
                             "; all ranks must make the same calls in the same order");
}

Status absence(const Roster& roster, const RankGone& gone, const RankGone* first,
               const Signature& signature, uint64_t number) {
  const std::string what = operation(signature, number) + "; join again to form a new group";
  const std::string start = first == nullptr ? "" : departure(roster, *first) + "; because of it ";
  const Culprit culprit = blame(roster, first == nullptr ? gone.rank : first->rank);
  if (gone.cause.ok()) return rank_left(start + describe_rank(roster, gone.rank), what, culprit);
  return {gone.cause.code(), start + gone.cause.message() + " during " + what, culprit};
}

Status lateness(const Roster& roster, const Ranks& members, const Report& late,
                const std::vector<int>& missing, const std::vector<const Host*>& silent) {
  Culprit culprit;
  std::string ranks, workers;
  for (const int rank : missing) {
    const int who = job_rank(members, rank);
    if (ranks.empty()) culprit = blame(roster, who);
    ranks += (ranks.empty() ? "not called by " : ", ") + describe_rank(roster, who);
  }
  for (const Host* host : silent) {
    if (culprit == Culprit()) culprit = blame(*host);
    workers += (ranks.empty() && workers.empty() ? "" : "; ") + describe_worker(*host) +
               " does not answer";
  }
  const bool nobody = missing.empty() && silent.empty();
  return deadline_exceeded(
      timed_out(late) + ": " + (nobody ? "it waited for a change of strategy" : ranks + workers),
      culprit);
}

Status slowness(const Roster& roster, const Ranks& members, const Report& late,
                const std::string& host) {
  Culprit culprit;
  if (late.waiting_for >= 0) culprit = blame(roster, job_rank(members, late.waiting_for));
  return deadline_exceeded(timed_out(late) + " on host " + host + ", waiting for " + late.waiting +
                               (culprit.host.empty() ? "" : " (host " + culprit.host + ")") +
                               "; join again to form a new group",
                           culprit);
}

Status silence(const Report& late, const Host& host) {
  return deadline_exceeded(timed_out(late) + ": " + describe_worker(host) +
                               " does not answer; join again to form a new group",
                           blame(host));
}

Status leader_silence(const Signature& signature, uint64_t number, uint32_t timeout_ms,
                      const Host& leader) {
  return deadline_exceeded(
      timed_out(signature, number, timeout_ms) + ": " + describe_worker(leader) +
          ", which leads the job, does not answer; join again to form a new group",
      blame(leader));
}

Status lost(const Host& host, const Status& why) {
  return unavailable(
      describe_worker(host) + " is lost: " + why.message() + "; join again to form a new group",
      blame(host));
}

}  // namespace tutti::failures
