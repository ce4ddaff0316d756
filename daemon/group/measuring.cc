#include "daemon/group/measuring.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>

#include "daemon/base/hash.h"

namespace tutti {
namespace {

constexpr uint64_t kProbeBytes = uint64_t{256} << 10;

// The same for all hosts on one machine: derived from its boot id.
uint64_t machine_number() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return boot.empty() ? 0 : fnv1a(boot) | 1;
}

}  // namespace

Measuring::Measuring(std::shared_ptr<Tuner> tuner, const std::vector<Host>& hosts, int self,
                     uint64_t slice_bytes, RateMeter& rates, SendControl send)
    : self_(self), rates_(rates), send_(std::move(send)), tuner_(std::move(tuner)) {
  machine_.set_machine(machine_number());
  machine_.set_cores(static_cast<uint32_t>(sysconf(_SC_NPROCESSORS_ONLN)));  // Not only our own.
  if (self_ != 0) return;
  if (tuner_ == nullptr) tuner_ = std::make_shared<Tuner>(Pipeline{.slice_bytes = slice_bytes});
  adviser_.emplace(*tuner_, hosts, self_, std::min(kProbeBytes, slice_bytes),
                   [this](int host, const v1::Probe& probe) {
                     v1::Control control;
                     *control.mutable_probe() = probe;
                     send_(host, std::move(control));
                   });
  if (machine_.machine() != 0)
    tuner_->set_machine(hosts.front().name, machine_.machine(), machine_.cores());
}

void Measuring::on_ended(const EpochOp& op, TimePoint now) {
  const uint32_t us = clock_.ended(op, now);
  if (adviser_) adviser_->on_ended(op, us);
}

std::optional<Strategy> Measuring::recommend(const EpochOp& op, const Communicator& group,
                                             const Signature& signature, const Strategies& used,
                                             const Strategies& asked, TimePoint now) {
  for (const int host : group.hosts())
    if (host != self_) adviser_->probe_if_due(host, now);
  adviser_->on_started(op, group, signature, used);
  if (asked.global.kind != StrategyKind::automatic) return std::nullopt;
  return adviser_->recommend(op.group, group, signature, used.global);
}

void Measuring::report_rates(TimePoint now) {
  const std::vector<int> changed = rates_.take_changed(now);
  if (changed.empty()) return;
  v1::Control control;
  for (const int host : changed) {
    v1::Rate& rate = *control.mutable_rates()->add_rates();
    rate.set_from(static_cast<uint32_t>(host));
    rate.set_byte_us(rates_.byte_us(host));
  }
  if (adviser_)
    adviser_->on_rates(self_, control.rates());
  else
    send_(0, std::move(control));
}

// The others answer at once, without the padding; the leader receives the answer.
Status Measuring::on_probe(int host, const v1::Probe& probe, TimePoint now) {
  if (adviser_) {
    adviser_->on_answer(host, probe, now);
    return {};
  }
  if (host != 0) return data_loss("a probe that is not the leader's");
  v1::Control answer;
  *answer.mutable_probe() = machine_;
  answer.mutable_probe()->set_number(probe.number());
  send_(0, std::move(answer));
  return {};
}

Status Measuring::on_rates(int host, const v1::Rates& rates) {
  if (adviser_ && adviser_->on_rates(host, rates)) return {};
  return data_loss("Rates of an unknown host, or sent to a host that is not the leader");
}

}  // namespace tutti
