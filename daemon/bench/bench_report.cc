#include <algorithm>
#include <array>
#include <cstdio>

#include "daemon/base/text.h"
#include "daemon/bench/bench_rank.h"

namespace tutti {
namespace {

double algorithm_bandwidth(const BenchRow& row) {  // GB/s, powers of 1000.
  return row.p50_us > 0 ? static_cast<double>(bench_bytes(row.bench)) / row.p50_us / 1e3 : 0;
}

double bus_bandwidth(const BenchRow& row) {
  return algorithm_bandwidth(row) * bus_factor(row.bench.collective, row.bench.world_size);
}

std::string columns(const std::array<std::string, 9>& cells) {
  std::array<char, 160> line{};
  std::snprintf(line.data(), line.size(), "%12s %12s %5s %6s %5s %10s %8s %8s %7s",
                cells[0].c_str(), cells[1].c_str(), cells[2].c_str(), cells[3].c_str(),
                cells[4].c_str(), cells[5].c_str(), cells[6].c_str(), cells[7].c_str(),
                cells[8].c_str());
  std::string out = line.data();
  out.erase(out.find_last_not_of(' ') + 1);
  return out + "\n";
}

std::string wide_columns(const std::vector<std::string>& cells) {
  constexpr size_t kWidth = 13;
  std::string line;
  for (const std::string& cell : cells)
    line += std::string(kWidth - std::min(kWidth - 1, cell.size()), ' ') + cell;
  return line + "\n";
}

// The fastest of all but the first, which they are compared with.
size_t best_of(const CompareRow& row) {
  return static_cast<size_t>(std::min_element(row.p50_us.begin() + 1, row.p50_us.end()) -
                             row.p50_us.begin());
}

}  // namespace

std::string bench_heading(const BenchRow& row) {
  return "# " + std::string(name_of(row.bench.collective)) + ", strategy " + row.strategy + ", " +
         std::to_string(row.bench.world_size) + " ranks on " + std::to_string(row.hosts) +
         (row.hosts == 1 ? " host, " : " hosts, ") +
         (row.zero_copy ? "shared buffers" : "ordinary buffers") + "\n" +
         columns({"size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong"}) +
         columns({"(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", ""});
}

std::string bench_line(const BenchRow& row) {
  const Collective collective = row.bench.collective;
  const std::string op = reduces(collective) ? std::string(name_of(row.bench.op)) : "none";
  return columns({std::to_string(bench_bytes(row.bench)), std::to_string(row.bench.count),
                  std::string(name_of(row.bench.dtype)), op,
                  has_root(collective) ? std::to_string(row.bench.root) : "-1",
                  format_number(row.p50_us), format_number(algorithm_bandwidth(row)),
                  format_number(bus_bandwidth(row)), std::to_string(row.wrong)});
}

std::string bench_json(const BenchRow& row) {
  Json json;
  json.open('{').key("op").text(name_of(row.bench.collective));
  json.key("strategy").text(row.strategy);
  json.key("transport").text(row.transport);
  json.key("hosts").number(uint64_t{row.hosts});
  json.key("per_host").number(uint64_t{row.bench.world_size / row.hosts});
  json.key("dtype").text(name_of(row.bench.dtype));
  json.key("bytes").number(bench_bytes(row.bench));
  json.key("p50_us").number(row.p50_us).key("p95_us").number(row.p95_us);
  json.key("algbw_GBs").number(algorithm_bandwidth(row));
  json.key("busbw_GBs").number(bus_bandwidth(row));
  json.key("cpu_s_per_op").number(row.cpu_s_per_op);
  json.key("wrong").number(row.wrong);
  json.key("redop").text(reduces(row.bench.collective) ? name_of(row.bench.op) : "none");
  json.key("buffers").text(row.zero_copy ? "zero_copy" : "staged");
  json.key("iterations").number(uint64_t{row.iterations}).close();
  return json.line() + "\n";
}

std::string bench_heading(const CompareRow& row) {
  std::vector<std::string> names = {"size", "count"};
  names.insert(names.end(), row.strategies.begin(), row.strategies.end());
  names.insert(names.end(), {"best", row.strategies.front() + "/best", "#wrong"});
  return "# " + std::string(name_of(row.bench.collective)) + ", " +
         std::to_string(row.bench.world_size) + " ranks on " + std::to_string(row.hosts) +
         (row.hosts == 1 ? " host" : " hosts") + ": time (us) of each strategy, in turn\n" +
         wide_columns(names);
}

std::string bench_line(const CompareRow& row) {
  std::vector<std::string> cells = {std::to_string(bench_bytes(row.bench)),
                                    std::to_string(row.bench.count)};
  for (const double us : row.p50_us) cells.push_back(format_number(us));
  const size_t best = best_of(row);
  cells.insert(cells.end(), {row.strategies[best], format_number(row.p50_us[0] / row.p50_us[best]),
                             std::to_string(row.wrong)});
  return wide_columns(cells);
}

std::string bench_json(const CompareRow& row) {
  Json json;
  json.open('{').key("op").text(name_of(row.bench.collective));
  json.key("hosts").number(uint64_t{row.hosts});
  json.key("per_host").number(uint64_t{row.bench.world_size / row.hosts});
  json.key("bytes").number(bench_bytes(row.bench)).key("p50_us").open('{');
  for (size_t i = 0; i < row.strategies.size(); ++i)
    json.key(row.strategies[i]).number(row.p50_us[i]);
  const size_t best = best_of(row);
  json.close().key("best").text(row.strategies[best]);
  json.key("ratio").number(row.p50_us[0] / row.p50_us[best]);
  json.key("wrong").number(row.wrong).close();
  return json.line() + "\n";
}

}  // namespace tutti
