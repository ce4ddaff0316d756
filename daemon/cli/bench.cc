// `tutti bench`: reads its options, and runs as a rank or starts the ranks.
#include "daemon/bench/bench.h"

#include <algorithm>
#include <cstdlib>

#include "daemon/base/program.h"
#include "daemon/base/text.h"
#include "daemon/cli/cli.h"
#include "daemon/schedule/schedule.h"

namespace tutti {
namespace {

template <class Enum, size_t N>
Result<Enum> parse_name(const std::array<std::string_view, N>& names, const std::string& text,
                        std::string_view what) {
  if (const auto value = find_name<Enum>(names, text)) return *value;
  std::string known;
  for (const std::string_view name : names)
    known += (known.empty() ? "" : ", ") + std::string(name);
  return invalid_argument("unknown " + std::string(what) + " '" + text + "': expected " + known);
}

Status read_collectives(BenchPlan& plan, const BenchOptions& options) {
  for (const std::string& name : options.collectives) {
    if (name == "all") {
      for (int c = 0; c < kCollectives; ++c) plan.collectives.push_back(static_cast<Collective>(c));
      continue;
    }
    const auto collective = parse_name<Collective>(kCollectiveNames, name, "--op");
    if (!collective.ok()) return collective.status();
    plan.collectives.push_back(*collective);
  }
  return {};
}

Status read_sizes(BenchPlan& plan, const BenchOptions& options) {
  const Result<uint64_t> least = parse_byte_size(options.bytes_min);
  const Result<uint64_t> most = parse_byte_size(options.bytes_max);
  for (const auto* size : {&least, &most})
    if (!size->ok()) return size->status();
  if (*least == 0 || *least > *most)
    return invalid_argument("--min " + options.bytes_min + " --max " + options.bytes_max +
                            ": expected 0 < min <= max");
  plan.bytes_min = *least;
  plan.bytes_max = *most;
  return {};
}

Status read_device(BenchPlan& plan, const BenchOptions& options) {
  if (options.device == "host") return {};
  if (options.device != "cuda")
    return invalid_argument("unknown --device '" + options.device + "': expected host or cuda");
  if (!options.zero_copy)
    return invalid_argument("--staged is for tensors on the host: leave it out with --device cuda");
  plan.device = BenchDevice::cuda;
  return {};
}

Result<BenchPlan> parse_plan(const BenchOptions& options) {
  BenchPlan plan{.factor = options.factor,
                 .iterations = options.iterations,
                 .warmup = options.warmup,
                 .zero_copy = options.zero_copy,
                 .json = options.json,
                 .compare = options.compare};
  if (Status status = read_collectives(plan, options); !status.ok()) return status;
  if (Status status = read_sizes(plan, options); !status.ok()) return status;
  if (Status status = read_device(plan, options); !status.ok()) return status;
  const auto dtype = parse_name<Dtype>(kDtypeNames, options.dtype, "--dtype");
  const auto op = parse_name<Op>(kOpNames, options.op, "--redop");
  if (!dtype.ok()) return dtype.status();
  if (!op.ok()) return op.status();
  if (!applies_to(*op, *dtype))
    return invalid_argument("--redop " + options.op + " needs " +
                            (is_bitwise(*op) ? "an integer or bool" : "a floating-point") +
                            " --dtype");
  plan.dtype = *dtype;
  plan.op = *op;
  for (std::string strategy : options.strategies) {
    std::ranges::replace(strategy, '+', ',');
    const Result<Strategies> parsed = parse_strategies(strategy);
    if (!parsed.ok()) return parsed.status();
    plan.strategies.push_back(to_string(*parsed));
  }
  if (plan.compare && plan.strategies.size() < 2)
    return invalid_argument("--compare needs two strategies: --strategy auto,ring");
  return plan;
}

}  // namespace

int bench_command(const BenchOptions& options, RunOptions mesh,
                  std::vector<std::string> arguments) {
  const Result<BenchPlan> plan = parse_plan(options);
  if (!plan.ok()) return report_status(plan.status());
  if (Status status = check_bench_device(*plan); !status.ok()) return report_status(status);
  if (std::getenv("TUTTI_RANK") != nullptr) return report_status(run_bench_rank(*plan));
  arguments.insert(arguments.begin(), program_path());
  mesh.command = std::move(arguments);
  mesh.job = "bench";
  mesh.announce = false;  // The table shows the layout.
  return run_command(mesh);
}

}  // namespace tutti
