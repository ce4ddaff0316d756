#include "daemon/tuning/tuner.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace tutti {
namespace {

constexpr size_t kClassesMax = 4096;   // Beyond it all are dropped and learnt again.
constexpr size_t kCandidatesMax = 16;  // Per size class, including those that calls named.
constexpr double kChange = 0.10;       // A smaller change of a link changes no prediction.

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

bool moved(double before, double now) { return std::abs(now - before) > kChange * before; }

}  // namespace

void Samples::add(double value) {
  kept_[count_ % kKept] = value;
  ++count_;
  std::array<double, kKept> sorted = kept_;
  const auto end = sorted.begin() + static_cast<ptrdiff_t>(std::min<uint64_t>(count_, kKept));
  const auto middle = sorted.begin() + (end - sorted.begin()) / 2;
  std::nth_element(sorted.begin(), middle, end);
  median_ = *middle;
}

int Tuner::host_set(const HostSet& host_set) {
  const auto [found, fresh] = numbers_.try_emplace(host_set, static_cast<int>(host_sets_.size()));
  if (fresh) host_sets_.push_back(host_set);
  return found->second;
}

// ---- Choosing ----

Strategy Tuner::choose(const Case& operation) {
  SizeClass& sizes = class_of(operation);
  reconsider(sizes);
  return sizes.candidates[sizes.current].strategy;
}

double Tuner::rating(const SizeClass& sizes, const Candidate& candidate) {
  if (candidate.measured.enough()) return candidate.measured.median();
  const Candidate& current = sizes.candidates[sizes.current];
  const bool known = current.measured.enough();
  const double correction = known ? current.measured.median() / current.predicted_us : 1;
  return candidate.predicted_us * correction;
}

void Tuner::reconsider(SizeClass& sizes) {
  size_t best = 0;
  for (size_t i = 1; i < sizes.candidates.size(); ++i)
    if (rating(sizes, sizes.candidates[i]) < rating(sizes, sizes.candidates[best])) best = i;
  const double gain =
      1 - rating(sizes, sizes.candidates[best]) / rating(sizes, sizes.candidates[sizes.current]);
  if (best == sizes.current || gain < kMargin) {
    sizes.agreements = 0;
    return;
  }
  sizes.agreements = best == sizes.challenger ? sizes.agreements + 1 : 1;
  sizes.challenger = best;
  if (sizes.agreements < kAgreements) return;
  sizes.current = best;
  sizes.agreements = 0;
}

// ---- Learning ----

void Tuner::observe(const Case& operation, const Strategy& used, double us) {
  SizeClass& sizes = class_of(operation);
  auto found = std::ranges::find(sizes.candidates, used, &Candidate::strategy);
  if (found == sizes.candidates.end()) {
    if (sizes.candidates.size() >= kCandidatesMax) return;
    add_candidate(operation.host_set, operation.collective, sizes, used);
    sizes.links_version = 0;
    class_of(operation);
    found = std::prev(sizes.candidates.end());
  }
  if (!std::exchange(found->warmed, true)) return;
  const Workload work = work_of(operation.host_set, operation.collective, operation.bytes);
  const double predicted = predict(work, found->traffic, found->link, host_, pipeline_).us;
  found->measured.add(us * found->predicted_us / predicted);
}

Tuner::SizeClass& Tuner::class_of(const Case& operation) {
  const auto& [host_set, collective, bytes] = operation;
  const Key key{host_set, collective, std::bit_width(bytes == 0 ? 0 : bytes - 1)};
  if (classes_.size() >= kClassesMax && !classes_.contains(key)) classes_.clear();
  SizeClass& sizes = classes_[key];
  const bool fresh = sizes.candidates.empty();
  if (fresh) {
    const HostSet& who = host_sets_[static_cast<size_t>(host_set)];
    sizes.bytes = bytes == 0 ? 0 : std::bit_ceil(bytes);
    for (const Strategy& strategy : candidates(collective, static_cast<int>(who.hosts.size())))
      add_candidate(host_set, collective, sizes, strategy);
  }
  if (sizes.links_version != links_version_) predict_all(key, sizes);
  if (fresh)
    sizes.current = static_cast<size_t>(
        std::ranges::min_element(sizes.candidates, {}, &Candidate::predicted_us) -
        sizes.candidates.begin());
  return sizes;
}

void Tuner::add_candidate(int host_set, Collective collective, SizeClass& sizes,
                          const Strategy& strategy) {
  Candidate candidate;
  candidate.strategy = strategy;
  candidate.traffic = traffic_of(work_of(host_set, collective, sizes.bytes), strategy);
  sizes.candidates.push_back(candidate);
}

Workload Tuner::work_of(int host_set, Collective collective, uint64_t bytes) const {
  const HostSet& who = host_sets_[static_cast<size_t>(host_set)];
  return {collective, bytes, static_cast<int>(who.hosts.size()), who.ranks, hosts_a_core(who)};
}

