// What `auto` means, learnt while a job runs. The leader's, and it decides for all ranks. Pure:
// times come in as numbers. It outlives an epoch: hosts are known by name.
//
// FROM WHAT IT CHOOSES. For each set of hosts, collective and size class (powers of two) it holds
// the candidates with their predicted time (cost_model.h, over the measured links) and the median
// of their last measured times. A candidate that was measured often enough counts with that; one
// that was not, with its prediction, corrected by as much as the prediction of the one in use is
// off.
//
// WHEN IT CHANGES ITS MIND. Only for a gain of kMargin, and only after kAgreements operations in a
// row that say so.
//
// WHAT IT TRIES. Where no bit of a result depends on the strategy (`may_try`), and a size has come
// kTrialsAfter times, each candidate predicted within kPlausible of the best is run until it was
// measured, once; and again after kTrialsAgain operations, where what was measured before counts
// until it was measured again. That is all: at most a few operations a
// candidate, and none for sizes that come seldom.
//
// DRIFT. Where the times of the one in use leave a band around what they were, for kDrift
// operations in a row, all other measurements of that size are forgotten, and the links are
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

namespace tutti {

// Whether no bit of the result depends on the strategy between so many hosts: nothing is rounded,
// or sums of two that are the same either way round.
bool keeps_bits(const Signature& signature, size_t hosts);

// Who takes part in a group: its hosts by name, in the group's order, and how many ranks they have
// together.
struct HostSet {
  std::vector<std::string> hosts;
  int ranks = 1;
  auto operator<=>(const HostSet&) const = default;
};

// What was measured of the way from one host to another; 0: not yet.
struct LinkFigures {
  double message_us = 0;
  double byte_us = 0;
  bool of_data = false;  // byte_us is of data as it came, which is better than a probe's.
  bool operator==(const LinkFigures&) const = default;
};

// The median of the last few samples.
class Samples {
 public:
  static constexpr uint64_t kEnough = 5;  // To be believed.

  void add(double value);
  uint64_t count() const { return count_; }  // Of all since the last renew().
  double median() const { return median_; }  // 0 where there are none.
  bool enough() const { return count_ >= kEnough || holds_; }
  // Begins anew, but the median holds until there are enough again.
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
  bool holds_ = false;  // It is of before renew().
};

class Tuner {
 public:
  static constexpr double kMargin = 0.10;
  static constexpr int kAgreements = 8;
  static constexpr uint64_t kEnough = Samples::kEnough;  // The first of each strategy is not taken.
  static constexpr uint64_t kTrialsAfter = 16;
  static constexpr uint64_t kTrialsAgain = 4096;
  static constexpr double kPlausible = 3;
  static constexpr int kDrift = 16;
  static constexpr double kBand = 2;  // From half to double.

  explicit Tuner(const Pipeline& pipeline = {}) : pipeline_(pipeline) {}

  // A number for the host_set, to be used below; the same for the same host_set.
  int host_set(const HostSet& host_set);

  // An operation that is to run. `whole`: by no strategy that splits the tensor, so that it can run
  // as one with others.
  struct Case {
    int host_set = 0;
    Collective collective = Collective::all_reduce;
    uint64_t bytes = 0;
    bool whole = false;
  };
  // The strategy between hosts for the next operation. `may_try`: no bit of its result depends on
  // it.
  Strategy choose(const Case& operation, bool may_try);
  // How long an operation took, from its start to its end on the last host, while no other ran.
  void observe(const Case& operation, const Strategy& used, double us);

  // A measurement; what is 0 is left as it was, and a figure of data by a probe's.
  void set_link(const std::string& from, const std::string& to, const LinkFigures& figures);
  // Measured, or typical of those that were, or the model's default.
  LinkCost link(const std::string& from, const std::string& to) const;
  LinkCost typical_link() const;
  // Where a host is: the number of its machine, and how many cores that has.
  void set_machine(const std::string& host, uint64_t machine, uint32_t cores);
  // Reality drifted: the links should be probed again. True once for each drift.
  bool take_probe_request() { return std::exchange(probe_requested_, false); }

  // ---- For `tutti explain` ----
  struct Row {
    int hosts = 1;
    int ranks = 1;
    Collective collective = Collective::all_reduce;
    uint64_t bytes = 0;  // The class: up to this many.
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
    double predicted_us = 0;  // At the class's bytes.
    Samples measured;
    bool warmed = false;  // The first time counts for nothing: links were dialled, plans made.
    uint64_t trials = 0;
  };
  using Key =
      std::tuple<int, Collective, int, bool>;  // HostSet, collective, width of bytes, whole.
  struct Class {
    uint64_t bytes = 0;
    std::vector<Candidate> candidates;
    uint64_t links_version = 0;
    size_t current = 0;
    size_t challenger = 0;
    int agreements = 0;
    uint64_t operations = 0;
    double usual_us = 0;  // Of the one in use; 0: not known yet.
    int drifting = 0;
  };

  Class& class_of(const Case& operation);
  void add_candidate(const HostSet& host_set, Collective collective, Class& of,
                     const Strategy& strategy);
  Work work_of(int host_set, Collective collective, uint64_t bytes) const;
  void predict_all(const Key& key, Class& of);
  LinkCost worst_link(const HostSet& host_set, Collective collective,
                      const Strategy& strategy) const;
  double hosts_a_core(const HostSet& host_set) const;
  static double rating(const Class& of, const Candidate& candidate);
  static void reconsider(Class& of);
  static void start_trials_anew(Class& of);
  static void forget_others(Class& of);
  std::optional<size_t> next_trial(const Class& of) const;
  void watch_for_drift(Class& of, const Candidate& used);

  const Pipeline pipeline_;
  const HostCost host_;
  std::vector<HostSet> host_sets_;
  std::map<HostSet, int> numbers_;
  std::map<Key, Class> classes_;
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
