#include "daemon/membership/roster_message.h"

#include <algorithm>

namespace tutti {

v1::Roster to_message(const Roster& roster) {
  v1::Roster message;
  message.set_job(roster.job);
  message.set_epoch(roster.epoch);
  message.set_secret(roster.secret);
  message.set_strategy(roster.strategy);
  for (const RosterRank& rank : roster.ranks) {
    v1::RosterRank& to = *message.add_ranks();
    to.set_rank(static_cast<uint32_t>(message.ranks_size() - 1));
    to.set_pid(rank.pid);
    to.set_host(rank.host);
    to.set_address(rank.address);
  }
  return message;
}

Result<Roster> from_message(const v1::Roster& message) {
  Roster roster{.job = message.job(),
                .epoch = message.epoch(),
                .secret = message.secret(),
                .strategy = message.strategy()};
  for (const v1::RosterRank& rank : message.ranks()) {
    if (rank.rank() != roster.ranks.size())
      return invalid_argument("the roster of job \"" + message.job() + "\" lacks rank " +
                              std::to_string(roster.ranks.size()));
    roster.ranks.push_back({.pid = rank.pid(), .host = rank.host(), .address = rank.address()});
  }
  if (roster.ranks.empty()) return invalid_argument("a roster without ranks");
  return roster;
}

std::string list_ranks(const std::vector<uint32_t>& ranks) {
  constexpr size_t kShown = 16;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < std::min(ranks.size(), kShown); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  if (ranks.size() > kShown) text += " and " + std::to_string(ranks.size() - kShown) + " more";
  return text;
}

}  // namespace tutti
