#include "tests/membership/simulated_script.h"

#include <algorithm>

namespace tutti::simulated {
namespace {

constexpr Ms kFaulty = 20'000;  // How long things fail.

// One or more hosts, each of a chance, in their order or not.
std::vector<int> some_hosts(Random& random, int hosts) {
  std::vector<int> chosen;
  for (int host = 0; host < hosts; ++host)
    if (random.chance(70)) chosen.push_back(host);
  if (chosen.empty()) chosen.push_back(random.below(hosts));
  if (random.chance(20)) std::ranges::reverse(chosen);
  return chosen;
}

Script::Fault draw_fault(Random& random, int hosts) {
  static constexpr Script::Kind kKinds[] = {
      Script::Kind::agent_suspended, Script::Kind::agent_suspended, Script::Kind::agent_dead,
      Script::Kind::agent_dead,      Script::Kind::agent_ended,     Script::Kind::worker_suspended,
      Script::Kind::worker_dead,     Script::Kind::stream_cut,      Script::Kind::stream_cut,
      Script::Kind::store_silent};
  Script::Fault fault{.kind = kKinds[random.below(std::size(kKinds))], .host = random.below(hosts)};
  fault.at = random.below(kFaulty - 1'000);
  const Ms most = random.chance(50) ? 2'000 : kFaulty;
  fault.takes = std::min<Ms>(random.between(1, static_cast<int>(most)), kFaulty - fault.at);
  return fault;
}

const char* name_of(Script::Kind kind) {
  static const char* const kNames[] = {"agent suspended",  "agent dead",  "agent ended",
                                       "worker suspended", "worker dead", "stream cut",
                                       "store silent"};
  return kNames[static_cast<int>(kind)];
}

}  // namespace

Script draw(uint64_t seed) {
  Random random(seed);
  Script script;
  const int hosts = random.between(1, 4);
  for (int host = 0; host < hosts; ++host)
    script.ranks.push_back(random.chance(70) ? 1 : random.between(2, 3));
  script.elects = random.chance(80);
  script.grace = random.chance(15) ? 0 : random.between(500, 4'000);
  script.timeout_most = random.between(1'000, 8'000);
  script.runs_most = random.between(500, 10'000);
  script.percent_lost = random.chance(50) ? 0 : random.between(1, 15);
  script.percent_late = random.chance(60) ? 0 : random.between(1, 15);
  script.percent_deaths = random.between(0, 40);
  script.heals = kFaulty;
  std::vector<int> all;
  for (int host = 0; host < hosts; ++host) all.push_back(host);
  script.worlds.push_back({0, random.chance(80) ? all : some_hosts(random, hosts)});
  for (int more = random.below(3); more > 0; --more)
    script.worlds.push_back({random.below(kFaulty), some_hosts(random, hosts)});
  std::ranges::sort(script.worlds, {}, &Script::World::from);
  for (int more = random.between(0, 6); more > 0; --more)
    script.faults.push_back(draw_fault(random, hosts));
  std::ranges::sort(script.faults, {}, &Script::Fault::at);
  return script;
}

std::string describe(const Script& script) {
  std::string text = script.elects ? "elects" : "host 0 coordinates";
  text += ", grace " + std::to_string(script.grace) + " ms, lost " +
          std::to_string(script.percent_lost) + " %, late " + std::to_string(script.percent_late) +
          " %; ranks of hosts:";
  for (const int ranks : script.ranks) text += " " + std::to_string(ranks);
  text += "\n";
  for (const Script::World& world : script.worlds) {
    text += "from " + std::to_string(world.from) + " ms the hosts are";
    for (const int host : world.hosts) text += " " + std::to_string(host);
    text += "\n";
  }
  for (const Script::Fault& fault : script.faults)
    text += std::string(name_of(fault.kind)) + ", host " + std::to_string(fault.host) + ", at " +
            std::to_string(fault.at) + " ms for " + std::to_string(fault.takes) + " ms\n";
  return text;
}

}  // namespace tutti::simulated
