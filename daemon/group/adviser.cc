#include "daemon/group/adviser.h"

namespace tutti {
namespace {

constexpr size_t kPaddedHostsMost = 8;  // In larger jobs bytes are measured as they come.
constexpr double kByteUsMost = 1000;    // A byte a millisecond: slower, somebody had paused.

}  // namespace

Adviser::Adviser(Tuner& tuner, const std::vector<Host>& hosts, int self, const Options& options,
                 Ask ask)
    : tuner_(tuner),
      hosts_(hosts),
      self_(self),
      options_(options),
      ask_(std::move(ask)),
      prober_(hosts.size()) {}

Tuner::Case Adviser::case_of(uint32_t number, const Communicator& group,
                             const Signature& signature) {
  const auto [known, fresh] = host_sets_.try_emplace(number);
  if (fresh) {
    HostSet host_set;
    for (const int host : group.places())
      host_set.hosts.push_back(hosts_[static_cast<size_t>(host)].name);
    host_set.ranks = group.size();
    known->second = tuner_.host_set(host_set);
  }
  return {known->second, signature.collective, bytes_of(signature)};
}

bool Adviser::may_try(const Signature& signature, const Communicator& group) const {
  return options_.tries_all || keeps_bits(signature, group.places().size());
}

// While a recommend is on its way, operations of that kind say nothing new.
std::optional<Strategy> Adviser::recommend(uint32_t number, const Communicator& group,
                                           const Signature& signature, const Strategy& used) {
  if (group.places().size() == 1 || signature.collective == Collective::barrier)
    return std::nullopt;
  const std::tuple kind{number, signature.collective, size_class(signature)};
  const auto wished = recommended_.find(kind);
  if (wished != recommended_.end() && wished->second != used) return std::nullopt;
  const Strategy best = tuner_.choose(case_of(number, group, signature), may_try(signature, group));
  if (best == used) return std::nullopt;
  recommended_[kind] = best;
  return best;
}

void Adviser::started(uint32_t number, uint64_t seq, const Communicator& group,
                      const Signature& signature, const Strategies& used) {
  watched_.erase(number);
  const bool plain = used.local.kind == StrategyKind::centralized ||
                     group.size() == static_cast<int>(group.places().size());
  const bool moves = signature.collective != Collective::barrier && signature.count != 0;
  if (group.places().size() == 1 || !plain || !moves) return;
  watched_[number] = {seq, case_of(number, group, signature), used.global};
}

void Adviser::took(uint32_t number, uint64_t seq, uint32_t us) {
  const auto found = watched_.find(number);
  if (us == 0 || found == watched_.end() || found->second.seq != seq) return;
  tuner_.observe(found->second.operation, found->second.used, us);
  watched_.erase(found);
  if (!tuner_.take_probe_request()) return;
  for (int host = 0; host < static_cast<int>(hosts_.size()); ++host)
    if (host != self_)
      if (const auto question = prober_.begin(host, padding(), Clock::now())) ask(host, *question);
}

void Adviser::heard_from(int host, TimePoint now) {
  if (!prober_.is_due(host, now)) return;
  if (const auto question = prober_.begin(host, padding(), now)) ask(host, *question);
}

uint64_t Adviser::padding() const {
  return hosts_.size() <= kPaddedHostsMost ? options_.padding_most : 0;
}

void Adviser::ask(int host, const Prober::Question& question) {
  v1::Probe probe;
  probe.set_number(question.number);
  probe.set_padding(std::string(question.padding, '\0'));
  ask_(host, probe);
}

void Adviser::answered(int host, const v1::Probe& probe, TimePoint now) {
  const Prober::Next next = prober_.answered(host, probe.number(), now);
  const bool awaited = next.question || next.findings;
  if (awaited && probe.machine() != 0)
    tuner_.set_machine(hosts_[static_cast<size_t>(host)].name, probe.machine(), probe.cores());
  if (next.question) return ask(host, *next.question);
  if (!next.findings) return;
  const std::string& us = hosts_[static_cast<size_t>(self_)].name;
  const std::string& them = hosts_[static_cast<size_t>(host)].name;
  const LinkFigures figures{next.findings->message_us, next.findings->byte_us};
  tuner_.set_link(us, them, figures);
  tuner_.set_link(them, us, figures);
}

bool Adviser::learn(int host, const v1::Rates& rates) {
  for (const v1::Rate& rate : rates.rates()) {
    if (rate.from() >= hosts_.size()) return false;
    if (!(rate.byte_us() > 0) || rate.byte_us() > kByteUsMost) continue;
    tuner_.set_link(hosts_[rate.from()].name, hosts_[static_cast<size_t>(host)].name,
                    {0, rate.byte_us(), true});
  }
  return true;
}

}  // namespace tutti
