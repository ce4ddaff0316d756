#include "daemon/bench/bench_rank.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <numeric>
#include <optional>
#include <random>
#include <set>

#include "daemon/base/loop.h"
#include "daemon/base/settings.h"
#include "daemon/bench/bench_client.h"
#include "daemon/bench/bench_floor.h"
#include "daemon/bench/bench_report.h"
#include "daemon/control/admin_client.h"
#include "proto/mesh.pb.h"

namespace tutti {
namespace {

constexpr double kMeasuredSeconds = 0.5;
constexpr uint32_t kIterationsMin = 5;
constexpr uint32_t kIterationsMax = 1'000;
constexpr int kCallTimeoutMs = 10'000;
// For a comparison. In the first rounds `auto` measures all strategies and chooses one.
constexpr size_t kSettlingRounds = 20;
constexpr double kRoundsMin = 7;
constexpr double kRoundsMax = 200;

using DoubleMicros = std::chrono::duration<double, std::micro>;

double micros_since(TimePoint start) { return DoubleMicros(Clock::now() - start).count(); }

// As this rank's environment sets it; `tutti run` gives its daemons the same.
std::string transport_between_hosts() {
  Settings settings;
  (void)read_settings_environment(settings);
  return settings.transport == "auto" ? "tcp" : settings.transport;
}

double cpu_seconds(clockid_t clock) {
  timespec used{};
  clock_gettime(clock, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9;
}

double cpu_seconds_of(pid_t pid) {
  clockid_t clock = 0;
  return clock_getcpuclockid(pid, &clock) == 0 ? cpu_seconds(clock) : 0;
}

// Its methods throw BenchError.
class BenchRank {
 public:
  explicit BenchRank(const BenchPlan& plan) : plan_(plan) {
    tutti_group* joined = nullptr;
    check(tutti_join(nullptr, &joined));
    group_.reset(joined);
    std::set<std::string> hosts;
    for (uint32_t r = 0; r < world_size(); ++r) hosts.insert(host_of(r));
    hosts_ = static_cast<uint32_t>(hosts.size());
    find_daemons();
    if (plan_.device == BenchDevice::host) return;
    gpu_.emplace(rank());
    floor_.emplace(group_.get(), *gpu_);
  }

  void run_all();

 private:
  uint32_t rank() const { return static_cast<uint32_t>(tutti_rank(group_.get())); }
  uint32_t world_size() const { return static_cast<uint32_t>(tutti_world_size(group_.get())); }
  std::string host_of(uint32_t rank) const {
    return tutti_host_of(group_.get(), static_cast<int32_t>(rank));
  }
  void find_daemons();
  Place place() {
    return {.group = group_.get(), .shared = plan_.zero_copy, .gpu = gpu_ ? &*gpu_ : nullptr};
  }
  // Measures each size, and prints its row.
  template <class Measure>
  void run_sizes(Collective collective, const Measure& measure);
  BenchRow measure(const BenchCase& bench, const std::string& strategy);
  CompareRow compare(const BenchCase& bench);
  uint64_t verify(const BenchCase& bench, const std::string& strategy, Tensors& tensors);
  void time_iterations(BenchRow& row, Tensors& tensors);
  void time_copies(BenchRow& row);
  uint32_t choose_iterations(const BenchRow& row, Tensors& tensors);
  void time_rounds(CompareRow& row, Tensors& tensors);
  std::vector<double> run_rounds(const CompareRow& row, size_t rounds, Tensors& tensors);
  // Reduces values over all ranks, in place.
  void reduce(std::span<double> values, tutti_op op);
  double cpu_now() const;

  std::optional<BenchGpu> gpu_;  // Where the tensors are; none: on the host. Outlives the group.
  Group group_;
  std::optional<BenchFloor> floor_;
  const BenchPlan& plan_;
  uint32_t hosts_ = 1;
  std::vector<pid_t> daemons_;  // Whose CPU time this rank counts.
  uint64_t wrong_ = 0;
};

// The first rank of each host counts the CPU time of the host's daemons.
void BenchRank::find_daemons() {
  for (uint32_t r = 0; r < rank(); ++r)
    if (host_of(r) == host_of(rank())) return;
  const Result<v1::StatusReply> reply = admin_status(default_address(), true, kCallTimeoutMs);
  if (!reply.ok()) throw BenchError{reply.status()};
  const char* job = std::getenv("TUTTI_JOB");
  for (const v1::AgentReport& agent : reply->agents()) {
    daemons_.push_back(static_cast<pid_t>(agent.pid()));
    for (const v1::WorkerReport& worker : agent.workers())
      if (job != nullptr && worker.job() == job)
        daemons_.push_back(static_cast<pid_t>(worker.pid()));
  }
}

void BenchRank::run_all() {
  for (const Collective collective : plan_.collectives) {
    if (plan_.compare) {
      run_sizes(collective, [this](const BenchCase& bench) { return compare(bench); });
      continue;
    }
    for (const std::string& strategy : plan_.strategies)
      run_sizes(collective, [&](const BenchCase& bench) { return measure(bench, strategy); });
  }
  if (wrong_ > 0)
    throw BenchError{data_loss(std::to_string(wrong_) + " elements of results were wrong")};
}

template <class Measure>
void BenchRank::run_sizes(Collective collective, const Measure& measure) {
  for (uint64_t bytes = plan_.bytes_min; bytes <= plan_.bytes_max; bytes *= plan_.factor) {
    const auto row = measure(bench_case(collective, plan_.dtype, plan_.op, bytes, world_size()));
    wrong_ += row.wrong;
    if (rank() == 0) {
      if (!plan_.json && bytes == plan_.bytes_min) std::fputs(bench_heading(row).c_str(), stdout);
      std::fputs((plan_.json ? bench_json(row) : bench_line(row)).c_str(), stdout);
      std::fflush(stdout);
    }
    if (collective == Collective::barrier) break;  // It has no sizes.
  }
}

BenchRow BenchRank::measure(const BenchCase& bench, const std::string& strategy) {
  Tensors tensors(place(), bench);
  BenchRow row{.bench = bench,
               .strategy = strategy,
               .hosts = hosts_,
               .transport = hosts_ > 1 ? transport_between_hosts() : "shm",
               .zero_copy = plan_.zero_copy};
  row.wrong = verify(bench, strategy, tensors);
  time_iterations(row, tensors);
  if (floor_) time_copies(row);
  return row;
}

void BenchRank::time_copies(BenchRow& row) {
  row.gpus = static_cast<uint32_t>(floor_->gpus());
  row.gpu_model = gpu_->model();
  check(tutti_barrier(group_.get(), nullptr, nullptr));
  row.copy_us = floor_->copy_us(bench_bytes(row.bench));
  reduce({&row.copy_us, 1}, TUTTI_MAX);
}

CompareRow BenchRank::compare(const BenchCase& bench) {
  Tensors tensors(place(), bench);
  CompareRow row{.bench = bench, .hosts = hosts_, .strategies = plan_.strategies};
  for (const std::string& strategy : row.strategies) row.wrong += verify(bench, strategy, tensors);
  time_rounds(row, tensors);
  return row;
}

// Returns the number of wrong elements over all ranks.
uint64_t BenchRank::verify(const BenchCase& bench, const std::string& strategy, Tensors& tensors) {
  fill_input(bench, rank(), tensors.in.bytes());
  std::ranges::fill(tensors.out.bytes(), std::byte{0xff});
  if (bench.collective == Collective::broadcast && rank() == bench.root)
    fill_input(bench, rank(), tensors.out.bytes());
  tensors.in.upload();
  tensors.out.upload();
  run_once(bench, strategy, tensors);
  tensors.out.download();
  auto wrong = static_cast<double>(count_wrong(bench, rank(), tensors.out.bytes()));
  reduce({&wrong, 1}, TUTTI_SUM);
  return static_cast<uint64_t>(wrong);
}

void BenchRank::time_iterations(BenchRow& row, Tensors& tensors) {
  row.iterations = choose_iterations(row, tensors);
  std::vector<double> micros(row.iterations);
  check(tutti_barrier(group_.get(), nullptr, nullptr));
  const double cpu_before = cpu_now();
  for (double& sample : micros) {
    const TimePoint start = Clock::now();
    run_once(row.bench, row.strategy, tensors);
    sample = micros_since(start);
  }
  double cpu = cpu_now() - cpu_before;
  reduce({&cpu, 1}, TUTTI_SUM);
  reduce(micros, TUTTI_MAX);
  row.cpu_s_per_op = cpu / row.iterations;
  row.p50_us = percentile(micros, 50);
  row.p95_us = percentile(micros, 95);
}

// Runs the warm-up, and returns how many operations fill the time; the slowest rank decides.
uint32_t BenchRank::choose_iterations(const BenchRow& row, Tensors& tensors) {
  const uint32_t warmup = std::max(plan_.warmup, 1U);
  const TimePoint start = Clock::now();
  for (uint32_t i = 0; i < warmup; ++i) run_once(row.bench, row.strategy, tensors);
  double micros = micros_since(start) / warmup;
  reduce({&micros, 1}, TUTTI_MAX);
  if (plan_.iterations > 0) return plan_.iterations;
  const double fitting = kMeasuredSeconds * 1e6 / std::max(micros, 1e-3);
  return static_cast<uint32_t>(std::clamp<double>(fitting, kIterationsMin, kIterationsMax));
}

void BenchRank::time_rounds(CompareRow& row, Tensors& tensors) {
  const std::vector<double> settling = run_rounds(row, kSettlingRounds, tensors);
  const double round_us = std::reduce(settling.begin(), settling.end()) / kSettlingRounds;
  const double fitting = kMeasuredSeconds * 1e6 * static_cast<double>(row.strategies.size());
  const auto rounds =
      static_cast<ptrdiff_t>(std::clamp(fitting / round_us, kRoundsMin, kRoundsMax));
  const std::vector<double> micros = run_rounds(row, static_cast<size_t>(rounds), tensors);
  for (auto first = micros.begin(); first != micros.end(); first += rounds)
    row.p50_us.push_back(percentile({first, first + rounds}, 50));
}

// Each round runs every strategy once, so that disturbances meet all alike. The order is shuffled,
// the same on all ranks: how far apart the ranks leave one operation depends on its strategy, and
// delays the next. Returns the slowest rank's times, by strategy, then round.
std::vector<double> BenchRank::run_rounds(const CompareRow& row, size_t rounds, Tensors& tensors) {
  std::vector<double> micros(row.strategies.size() * rounds);
  std::vector<size_t> order(row.strategies.size());
  std::iota(order.begin(), order.end(), 0);
  std::mt19937 random(1);
  for (size_t round = 0; round < rounds; ++round) {
    std::ranges::shuffle(order, random);
    for (const size_t i : order) {
      const TimePoint start = Clock::now();
      run_once(row.bench, row.strategies[i], tensors);
      micros[i * rounds + round] = micros_since(start);
    }
  }
  reduce(micros, TUTTI_MAX);
  return micros;
}

void BenchRank::reduce(std::span<double> values, tutti_op op) {
  check(tutti_all_reduce(group_.get(), values.data(), values.data(), values.size(), TUTTI_F64, op,
                         nullptr, nullptr));
}

double BenchRank::cpu_now() const {
  double seconds = cpu_seconds(CLOCK_PROCESS_CPUTIME_ID);
  for (const pid_t pid : daemons_) seconds += cpu_seconds_of(pid);
  return seconds;
}

}  // namespace

Status check_bench_device(const BenchPlan& plan) {
  return plan.device == BenchDevice::cuda ? bench_driver().status() : Status();
}

Status run_bench_rank(const BenchPlan& plan) {
  try {
    BenchRank(plan).run_all();
  } catch (const BenchError& error) {
    return error.status;
  }
  return {};
}

}  // namespace tutti
