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
// consecutive operations. The tuner never runs a strategy only to measure it: what calls name and
// what was in force before is measured, and everything else is predicted. Trials of other
// strategies, and measuring again as times drift, were built and compared with this: they were no
// faster, and slower while they ran.
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
  uint64_t count() const { return count_; }  // Of all that were added.
  double median() const { return median_; }  // 0 where there are none.
  bool enough() const { return count_ >= kEnough; }

 private:
  static constexpr size_t kKept = 9;
  std::array<double, kKept> kept_{};
  uint64_t count_ = 0;
  double median_ = 0;
};

class Tuner {
 public:
  static constexpr double kMargin = 0.10;
  static constexpr int kAgreements = 8;
  static constexpr uint64_t kEnough = Samples::kEnough;  // After the first, which is skipped.

  explicit Tuner(const Pipeline& pipeline = {}) : pipeline_(pipeline) {}

  // The number by which Case refers to the host set; equal sets have equal numbers.
  int host_set(const HostSet& host_set);

  // An operation as far as the choice depends on it.
  struct Case {
    int host_set = 0;
    Collective collective = Collective::all_reduce;
    uint64_t bytes = 0;
  };
  // The strategy between hosts for the next operation.
  Strategy choose(const Case& operation);
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

  // ---- For `tutti strategy JOB` ----
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
  };
  using Key = std::tuple<int, Collective, int>;  // Host set, collective, bit width of bytes.
  struct SizeClass {
    uint64_t bytes = 0;
    std::vector<Candidate> candidates;
    uint64_t links_version = 0;
    size_t current = 0;
    size_t challenger = 0;
    int agreements = 0;
  };

  SizeClass& class_of(const Case& operation);
  void add_candidate(int host_set, Collective collective, SizeClass& sizes,
                     const Strategy& strategy);
  Workload work_of(int host_set, Collective collective, uint64_t bytes) const;
  void predict_all(const Key& key, SizeClass& sizes);
  LinkCost worst_link(const HostSet& host_set, Collective collective,
                      const Strategy& strategy) const;
  double hosts_a_core(const HostSet& host_set) const;
  static double rating(const SizeClass& sizes, const Candidate& candidate);
  static void reconsider(SizeClass& sizes);

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
};

}  // namespace tutti
