#include "daemon/bench/bench_report.h"

#include <algorithm>
#include <array>
#include <span>

#include "daemon/base/text.h"

namespace tutti {
namespace {

// As nccl-tests has them; the last two are of GPUs.
constexpr std::array<size_t, 11> kWidths = {12, 13, 6, 7, 6, 11, 9, 9, 8, 10, 9};
constexpr size_t kCompareWidth = 13;

// In GB/s, powers of 1000.
double algorithm_bandwidth(const BenchRow& row) {
  return row.p50_us > 0 ? static_cast<double>(bench_bytes(row.bench)) / row.p50_us / 1e3 : 0;
}

double bus_bandwidth(const BenchRow& row) {
  return algorithm_bandwidth(row) * bus_factor(row.bench.collective, row.bench.world_size);
}

// In GB/s, with which the GPUs read and wrote the tensors of all ranks.
double copy_bandwidth(const BenchRow& row) {
  const double moved = 2.0 * row.bench.world_size * static_cast<double>(bench_bytes(row.bench));
  return row.copy_us > 0 ? moved / row.copy_us / 1e3 : 0;
}

// 1: as fast as a copy.
double share_of_copy(const BenchRow& row) { return row.p50_us > 0 ? row.copy_us / row.p50_us : 0; }

std::string buffers_of(const BenchRow& row) {
  if (row.gpus == 0) return row.zero_copy ? "shared buffers" : "ordinary buffers";
  return "buffers on " + std::to_string(row.gpus) + (row.gpus == 1 ? " GPU (" : " GPUs (") +
         row.gpu_model + ")";
}

// Aligns the cells right, after a space at least.
std::string columns(const std::vector<std::string>& cells, std::span<const size_t> widths) {
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i)
    line += std::string(widths[i] - std::min(widths[i] - 1, cells[i].size()), ' ') + cells[i];
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

// The fastest strategy except the first, which is compared with it.
size_t best_other(const CompareRow& row) {
  return static_cast<size_t>(std::min_element(row.p50_us.begin() + 1, row.p50_us.end()) -
                             row.p50_us.begin());
}

}  // namespace

std::string bench_heading(const BenchRow& row) {
  std::vector<std::string> names = {"size", "count", "type",  "redop", "root",
                                    "time", "algbw", "busbw", "#wrong"};
  std::vector<std::string> units = {"(B)",  "(elements)", "",       "", "",
                                    "(us)", "(GB/s)",     "(GB/s)", ""};
  if (row.gpus > 0) {
    names.insert(names.end(), {"copy", "of copy"});
    units.insert(units.end(), {"(GB/s)", ""});
  }
  return "# " + std::string(name_of(row.bench.collective)) + ", strategy " + row.strategy + ", " +
         std::to_string(row.bench.world_size) + " ranks on " + std::to_string(row.hosts) +
         (row.hosts == 1 ? " host, " : " hosts, ") + buffers_of(row) + "\n" +
         columns(names, kWidths) + columns(units, kWidths);
}

std::string bench_line(const BenchRow& row) {
  const Collective collective = row.bench.collective;
  const std::string op = reduces(collective) ? std::string(name_of(row.bench.op)) : "none";
  std::vector<std::string> cells = {std::to_string(bench_bytes(row.bench)),
                                    std::to_string(row.bench.count),
                                    std::string(name_of(row.bench.dtype)),
                                    op,
                                    has_root(collective) ? std::to_string(row.bench.root) : "-1",
                                    format_number(row.p50_us),
                                    format_number(algorithm_bandwidth(row)),
                                    format_number(bus_bandwidth(row)),
                                    std::to_string(row.wrong)};
  if (row.gpus > 0)
    cells.insert(cells.end(),
                 {format_number(copy_bandwidth(row)), format_number(share_of_copy(row))});
  return columns(cells, kWidths);
}

std::string bench_json(const BenchRow& row) {
  Json json;
  json.open('{')
      .field("op", name_of(row.bench.collective))
      .field("strategy", row.strategy)
      .field("transport", row.transport)
      .field("hosts", row.hosts)
      .field("per_host", row.bench.world_size / row.hosts)
      .field("dtype", name_of(row.bench.dtype))
      .field("bytes", bench_bytes(row.bench))
      .field("p50_us", row.p50_us)
      .field("p95_us", row.p95_us)
      .field("algbw_GBs", algorithm_bandwidth(row))
      .field("busbw_GBs", bus_bandwidth(row))
      .field("cpu_s_per_op", row.cpu_s_per_op)
      .field("wrong", row.wrong)
      .field("redop", reduces(row.bench.collective) ? name_of(row.bench.op) : "none")
      .field("buffers", row.gpus > 0    ? "cuda"
                        : row.zero_copy ? "zero_copy"
                                        : "staged")
      .field("iterations", row.iterations);
  if (row.gpus > 0)
    json.field("gpus", row.gpus)
        .field("gpu", row.gpu_model)
        .field("copy_us", row.copy_us)
        .field("copy_GBs", copy_bandwidth(row))
        .field("of_copy", share_of_copy(row));
  json.close();
  return json.line() + "\n";
}

std::string bench_heading(const CompareRow& row) {
  std::vector<std::string> names = {"size", "count"};
  names.insert(names.end(), row.strategies.begin(), row.strategies.end());
  names.insert(names.end(), {"best", row.strategies.front() + "/best", "#wrong"});
  return "# " + std::string(name_of(row.bench.collective)) + ", " +
         std::to_string(row.bench.world_size) + " ranks on " + std::to_string(row.hosts) +
         (row.hosts == 1 ? " host" : " hosts") + ": time (us) of each strategy, in turn\n" +
         columns(names, std::vector<size_t>(names.size(), kCompareWidth));
}

std::string bench_line(const CompareRow& row) {
  std::vector<std::string> cells = {std::to_string(bench_bytes(row.bench)),
                                    std::to_string(row.bench.count)};
  for (const double us : row.p50_us) cells.push_back(format_number(us));
  const size_t best = best_other(row);
  cells.insert(cells.end(), {row.strategies[best], format_number(row.p50_us[0] / row.p50_us[best]),
                             std::to_string(row.wrong)});
  return columns(cells, std::vector<size_t>(cells.size(), kCompareWidth));
}

std::string bench_json(const CompareRow& row) {
  Json json;
  json.open('{')
      .field("op", name_of(row.bench.collective))
      .field("hosts", row.hosts)
      .field("per_host", row.bench.world_size / row.hosts)
      .field("bytes", bench_bytes(row.bench))
      .key("p50_us")
      .open('{');
  for (size_t i = 0; i < row.strategies.size(); ++i) json.field(row.strategies[i], row.p50_us[i]);
  const size_t best = best_other(row);
  json.close()
      .field("best", row.strategies[best])
      .field("ratio", row.p50_us[0] / row.p50_us[best])
      .field("wrong", row.wrong)
      .close();
  return json.line() + "\n";
}

}  // namespace tutti
