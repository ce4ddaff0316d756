#include "daemon/group/adviser.h"

namespace tutti {
namespace {

constexpr size_t kPaddedHostsMax = 8;  // In larger jobs probes have no padding.
constexpr double kByteUsMax = 1000;    // Slower rates are taken for pauses of the sender.

}  // namespace

Adviser::Adviser(Tuner& tuner, const std::vector<Host>& hosts, int self, uint64_t padding_most,
                 SendProbe send_probe)
    : tuner_(tuner),
      hosts_(hosts),
      self_(self),
      padding_most_(padding_most),
      send_probe_(std::move(send_probe)),
      prober_(hosts.size()) {}

Tuner::Case Adviser::case_of(uint32_t number, const Communicator& group,
                             const Signature& signature) {
  const auto [known, fresh] = host_sets_.try_emplace(number);
  if (fresh) {
    HostSet host_set;
    for (const int host : group.hosts())
      host_set.hosts.push_back(hosts_[static_cast<size_t>(host)].name);
    host_set.ranks = group.size();
    known->second = tuner_.host_set(host_set);
  }
  return {known->second, signature.collective, bytes_of(signature)};
}

// While a recommended strategy is not in force yet, nothing further is recommended for its kind.
std::optional<Strategy> Adviser::recommend(uint32_t number, const Communicator& group,
                                           const Signature& signature, const Strategy& used) {
  if (group.hosts().size() == 1 || signature.collective == Collective::barrier) return std::nullopt;
  const std::tuple kind{number, signature.collective, size_class(signature)};
  const auto recommended = recommended_.find(kind);
  if (recommended != recommended_.end() && recommended->second != used) return std::nullopt;
  const Strategy best = tuner_.choose(case_of(number, group, signature));
  if (best == used) return std::nullopt;
  recommended_[kind] = best;
  return best;
}

void Adviser::on_started(const EpochOp& op, const Communicator& group, const Signature& signature,
                         const Strategies& used) {
  watched_.erase(op.group);
  const bool plain = used.local.kind == StrategyKind::centralized ||
                     group.size() == static_cast<int>(group.hosts().size());
  const bool moves = signature.collective != Collective::barrier && signature.count != 0;
  if (group.hosts().size() == 1 || !plain || !moves) return;
  watched_[op.group] = {op.number, case_of(op.group, group, signature), used.global};
}

void Adviser::on_ended(const EpochOp& op, uint32_t us) {
  const auto found = watched_.find(op.group);
  if (us == 0 || found == watched_.end() || found->second.number != op.number) return;
  tuner_.observe(found->second.operation, found->second.used, us);
  watched_.erase(found);
}

void Adviser::probe_if_due(int host, TimePoint now) {
  if (prober_.is_due(host, now)) probe(host, now);
}

void Adviser::probe(int host, TimePoint now) {
  const uint64_t padding = hosts_.size() <= kPaddedHostsMax ? padding_most_ : 0;
  if (const auto question = prober_.begin(host, padding, now)) send(host, *question);
}

void Adviser::send(int host, const Prober::Question& question) {
  v1::Probe probe;
  probe.set_number(question.number);
  probe.set_padding(std::string(question.padding, '\0'));
  send_probe_(host, probe);
}

void Adviser::on_answer(int host, const v1::Probe& probe, TimePoint now) {
  const Prober::Next next = prober_.answered(host, probe.number(), now);
  const bool awaited = next.question || next.figures;
  if (awaited && probe.machine() != 0)
    tuner_.set_machine(hosts_[static_cast<size_t>(host)].name, probe.machine(), probe.cores());
  if (next.question) return send(host, *next.question);
  if (!next.figures) return;
  const std::string& us = hosts_[static_cast<size_t>(self_)].name;
  const std::string& them = hosts_[static_cast<size_t>(host)].name;
  tuner_.set_link(us, them, *next.figures);
  tuner_.set_link(them, us, *next.figures);
}

bool Adviser::on_rates(int host, const v1::Rates& rates) {
  for (const v1::Rate& rate : rates.rates()) {
    if (rate.from() >= hosts_.size()) return false;
    if (!(rate.byte_us() > 0) || rate.byte_us() > kByteUsMax) continue;
    tuner_.set_link(hosts_[rate.from()].name, hosts_[static_cast<size_t>(host)].name,
                    {0, rate.byte_us(), true});
  }
  return true;
}

}  // namespace tutti
