// What a World measures for `auto`, and how the leader gets to know it.
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "daemon/group/world.h"

namespace tutti {
namespace {

constexpr uint64_t kProbeBytes = uint64_t{256} << 10;

// The same for all hosts of one machine, whatever their networks and names: it was booted once.
uint64_t machine_number() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return boot.empty() ? 0 : std::hash<std::string>{}(boot) | 1;
}

}  // namespace

void PlainWorld::find_machine() {
  machine_.set_machine(machine_number());
  machine_.set_cores(static_cast<uint32_t>(sysconf(_SC_NPROCESSORS_ONLN)));  // Not only our own.
}

void PlainWorld::make_adviser() {
  if (parts_.tuner == nullptr)
    parts_.tuner = std::make_shared<Tuner>(Pipeline{.slice_bytes = options_.slice_bytes});
  const Adviser::Options options{options_.auto_tries_all,
                                 std::min(kProbeBytes, options_.slice_bytes)};
  adviser_ = std::make_unique<Adviser>(*parts_.tuner, hosts_, self_, options,
                                       [this](int host, const v1::Probe& probe) {
                                         v1::Control control;
                                         *control.mutable_probe() = probe;
                                         outbox_.add(host, std::move(control));
                                       });
  if (machine_.machine() != 0)
    parts_.tuner->set_machine(hosts_[static_cast<size_t>(self_)].name, machine_.machine(),
                              machine_.cores());
}

// What operations of the kind should run by is asked of the tuner as they start; what is wished
// goes the way of every change.
void PlainWorld::advise(const Start& start) {
  const Communicator& group = *member_.find(start.key.group);
  const uint32_t number = start.key.group;
  for (const int host : group.places())
    if (host != self_) adviser_->heard_from(host, Clock::now());
  adviser_->started(number, start.key.number, group, start.signature, start.strategies);
  const Strategies& named = start.signature.strategies;
  const Strategies asked = named == Strategies() ? member_.table(number).job : named;
  if (asked.global.kind != StrategyKind::automatic) return;
  if (const auto wish = adviser_->wish(number, group, start.signature, start.strategies.global))
    leader_->set_measured(number, start.signature.collective, size_class(start.signature), *wish);
}

// A member answers at once, and without the padding; the leader takes the answer.
Status PlainWorld::on_probe(int host, const v1::Probe& probe) {
  if (leader_) {
    adviser_->answered(host, probe, Clock::now());
    return {};
  }
  if (host != 0) return data_loss("a probe that is not the leader's");
  v1::Control answer;
  *answer.mutable_probe() = machine_;
  answer.mutable_probe()->set_number(probe.number());
  outbox_.add(0, std::move(answer));
  return {};
}

// With a call, so that an idle job is silent.
void PlainWorld::tell_rates() {
  const std::vector<int> news = rates_.take_news(Clock::now());
  if (news.empty()) return;
  v1::Control control;
  for (const int host : news) {
    v1::Rate& rate = *control.mutable_rates()->add_rates();
    rate.set_from(static_cast<uint32_t>(host));
    rate.set_byte_us(rates_.byte_us(host));
  }
  if (adviser_)
    adviser_->learn(self_, control.rates());
  else
    outbox_.add(0, std::move(control));
}

}  // namespace tutti
