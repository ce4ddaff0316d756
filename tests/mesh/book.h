// What the tests of the roster book share: joins with plain defaults, answers in short words.
#pragma once

#include <string>
#include <vector>

#include "daemon/mesh/roster_book.h"
#include "daemon/mesh/wire.h"
#include "proto/segment.h"

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

// A book and a clock that stands still until moved.
struct BookTest {
  RosterBook book{""};
  TimePoint now{};

  RosterBook::Answers join(RosterBook::Worker worker, const v1::JoinRank& join) {
    return book.join(worker, join, "secret", now);
  }
  // Ranks 0 and 1 on host a (worker 1), 2 and 3 on host b (worker 2).
  RosterBook::Answers join_four(RosterBook::Worker a = 1, RosterBook::Worker b = 2) {
    join(a, join_of(0, 4));
    join(a, join_of(1, 4));
    join(b, join_of(2, 4, "b"));
    return join(b, join_of(3, 4, "b"));
  }
  RosterBook::Answers gone(RosterBook::Worker worker, uint32_t epoch, uint32_t rank,
                           const Status& cause = {}) {
    v1::RankGone gone;
    gone.set_job("demo");
    gone.set_epoch(epoch);
    gone.set_rank(rank);
    write_status(cause, *gone.mutable_cause());
    return book.gone(worker, gone);
  }
};

// "2: roster 1", "1: refused 3 ALREADY_EXISTS", "2: aborted 1 UNAVAILABLE", "1: strategy ring".
inline std::vector<std::string> words_of(const RosterBook::Answers& answers) {
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

// The status of the one refusal or abort in `answers`.
inline Status status_of(const RosterBook::Answers& answers, size_t index = 0) {
  if (answers.size() <= index) return {};
  const v1::CoordinatorMessage& message = answers[index].message;
  return read_status(message.has_refused() ? message.refused().status()
                                           : message.aborted().cause());
}

}  // namespace tutti
