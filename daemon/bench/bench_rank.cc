#include "daemon/bench/bench_rank.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <numeric>
#include <random>
#include <set>

#include "daemon/base/settings.h"
#include "daemon/bench/bench_buffer.h"
#include "daemon/mesh/mesh.h"

namespace tutti {
namespace {

constexpr double kMeasuredSeconds = 0.5;
constexpr uint32_t kIterationsLeast = 5;
constexpr uint32_t kIterationsMost = 1'000;
constexpr int kCallTimeoutMs = 10'000;
// Of a comparison. To settle: for `auto` to have measured all and to have made up its mind.
constexpr size_t kSettlingRounds = 20;
constexpr double kRoundsLeast = 7;
constexpr double kRoundsMost = 200;

using Seconds = std::chrono::duration<double>;

// As this rank's environment sets it, which is that of its daemons where `tutti run` made them.
std::string transport_between_hosts() {
  Settings settings;
  (void)read_settings_environment(
      settings, [](const std::string& name) { return std::getenv(name.c_str()); });
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

class BenchRank {
 public:
  BenchRank(Group group, const BenchPlan& plan) : group_(std::move(group)), plan_(plan) {
    std::set<std::string> hosts;
    for (int32_t rank = 0; rank < world_size(); ++rank)
      hosts.insert(tutti_host_of(group_.get(), rank));
    hosts_ = static_cast<uint32_t>(hosts.size());
  }

  // The first rank of a host answers for the CPU time of the host's daemons.
  Status find_daemons();
  Status run_all();

 private:
  int32_t rank() const { return tutti_rank(group_.get()); }
  int32_t world_size() const { return tutti_world_size(group_.get()); }

  // Measures each size, and prints its row.
  template <class Measure>
  Status run_series(Collective collective, const Measure& measure);
  Result<BenchRow> measure(const BenchCase& bench, const std::string& strategy);
  Result<CompareRow> compare(const BenchCase& bench);
  Status time_rounds(CompareRow& row, Buffer& in, Buffer& out);
  Result<std::vector<double>> run_rounds(const CompareRow& row, size_t rounds, Buffer& in,
                                         Buffer& out);
  Status operate(const BenchCase& bench, const std::string& strategy, Buffer& in, Buffer& out);
  Result<uint64_t> verify(const BenchCase& bench, const std::string& strategy, Buffer& in,
                          Buffer& out);
  Status time_it(BenchRow& row, Buffer& in, Buffer& out);
  Result<uint32_t> choose_iterations(const BenchRow& row, Buffer& in, Buffer& out);
  Status agree(double* values, size_t count, tutti_op op);
  double cpu_now() const;
  void print(const std::string& text) const;

  Group group_;
  const BenchPlan& plan_;
  uint32_t hosts_ = 1;
  std::vector<pid_t> daemons_;
  uint64_t wrong_ = 0;
};

Status BenchRank::find_daemons() {
  const std::string host = tutti_host_of(group_.get(), rank());
  for (int32_t r = 0; r < rank(); ++r)
    if (host == tutti_host_of(group_.get(), r)) return {};
  const Result<v1::StatusReply> reply = admin_status(default_address(), true, kCallTimeoutMs);
  if (!reply.ok()) return reply.status();
  const char* job = std::getenv("TUTTI_JOB");
  for (const v1::AgentReport& agent : reply->agents()) {
    daemons_.push_back(static_cast<pid_t>(agent.pid()));
    for (const v1::WorkerReport& worker : agent.workers())
      if (job != nullptr && worker.job() == job)
        daemons_.push_back(static_cast<pid_t>(worker.pid()));
  }
  return {};
}

Status BenchRank::run_all() {
  for (const Collective collective : plan_.collectives) {
    if (plan_.compare) {
      Status status = run_series(collective, [this](const BenchCase& b) { return compare(b); });
      if (!status.ok()) return status;
      continue;
    }
    for (const std::string& strategy : plan_.strategies) {
      Status status =
          run_series(collective, [&](const BenchCase& b) { return measure(b, strategy); });
      if (!status.ok()) return status;
    }
  }
  if (wrong_ > 0) return data_loss(std::to_string(wrong_) + " elements of results were wrong");
  return {};
}

template <class Measure>
Status BenchRank::run_series(Collective collective, const Measure& measure) {
  for (uint64_t bytes = plan_.bytes_min; bytes <= plan_.bytes_max; bytes *= plan_.factor) {
    const auto row = measure(
        bench_case(collective, plan_.dtype, plan_.op, bytes, static_cast<uint32_t>(world_size())));
    if (!row.ok()) return row.status();
    wrong_ += row->wrong;
    const bool first = bytes == plan_.bytes_min;
    print(plan_.json ? bench_json(*row) : (first ? bench_heading(*row) : "") + bench_line(*row));
    if (collective == Collective::barrier) break;  // It has no sizes.
  }
  return {};
}

Result<BenchRow> BenchRank::measure(const BenchCase& bench, const std::string& strategy) {
  const size_t width = size_of(bench.dtype);
  Buffer in(group_.get(), input_elements(bench) * width, plan_.zero_copy);
  Buffer out(group_.get(), output_elements(bench) * width, plan_.zero_copy);
  if (!in.valid() || !out.valid())
    return resource_exhausted("no memory for tensors of " + std::to_string(bench_bytes(bench)) +
                              " bytes: lower --max");
  BenchRow row{.bench = bench,
               .strategy = strategy,
               .hosts = hosts_,
               .transport = hosts_ > 1 ? transport_between_hosts() : "shm",
               .zero_copy = plan_.zero_copy};
  const Result<uint64_t> wrong = verify(bench, strategy, in, out);
  if (!wrong.ok()) return wrong.status();
  row.wrong = *wrong;
  const Status status = time_it(row, in, out);
  if (!status.ok()) return status;
  return row;
}

Status BenchRank::operate(const BenchCase& bench, const std::string& strategy, Buffer& in,
                          Buffer& out) {
  tutti_options options = tutti_defaults();
  options.strategy = strategy.c_str();
  const auto dtype = static_cast<tutti_dtype>(bench.dtype);
  const auto op = static_cast<tutti_op>(bench.op);
  const auto root = static_cast<int32_t>(bench.root);
  tutti_group* group = group_.get();
  switch (bench.collective) {
    case Collective::all_reduce:
      return status_of(tutti_all_reduce(group, in.data(), out.data(), bench.count, dtype, op,
                                        &options, nullptr));
    case Collective::reduce:
      return status_of(tutti_reduce(group, in.data(), out.data(), bench.count, dtype, op, root,
                                    &options, nullptr));
    case Collective::broadcast:
      return status_of(
          tutti_broadcast(group, out.data(), bench.count, dtype, root, &options, nullptr));
    case Collective::all_gather:
      return status_of(
          tutti_all_gather(group, in.data(), out.data(), bench.count, dtype, &options, nullptr));
    case Collective::reduce_scatter:
      return status_of(tutti_reduce_scatter(group, in.data(), out.data(), bench.count, dtype, op,
                                            &options, nullptr));
    case Collective::barrier:
      return status_of(tutti_barrier(group, &options, nullptr));
  }
  return {};
}

Result<uint64_t> BenchRank::verify(const BenchCase& bench, const std::string& strategy, Buffer& in,
                                   Buffer& out) {
  const auto me = static_cast<uint32_t>(rank());
  fill_input(bench, me, in.bytes());
  std::memset(out.data(), 0xff, out.bytes().size());
  if (bench.collective == Collective::broadcast && me == bench.root)
    fill_input(bench, me, out.bytes());
  Status status = operate(bench, strategy, in, out);
  if (!status.ok()) return status;
  auto wrong = static_cast<double>(count_wrong(bench, me, out.bytes()));
  status = agree(&wrong, 1, TUTTI_SUM);
  if (!status.ok()) return status;
  return static_cast<uint64_t>(wrong);
}

Status BenchRank::time_it(BenchRow& row, Buffer& in, Buffer& out) {
  const Result<uint32_t> iterations = choose_iterations(row, in, out);
  if (!iterations.ok()) return iterations.status();
  row.iterations = *iterations;
  std::vector<double> micros(row.iterations);
  Status status = status_of(tutti_barrier(group_.get(), nullptr, nullptr));
  const double cpu_before = cpu_now();
  for (double& sample : micros) {
    if (!status.ok()) return status;
    const TimePoint start = Clock::now();
    status = operate(row.bench, row.strategy, in, out);
    sample = Seconds(Clock::now() - start).count() * 1e6;
  }
  double cpu = cpu_now() - cpu_before;
  if (status.ok()) status = agree(&cpu, 1, TUTTI_SUM);
  if (status.ok()) status = agree(micros.data(), micros.size(), TUTTI_MAX);
  row.cpu_s_per_op = cpu / row.iterations;
  row.p50_us = percentile(micros, 50);
  row.p95_us = percentile(micros, 95);
  return status;
}

Result<CompareRow> BenchRank::compare(const BenchCase& bench) {
  const size_t width = size_of(bench.dtype);
  Buffer in(group_.get(), input_elements(bench) * width, plan_.zero_copy);
  Buffer out(group_.get(), output_elements(bench) * width, plan_.zero_copy);
  if (!in.valid() || !out.valid())
    return resource_exhausted("no memory for tensors of " + std::to_string(bench_bytes(bench)) +
                              " bytes: lower --max");
  CompareRow row{.bench = bench, .hosts = hosts_, .strategies = plan_.strategies};
  for (const std::string& strategy : row.strategies) {
    const Result<uint64_t> wrong = verify(bench, strategy, in, out);
    if (!wrong.ok()) return wrong.status();
    row.wrong += *wrong;
  }
  const Status status = time_rounds(row, in, out);
  if (!status.ok()) return status;
  return row;
}

// One operation of each strategy a round, so that whatever else the machine does meets all alike;
// in an order that changes, the same on all ranks, for ranks leave one strategy less together than
// another, and the next pays for it. By strategy, then round: the slowest rank's time.
Result<std::vector<double>> BenchRank::run_rounds(const CompareRow& row, size_t rounds, Buffer& in,
                                                  Buffer& out) {
  std::vector<double> micros(row.strategies.size() * rounds);
  std::vector<size_t> order(row.strategies.size());
  std::iota(order.begin(), order.end(), 0);
  std::mt19937 random(1);
  for (size_t round = 0; round < rounds; ++round) {
    std::ranges::shuffle(order, random);
    for (const size_t i : order) {
      const TimePoint start = Clock::now();
      const Status status = operate(row.bench, row.strategies[i], in, out);
      if (!status.ok()) return status;
      micros[i * rounds + round] = Seconds(Clock::now() - start).count() * 1e6;
    }
  }
  const Status status = agree(micros.data(), micros.size(), TUTTI_MAX);
  if (!status.ok()) return status;
  return micros;
}

Status BenchRank::time_rounds(CompareRow& row, Buffer& in, Buffer& out) {
  const Result<std::vector<double>> settling = run_rounds(row, kSettlingRounds, in, out);
  if (!settling.ok()) return settling.status();
  const double round_us = std::reduce(settling->begin(), settling->end()) / kSettlingRounds;
  const double fitting = kMeasuredSeconds * 1e6 * static_cast<double>(row.strategies.size());
  const auto rounds =
      static_cast<ptrdiff_t>(std::clamp(fitting / round_us, kRoundsLeast, kRoundsMost));
  const Result<std::vector<double>> micros = run_rounds(row, static_cast<size_t>(rounds), in, out);
  if (!micros.ok()) return micros.status();
  for (auto first = micros->begin(); first != micros->end(); first += rounds)
    row.p50_us.push_back(percentile({first, first + rounds}, 50));
  return {};
}

// Runs the warm-up, and counts how many operations fill the time; the slowest rank decides.
Result<uint32_t> BenchRank::choose_iterations(const BenchRow& row, Buffer& in, Buffer& out) {
  const uint32_t warmup = std::max(plan_.warmup, 1U);
  const TimePoint start = Clock::now();
  for (uint32_t i = 0; i < warmup; ++i)
    if (Status status = operate(row.bench, row.strategy, in, out); !status.ok()) return status;
  double seconds = Seconds(Clock::now() - start).count() / warmup;
  if (Status status = agree(&seconds, 1, TUTTI_MAX); !status.ok()) return status;
  if (plan_.iterations > 0) return plan_.iterations;
  const double fitting = kMeasuredSeconds / std::max(seconds, 1e-9);
  return static_cast<uint32_t>(std::clamp<double>(fitting, kIterationsLeast, kIterationsMost));
}

Status BenchRank::agree(double* values, size_t count, tutti_op op) {
  return status_of(
      tutti_all_reduce(group_.get(), values, values, count, TUTTI_F64, op, nullptr, nullptr));
}

double BenchRank::cpu_now() const {
  double seconds = cpu_seconds(CLOCK_PROCESS_CPUTIME_ID);
  for (const pid_t pid : daemons_) seconds += cpu_seconds_of(pid);
  return seconds;
}

void BenchRank::print(const std::string& text) const {
  if (rank() != 0) return;
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

}  // namespace

Status run_bench_rank(const BenchPlan& plan) {
  tutti_group* joined = nullptr;
  Status status = status_of(tutti_join(nullptr, &joined));
  if (!status.ok()) return status;
  BenchRank rank(Group(joined), plan);
  status = rank.find_daemons();
  return status.ok() ? rank.run_all() : status;
}

}  // namespace tutti