void Tuner::predict_all(const Key& key, SizeClass& sizes) {
  const auto [host_set, collective, width] = key;
  const Workload work = work_of(host_set, collective, sizes.bytes);
  for (Candidate& candidate : sizes.candidates) {
    candidate.link =
        worst_link(host_sets_[static_cast<size_t>(host_set)], collective, candidate.strategy);
    candidate.predicted_us = predict(work, candidate.traffic, candidate.link, host_, pipeline_).us;
  }
  sizes.links_version = links_version_;
}

// Hosts per core of the most loaded machine that several of the hosts share; 0 if none is shared.
double Tuner::hosts_a_core(const HostSet& host_set) const {
  std::map<uint64_t, int> hosts;
  double most = 0;
  for (const std::string& host : host_set.hosts) {
    const auto found = machines_.find(host);
    if (found == machines_.end()) continue;
    const int here = ++hosts[found->second.number];
    if (here > 1) most = std::max(most, static_cast<double>(here) / found->second.cores);
  }
  return most;
}

// ---- Links ----

void Tuner::set_machine(const std::string& host, uint64_t machine, uint32_t cores) {
  const auto [known, fresh] = machines_.try_emplace(host);
  if (!fresh && known->second.number == machine) return;
  known->second = {machine, std::max(1u, cores)};
  ++links_version_;
}

void Tuner::set_link(const std::string& from, const std::string& to, const LinkFigures& figures) {
  LinkFigures& kept = links_[{from, to}];
  const LinkFigures before = kept;
  if (figures.message_us > 0) kept.message_us = figures.message_us;
  if (figures.byte_us > 0 && (figures.of_data || !kept.of_data)) kept.byte_us = figures.byte_us;
  kept.of_data = before.of_data || (figures.of_data && figures.byte_us > 0);
  if (!moved(before.message_us, kept.message_us) && !moved(before.byte_us, kept.byte_us)) {
    kept.message_us = before.message_us;
    kept.byte_us = before.byte_us;
    return;
  }
  typical_.reset();
  ++links_version_;
}

LinkCost Tuner::typical_link() const {
  if (typical_) return *typical_;
  std::vector<double> messages, bytes;
  for (const auto& [pair, figures] : links_) {
    if (figures.message_us > 0) messages.push_back(figures.message_us);
    if (figures.byte_us > 0) bytes.push_back(figures.byte_us);
  }
  LinkCost cost;
  if (!messages.empty()) cost.message_us = median_of(std::move(messages));
  if (!bytes.empty()) cost.byte_us = median_of(std::move(bytes));
  typical_ = cost;
  return cost;
}

LinkCost Tuner::link(const std::string& from, const std::string& to) const {
  LinkCost cost = typical_link();
  const auto found = links_.find({from, to});
  if (found == links_.end()) return cost;
  if (found->second.message_us > 0) cost.message_us = found->second.message_us;
  if (found->second.byte_us > 0) cost.byte_us = found->second.byte_us;
  return cost;
}

// The costliest figures of the links that the strategy uses, in both directions.
LinkCost Tuner::worst_link(const HostSet& host_set, Collective collective,
                           const Strategy& strategy) const {
  Plan plan;
  plan.collective = collective;
  plan.strategies = {{StrategyKind::centralized}, strategy};
  const int hosts = static_cast<int>(host_set.hosts.size());
  for (int host = 0; host < hosts; ++host) plan.hosts.push_back({host});
  LinkCost worst{0, 0};
  for (const auto& [one, other] : host_pairs(plan)) {
    const std::string& a = host_set.hosts[static_cast<size_t>(one)];
    const std::string& b = host_set.hosts[static_cast<size_t>(other)];
    for (const LinkCost& cost : {link(a, b), link(b, a)}) {
      worst.message_us = std::max(worst.message_us, cost.message_us);
      worst.byte_us = std::max(worst.byte_us, cost.byte_us);
    }
  }
  return worst.byte_us > 0 ? worst : typical_link();
}

std::vector<Tuner::Row> Tuner::rows() const {
  std::vector<Row> rows;
  for (const auto& [key, sizes] : classes_)
    for (size_t i = 0; i < sizes.candidates.size(); ++i) {
      const auto& [number, collective, width] = key;
      const HostSet& host_set = host_sets_[static_cast<size_t>(number)];
      const Candidate& candidate = sizes.candidates[i];
      rows.push_back({static_cast<int>(host_set.hosts.size()), host_set.ranks, collective,
                      sizes.bytes, candidate.strategy, candidate.predicted_us,
                      candidate.measured.median(), candidate.measured.count(), i == sizes.current});
    }
  return rows;
}

}  // namespace tutti
