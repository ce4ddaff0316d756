#include "tests/group/simulated_script.h"

#include <algorithm>
#include <numeric>

namespace tutti::simulated {
namespace {

const std::vector<Strategy> kStrategies = {{StrategyKind::centralized, 0},
                                           {StrategyKind::ring, 0},
                                           {StrategyKind::tree, 1},
                                           {StrategyKind::tree, 2}};
const std::vector<Collective> kCollectives(kEveryCollective.begin(), kEveryCollective.end());

template <class T>
const T& one_of(Random& random, const std::vector<T>& values) {
  return values[static_cast<size_t>(random.below(static_cast<int>(values.size())))];
}

template <class T>
void shuffle(Random& random, std::vector<T>& values) {
  for (size_t i = values.size(); i > 1; --i)
    std::swap(values[i - 1], values[static_cast<size_t>(random.below(static_cast<int>(i)))]);
}

void draw_job(Random& random, Script& script) {
  const int kind = random.below(100);
  const int hosts = kind < 40 ? 2 : kind < 75 ? 3 : kind < 90 ? 4 : 5;
  std::vector<int> homes;
  for (int host = 0; host < hosts; ++host)
    for (int i = random.below(100) < 55 ? 1 : random.between(2, 3); i > 0; --i)
      homes.push_back(host);
  if (random.chance(40)) shuffle(random, homes);
  script.roster.job = "demo";
  script.roster.epoch = 1;
  for (size_t rank = 0; rank < homes.size(); ++rank)
    script.roster.ranks.push_back({static_cast<uint32_t>(1000 + rank),
                                   std::string(1, static_cast<char>('a' + homes[rank])), ""});
  script.job.local = {StrategyKind::centralized, 0};
  script.job.global = random.chance(50) ? Strategy() : one_of(random, kStrategies);
  Ranks all(homes.size());
  std::iota(all.begin(), all.end(), 0);
  script.groups.push_back(all);
  for (int more = random.below(3); more > 0; --more) {
    Ranks members = all;
    shuffle(random, members);
    members.resize(static_cast<size_t>(random.between(1, static_cast<int>(all.size()))));
    if (std::ranges::find(script.groups, members) == script.groups.end())
      script.groups.push_back(members);
  }
}

Signature draw_signature(Random& random) {
  Signature signature;
  signature.collective = one_of(random, kCollectives);
  signature.count = static_cast<uint64_t>(random.between(1, 3)) * 100;
  if (random.chance(25)) signature.strategies = {kStrategies[0], one_of(random, kStrategies)};
  return signature;
}

// Shuffles calls of different groups per rank; each group's calls keep their order.
void draw_calls(Random& random, Script& script) {
  std::vector<Script::Call> all;
  for (int i = random.between(1, 9); i > 0; --i) {
    Script::Call call;
    call.group = static_cast<size_t>(random.below(static_cast<int>(script.groups.size())));
    call.signature = draw_signature(random);
    if (has_root(call.signature.collective))
      call.signature.root =
          static_cast<uint32_t>(random.below(static_cast<int>(script.groups[call.group].size())));
    all.push_back(call);
  }
  const bool mixed = random.chance(30);
  const uint32_t timeout_ms = static_cast<uint32_t>(random.between(60, 300));
  for (size_t rank = 0; rank < script.roster.ranks.size(); ++rank) {
    Script::Rank& mine = script.ranks.emplace_back();
    mine.waits = random.chance(50);
    for (const Script::Call& call : all) {
      const Ranks& members = script.groups[call.group];
      if (std::ranges::find(members, static_cast<int>(rank)) == members.end()) continue;
      mine.calls.push_back(call);
      mine.calls.back().after = random.below(3000);
      mine.calls.back().timeout_ms =
          random.chance(80) ? timeout_ms : static_cast<uint32_t>(random.between(40, 400));
    }
    if (mixed && random.chance(50))
      std::ranges::stable_sort(mine.calls, std::greater<>(), &Script::Call::group);
  }
  script.only_disagrees = !mixed;
}

Script::Rank& some_rank(Random& random, Script& script) {
  return script.ranks[static_cast<size_t>(random.below(static_cast<int>(script.ranks.size())))];
}

void spoil_call(Random& random, Script& script) {
  Script::Rank& rank = some_rank(random, script);
  if (rank.calls.empty()) return;
  const auto at = static_cast<size_t>(random.below(static_cast<int>(rank.calls.size())));
  Script::Call& call = rank.calls[at];
  switch (random.below(6)) {
    case 5:
      call.signature.root =
          static_cast<uint32_t>(random.below(static_cast<int>(script.groups[call.group].size())));
      return;
    case 0:
      call.signature.count += 1;
      return;
    case 1:
      call.signature.collective = one_of(random, kCollectives);
      return;
    case 2:
      call.signature.strategies = {kStrategies[0], one_of(random, kStrategies)};
      return;
    case 3:
      call.invalid = invalid_argument("nonsense " + std::to_string(at), {0, "x"});
      return;
    default:
      call.after += random.between(30, 800) * 1000;
      script.only_disagrees = false;
  }
}

// From some call on the rank makes no more, and is silent, leaves or dies.
void end_rank(Random& random, Script& script) {
  const int which = random.below(static_cast<int>(script.ranks.size()));
  Script::Rank& rank = script.ranks[static_cast<size_t>(which)];
  rank.calls.resize(static_cast<size_t>(random.below(static_cast<int>(rank.calls.size()) + 1)));
  rank.goes = random.chance(70);
  rank.goes_after = random.chance(50) ? 0 : random.below(100'000);
  if (random.chance(60)) rank.cause = unavailable(describe_rank(script.roster, which) + " died");
  script.only_disagrees = false;
}

void stop_host(Random& random, Script& script) {
  Script::Stop stop;
  for (const RosterRank& rank : script.roster.ranks)
    stop.host = std::max(stop.host, rank.host[0] - 'a');
  stop.host = random.below(stop.host + 1);
  stop.at = random.below(random.chance(50) ? 20'000 : 400'000);
  stop.dies = random.chance(25);
  stop.until =
      stop.dies || random.chance(35) ? Script::kNever : stop.at + random.between(5, 900) * 1000;
  script.stops.push_back(stop);
  script.only_disagrees = false;
}

void change_strategy(Random& random, Script& script) {
  Script::Change change;
  change.at = random.below(30'000);
  change.measured = random.chance(50);
  change.group = static_cast<size_t>(random.below(static_cast<int>(script.groups.size())));
  change.strategy = one_of(random, kStrategies);
  script.changes.push_back(change);
}

// Raises all time-outs so that nothing is late.
void relax(Script& script) {
  for (Script::Rank& rank : script.ranks)
    for (Script::Call& call : rank.calls) call.timeout_ms = 10'000;
}

}  // namespace

Script draw(uint64_t seed) {
  Random random(seed);
  Script script;
  draw_job(random, script);
  draw_calls(random, script);
  script.budget_frames = static_cast<uint64_t>(random.chance(70) ? random.below(6) : 1000);
  script.window = random.between(1, 4);
  script.fence_ahead = static_cast<uint64_t>(random.below(4));
  if (random.chance(15)) script.link_delay_most = 15'000;
  if (random.chance(40))
    for (int i = random.between(1, 3); i > 0; --i) change_strategy(random, script);
  if (random.chance(50))
    for (int i = random.between(1, 2); i > 0; --i) spoil_call(random, script);
  if (random.chance(35))
    for (int i = random.between(1, 2); i > 0; --i) end_rank(random, script);
  if (random.chance(30))
    for (int i = random.chance(80) ? 1 : 2; i > 0; --i) stop_host(random, script);
  script.only_disagrees = script.only_disagrees && random.chance(60);
  if (script.only_disagrees) relax(script);
  return script;
}

std::string describe(const Script& script) {
  std::string text = "hosts of ranks:";
  for (const RosterRank& rank : script.roster.ranks) text += " " + rank.host;
  text += "; job strategy " + to_string(script.job) + "; early frames " +
          std::to_string(script.budget_frames) + "; window " + std::to_string(script.window) + "\n";
  for (size_t group = 0; group < script.groups.size(); ++group) {
    text += "group " + std::to_string(Script::number(group)) + ":";
    for (const int rank : script.groups[group]) text += " " + std::to_string(rank);
    text += "\n";
  }
  return text;
}

}  // namespace tutti::simulated
