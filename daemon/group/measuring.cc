#include "daemon/group/measuring.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>

#include "daemon/base/hash.h"
#include "daemon/group/movement.h"

namespace tutti {
namespace {

constexpr uint64_t kProbeBytes = uint64_t{256} << 10;
constexpr size_t kPaddedHostsMax = 8;  // In larger jobs probes have no padding.
constexpr double kByteUsMax = 1000;    // Slower rates are taken for pauses of the sender.

// The same for all hosts on one machine: derived from its boot id.
uint64_t machine_number() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return boot.empty() ? 0 : fnv1a(boot) | 1;
}

}  // namespace

Measuring::Measuring(std::shared_ptr<Tuner> tuner, const std::vector<Host>& hosts, int self,
                     uint64_t slice_bytes, RateMeter& rates, SendControl send)
    : hosts_(hosts),
      self_(self),
      rates_(rates),
      send_(std::move(send)),
      tuner_(std::move(tuner)),
      padding_(hosts.size() <= kPaddedHostsMax ? std::min(kProbeBytes, slice_bytes) : 0),
      prober_(hosts.size()) {
  machine_.set_machine(machine_number());
  machine_.set_cores(static_cast<uint32_t>(sysconf(_SC_NPROCESSORS_ONLN)));  // Not only our own.
  if (self_ != 0) return;
  if (tuner_ == nullptr) tuner_ = std::make_shared<Tuner>(Pipeline{.slice_bytes = slice_bytes});
  if (machine_.machine() != 0)
    tuner_->set_machine(name_of(self_), machine_.machine(), machine_.cores());
}

// ---- Operations ----

Tuner::Case Measuring::case_of(uint32_t number, const Communicator& group,
                               const Signature& signature) {
  const auto [known, fresh] = host_sets_.try_emplace(number);
  if (fresh) {
    HostSet host_set;
    for (const int host : group.hosts()) host_set.hosts.push_back(name_of(host));
    host_set.ranks = group.size();
    known->second = tuner_->host_set(host_set);
  }
  return {known->second, signature.collective, bytes_of(signature)};
}

// While a recommended strategy is not in force yet, nothing further is recommended for its kind.
std::optional<Strategy> Measuring::recommend(const EpochOp& op, const Communicator& group,
                                             const Signature& signature, const Strategies& used,
                                             const Strategies& asked, TimePoint now) {
  for (const int host : group.hosts()) {
    if (host == self_ || !prober_.is_due(host, now)) continue;
    if (const auto question = prober_.begin(host, padding_, now)) send_probe(host, *question);
  }
  watch(op, group, signature, used);
  if (asked.global.kind != StrategyKind::automatic || group.hosts().size() == 1 ||
      signature.collective == Collective::barrier || !goes_by_links(signature, group))
    return std::nullopt;
  const std::tuple kind{op.group, signature.collective, size_class(signature)};
  const auto recommended = recommended_.find(kind);
  const auto is_used = [&](const Strategy& strategy) {
    return automatic_for(signature, group, strategy) == used.global;
  };
  if (recommended != recommended_.end() && !is_used(recommended->second)) return std::nullopt;
  const Strategy best = tuner_->choose(case_of(op.group, group, signature));
  if (is_used(best)) return std::nullopt;
  recommended_[kind] = best;
  return best;
}

void Measuring::watch(const EpochOp& op, const Communicator& group, const Signature& signature,
                      const Strategies& used) {
  watched_.erase(op.group);
  const bool plain = used.local.kind == StrategyKind::centralized ||
                     group.size() == static_cast<int>(group.hosts().size());
  const bool moves = signature.collective != Collective::barrier && signature.count != 0;
  // Reproducible ones move otherwise than what is predicted: only links are measured by them.
  if (group.hosts().size() == 1 || !plain || !moves || signature.reproducible) return;
  watched_[op.group] = {op.number, case_of(op.group, group, signature), used.global};
}

void Measuring::on_ended(const EpochOp& op, TimePoint now) {
  const uint32_t us = clock_.ended(op, now);
  const auto found = watched_.find(op.group);
  if (us == 0 || found == watched_.end() || found->second.number != op.number) return;
  tuner_->observe(found->second.operation, found->second.used, us);
  watched_.erase(found);
}

// ---- Probes ----

void Measuring::send_probe(int host, const Prober::Question& question) {
  v1::Control control;
  control.mutable_probe()->set_number(question.number);
  control.mutable_probe()->set_padding(std::string(question.padding, '\0'));
  send_(host, std::move(control));
}

// The others answer at once, without the padding; the leader receives the answer.
Status Measuring::on_probe(int host, const v1::Probe& probe, TimePoint now) {
  if (self_ == 0) {
    on_answer(host, probe, now);
    return {};
  }
  if (host != 0) return data_loss("a probe that is not the leader's");
  v1::Control answer;
  *answer.mutable_probe() = machine_;
  answer.mutable_probe()->set_number(probe.number());
  send_(0, std::move(answer));
  return {};
}

void Measuring::on_answer(int host, const v1::Probe& answer, TimePoint now) {
  const Prober::Next next = prober_.answered(host, answer.number(), now);
  const bool awaited = next.question || next.figures;
  if (awaited && answer.machine() != 0)
    tuner_->set_machine(name_of(host), answer.machine(), answer.cores());
  if (next.question) return send_probe(host, *next.question);
  if (!next.figures) return;
  tuner_->set_link(name_of(self_), name_of(host), *next.figures);
  tuner_->set_link(name_of(host), name_of(self_), *next.figures);
}

// ---- Rates ----

void Measuring::report_rates(TimePoint now) {
  const std::vector<int> changed = rates_.take_changed(now);
  if (changed.empty()) return;
  v1::Control control;
  for (const int host : changed) {
    v1::Rate& rate = *control.mutable_rates()->add_rates();
    rate.set_from(static_cast<uint32_t>(host));
    rate.set_byte_us(rates_.byte_us(host));
  }
  if (self_ != 0) return send_(0, std::move(control));
  require(on_rates(self_, control.rates()).ok(), "a host measures rates of hosts that it knows");
}

Status Measuring::on_rates(int host, const v1::Rates& rates) {
  const auto is_unknown = [this](const v1::Rate& rate) { return rate.from() >= hosts_.size(); };
  if (self_ != 0 || std::ranges::any_of(rates.rates(), is_unknown))
    return data_loss("Rates of an unknown host, or sent to a host that is not the leader");
  for (const v1::Rate& rate : rates.rates()) {
    if (!(rate.byte_us() > 0) || rate.byte_us() > kByteUsMax) continue;
    tuner_->set_link(hosts_[rate.from()].name, name_of(host), {0, rate.byte_us(), true});
  }
  return {};
}

}  // namespace tutti
