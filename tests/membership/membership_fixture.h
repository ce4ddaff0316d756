// Shared by the tests of Membership: joins with plain defaults, messages in short words.
#pragma once

#include <string>
#include <vector>

#include "daemon/membership/membership.h"
#include "daemon/membership/roster_message.h"
#include "proto/segment.h"
#include "tests/control/credentials.h"
#include "tests/membership/memory_states.h"

namespace tutti {

inline v1::JoinRank join_of(uint32_t rank, uint32_t world_size, const std::string& host = "a") {
  v1::JoinRank join;
  join.set_job("demo");
  join.set_rank(rank);
  join.set_world_size(world_size);
  join.set_pid(100 + rank);
  join.set_host(host);
  join.set_address(host + ":9");
  join.set_timeout_ms(1'000);
  join.set_version(kProtocolVersion);
  return join;
}

// Passes with the signature of the tests' token.
inline Membership::PassCheck test_passes() {
  return [](const v1::Pass& pass) { return check_pass(pass, test_credentials()); };
}

using Messages = std::vector<Effects::Message>;

// A Membership, a store that saves its states at once, and a clock that advances only by hand.
struct MembershipTest {
  Membership membership{test_passes()};
  MemoryStates store;
  TimePoint now{};

  // Does what was decided, and returns what is sent.
  Messages apply(const Effects& effects) {
    Messages sent = effects.send;
    std::vector<v1::JobState> states;
    for (const auto& [key, state] : effects.save) states.push_back(state);
    if (states.empty() || !store.save(states)) return sent;
    for (const v1::JobState& state : states)
      for (const Effects::Message& message : saved(state)) sent.push_back(message);
    return sent;
  }
  Messages saved(const v1::JobState& state) { return apply(membership.saved(state)); }
  // With a pass of the same user for all, unless there is one.
  Messages join(WorkerStream worker, v1::JoinRank join) {
    if (!join.has_pass()) *join.mutable_pass() = pass_of(join.host(), join.job());
    return apply(membership.join(worker, join, "secret", now));
  }
  // Ranks 0 and 1 on host a (worker 1), 2 and 3 on host b (worker 2).
  Messages join_four(WorkerStream a = 1, WorkerStream b = 2) {
    join(a, join_of(0, 4));
    join(a, join_of(1, 4));
    join(b, join_of(2, 4, "b"));
    return join(b, join_of(3, 4, "b"));
  }
  Messages gone(WorkerStream worker, uint32_t epoch, uint32_t rank, const Status& cause = {}) {
    v1::RankGone gone;
    gone.set_job("demo");
    gone.set_epoch(epoch);
    gone.set_rank(rank);
    write_status(cause, *gone.mutable_cause());
    return apply(membership.rank_gone(worker, gone));
  }
  Messages worker_gone(WorkerStream worker) { return apply(membership.worker_gone(worker, now)); }
  // A worker on `host` comes back with these of the four ranks of join_four().
  static v1::Resume resume_of(uint32_t epoch, const std::vector<uint32_t>& ranks,
                              const std::string& host) {
    v1::Resume resume;
    resume.set_job("demo");
    resume.set_epoch(epoch);
    resume.set_host(host);
    resume.mutable_roster()->set_secret("secret");
    for (uint32_t rank = 0; rank < 4; ++rank) {
      v1::RosterRank& who = *resume.mutable_roster()->add_ranks();
      who.set_rank(rank);
      who.set_pid(100 + rank);
      who.set_host(rank < 2 ? "a" : "b");
    }
    resume.mutable_ranks()->Add(ranks.begin(), ranks.end());
    *resume.mutable_pass() = pass_of(host);
    return resume;
  }
  Messages resumed(WorkerStream worker, const v1::Resume& resume) {
    return apply(membership.resume(worker, resume));
  }
  Messages expire(TimePoint when, const std::string& obstacle = {}) {
    return apply(membership.expire(when, obstacle));
  }
};

// "2: roster 1", "1: refused 3 ALREADY_EXISTS", "2: aborted 1 UNAVAILABLE", "1: strategy ring".
inline std::vector<std::string> words_of(const Messages& answers) {
  std::vector<std::string> words;
  for (const auto& [to, message] : answers) {
    std::string text = std::to_string(to) + ": ";
    if (message.has_roster()) text += "roster " + std::to_string(message.roster().epoch());
    if (message.has_refused())
      text += "refused " + std::to_string(message.refused().rank()) + " " +
              std::string(name_of(read_status(message.refused().status()).code()));
    if (message.has_aborted())
      text += "aborted " + std::to_string(message.aborted().epoch()) + " " +
              std::string(name_of(read_status(message.aborted().cause()).code()));
    if (message.has_strategy()) text += "strategy " + message.strategy().strategy();
    words.push_back(text);
  }
  return words;
}

// The status of the refusal or abort at `index` of `answers`.
inline Status status_of(const Messages& answers, size_t index = 0) {
  if (answers.size() <= index) return {};
  const v1::CoordinatorMessage& message = answers[index].body;
  return read_status(message.has_refused() ? message.refused().status()
                                           : message.aborted().cause());
}

}  // namespace tutti
