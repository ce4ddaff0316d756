// Chooses the strategy that `auto` stands for, from predictions and from measurements of a running
// job. The leader's host has one and decides for all ranks. Pure: times come in as numbers. It
// outlives epochs: hosts are identified by name.
//
// CANDIDATES. For each set of hosts, collective and size class (powers of two) it holds the
// candidate strategies with their predicted time (cost_model.h, over the measured links) and the
// median of their last measured times. A candidate is rated by its median if it was measured often
// enough, else by its prediction, corrected by the error of the current strategy's prediction.
//
// CHANGES. The current strategy changes for a gain of at least kMargin, seen in kAgreements
// consecutive operations.
//
// TRIALS. If no bit of a result depends on the strategy (`may_try`), and a size class has occurred
// kTrialsAfter times, each candidate predicted within a factor of kPlausible of the best is run
// until it was measured; and again after kTrialsAgain operations, while the old median counts until
// there is a new one. So trials cost a few operations per candidate, and nothing for rare sizes.
//
// DRIFT. If the times of the current strategy leave a band around their former median for kDrift
// consecutive operations, all other measurements of the size class are dropped and the links are
// measured again.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "daemon/base/signature.h"
#include "daemon/tuning/cost_model.h"
#include "daemon/tuning/measurement.h"

namespace tutti {

// Whether no bit of the result depends on the strategy between that many hosts: nothing is rounded,
// or two operands are combined by a commutative operation.
bool keeps_bits(const Signature& signature, size_t hosts);

// The hosts of a group by name, in the group's order, and their total number of ranks.
struct HostSet {
  std::vector<std::string> hosts;
  int ranks = 1;
  auto operator<=>(const HostSet&) const = default;
};

// The median of the last few samples.
class Samples {
 public:
  static constexpr uint64_t kEnough = 5;

  void add(double value);
  uint64_t count() const { return count_; }  // Since the last renew().
  double median() const { return median_; }  // 0 where there are none.
  bool enough() const { return count_ >= kEnough || holds_; }
  // Starts counting anew; the median holds until there are enough samples again.
  void renew() {
    holds_ = enough();
    count_ = 0;
  }
  void clear() {
    holds_ = false;
    count_ = 0;
    median_ = 0;
  }

 private:
  static constexpr size_t kKept = 9;
  std::array<double, kKept> kept_{};
  uint64_t count_ = 0;
  double median_ = 0;
  bool holds_ = false;  // The median is from before renew().
};

class Tuner {
 public:
  static constexpr double kMargin = 0.10;
  static constexpr int kAgreements = 8;
  static constexpr uint64_t kEnough = Samples::kEnough;  // After the first, which is skipped.
  static constexpr uint64_t kTrialsAfter = 16;
  static constexpr uint64_t kTrialsAgain = 4096;
  static constexpr double kPlausible = 3;
  static constexpr int kDrift = 16;
  static constexpr double kBand = 2;  // From half to double.

  explicit Tuner(const Pipeline& pipeline = {}) : pipeline_(pipeline) {}

  // The number by which Case refers to the host set; equal sets have equal numbers.
  int host_set(const HostSet& host_set);

  // An operation as far as the choice depends on it.
  struct Case {
    int host_set = 0;
    Collective collective = Collective::all_reduce;
    uint64_t bytes = 0;
  };
  // The strategy between hosts for the next operation. `may_try`: see TRIALS.
  Strategy choose(const Case& operation, bool may_try);
  // The duration of an operation that ran alone, from its start to its end on the leader's host.
  void observe(const Case& operation, const Strategy& used, double us);

  // A measurement. Figures that are 0 change nothing; a probe's byte_us does not replace one of
  // data.
  void set_link(const std::string& from, const std::string& to, const LinkFigures& figures);
  // Each figure as measured, else the median of those measured, else the model's default.
  LinkCost link(const std::string& from, const std::string& to) const;
  LinkCost typical_link() const;
  // The number of the machine that a host runs on, and that machine's cores.
  void set_machine(const std::string& host, uint64_t machine, uint32_t cores);
  // Whether the links should be probed again. True once per drift.
  bool take_probe_request() { return std::exchange(probe_requested_, false); }

  // ---- For `tutti explain` ----
  struct Row {
    int hosts = 1;
    int ranks = 1;
    Collective collective = Collective::all_reduce;
    uint64_t bytes = 0;  // Upper bound of the size class.
    Strategy strategy;
    double predicted_us = 0;
    double measured_us = 0;  // 0: not yet.
    uint64_t samples = 0;
    bool chosen = false;
  };
  std::vector<Row> rows() const;
  using Pair = std::pair<std::string, std::string>;
  const std::map<Pair, LinkFigures>& links() const { return links_; }

 private:
  struct Candidate {
    Strategy strategy;
    Traffic traffic;
    LinkCost link;
    double predicted_us = 0;  // For the size class's upper bound.
    Samples measured;
    bool warmed = false;  // The first time, which includes dialling and planning, was skipped.
    uint64_t trials = 0;
  };
  using Key = std::tuple<int, Collective, int>;  // Host set, collective, bit width of bytes.
  struct SizeClass {
    uint64_t bytes = 0;
    std::vector<Candidate> candidates;
    uint64_t links_version = 0;
    size_t current = 0;
    size_t challenger = 0;
    int agreements = 0;
    uint64_t operations = 0;
    double usual_us = 0;  // Of the current strategy; 0: not known yet.
    int drifting = 0;
  };

  SizeClass& class_of(const Case& operation);
  void add_candidate(const HostSet& host_set, Collective collective, SizeClass& sizes,
                     const Strategy& strategy);
  Work work_of(int host_set, Collective collective, uint64_t bytes) const;
  void predict_all(const Key& key, SizeClass& sizes);
  LinkCost worst_link(const HostSet& host_set, Collective collective,
                      const Strategy& strategy) const;
  double hosts_a_core(const HostSet& host_set) const;
  static double rating(const SizeClass& sizes, const Candidate& candidate);
  static void reconsider(SizeClass& sizes);
  static void start_trials_anew(SizeClass& sizes);
  static void forget_others(SizeClass& sizes);
  std::optional<size_t> next_trial(const SizeClass& sizes) const;
  void watch_for_drift(SizeClass& sizes, const Candidate& used);

  const Pipeline pipeline_;
  const HostCost host_;
  std::vector<HostSet> host_sets_;
  std::map<HostSet, int> numbers_;
  std::map<Key, SizeClass> classes_;
  std::map<Pair, LinkFigures> links_;
  struct Machine {
    uint64_t number = 0;
    uint32_t cores = 1;
  };
  std::map<std::string, Machine> machines_;  // By host.
  mutable std::optional<LinkCost> typical_;
  uint64_t links_version_ = 1;
  bool probe_requested_ = false;
};

}  // namespace tutti
