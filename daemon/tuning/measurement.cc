#include "daemon/tuning/measurement.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tutti {
namespace {

double us_between(TimePoint from, TimePoint to) {
  return std::chrono::duration<double, std::micro>(to - from).count();
}

}  // namespace

// ---- Operations ----

void OpClock::started(const EpochOp& op, TimePoint now) {
  const bool alone = running_.empty();
  for (auto& [other, run] : running_) run.alone = false;
  running_[op] = {now, alone};
}

uint32_t OpClock::ended(const EpochOp& op, TimePoint now) {
  const auto run = running_.extract(op);
  if (run.empty() || !run.mapped().alone) return 0;
  const double most = std::numeric_limits<uint32_t>::max();
  return static_cast<uint32_t>(std::min(std::ceil(us_between(run.mapped().from, now)), most));
}

// ---- Bytes ----

void RateMeter::frame(int index, const OpId& key, uint64_t bytes, TimePoint now) {
  constexpr double kFaster = 0.5, kSlower = 0.05, kChange = 0.2;
  Host& host = hosts_[static_cast<size_t>(index)];
  if (host.first == TimePoint{} || host.key != key) {
    host.key = key;
    host.first = now;
    host.bytes = 0;
    return;  // The arrival of its first byte is not known.
  }
  host.bytes += bytes;
  if (host.bytes < kWindowBytes || now - host.first < kWindow) return;
  const double sample = us_between(host.first, now) / static_cast<double>(host.bytes);
  const double weight = host.byte_us == 0 ? 1 : sample < host.byte_us ? kFaster : kSlower;
  host.byte_us += weight * (sample - host.byte_us);
  host.first = now;
  host.bytes = 0;
  any_changed_ |= std::abs(host.byte_us - host.reported) > kChange * host.reported;
}

std::vector<int> RateMeter::take_changed(TimePoint now) {
  if (!any_changed_ || now - last_report_ < kReportEvery) return {};
  any_changed_ = false;
  last_report_ = now;
  std::vector<int> changed;
  for (size_t i = 0; i < hosts_.size(); ++i)
    if (hosts_[i].byte_us != hosts_[i].reported) {
      hosts_[i].reported = hosts_[i].byte_us;
      changed.push_back(static_cast<int>(i));
    }
  return changed;
}

// ---- Messages ----

Prober::Question Prober::ask(Host& host, TimePoint now) {
  host.open = true;
  host.sent = now;
  return {++host.number, host.step < kSmall ? 0 : host.padding};
}

std::optional<Prober::Question> Prober::begin(int index, uint64_t padding, TimePoint now) {
  Host& host = hosts_[static_cast<size_t>(index)];
  if (host.open) return std::nullopt;
  const uint32_t number = host.number;
  host = {};
  host.number = number;
  host.asked = true;
  host.padding = padding;
  return ask(host, now);
}

Prober::Next Prober::answered(int index, uint32_t number, TimePoint now) {
  Host& host = hosts_[static_cast<size_t>(index)];
  if (!host.open || number != host.number) return {};
  host.open = false;
  const double us = us_between(host.sent, now);
  double& least = host.step < kSmall ? host.small_us : host.large_us;
  least = least == 0 ? us : std::min(least, us);
  ++host.step;
  const int steps = kSmall + (host.padding > 0 ? kLarge : 0);
  if (host.step < steps) return {ask(host, now), std::nullopt};
  const LinkFigures figures = figures_of(host);
  host.is_vague = host.padding > 0 && figures.byte_us == 0;
  return {std::nullopt, figures};
}

// A question and its answer are two messages; only the question has padding.
LinkFigures Prober::figures_of(const Host& host) {
  LinkFigures figures{host.small_us / 2};
  if (host.large_us > host.small_us)
    figures.byte_us = (host.large_us - host.small_us) / static_cast<double>(host.padding);
  return figures;
}

bool Prober::is_due(int index, TimePoint now) const {
  const Host& host = hosts_[static_cast<size_t>(index)];
  const Millis after = host.is_vague ? kVagueAgainAfter : kAgainAfter;
  return !host.open && (!host.asked || now - host.sent > after);
}

}  // namespace tutti
