#include "daemon/cli/top_report.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <sstream>
#include <tuple>
#include <utility>
#include <vector>

#include "daemon/base/text.h"

namespace tutti {
namespace {

// A job, summed over its hosts.
struct Job {
  uint32_t world_size = 0;
  uint64_t joined = 0;
  uint64_t operations = 0;
  uint64_t failures = 0;
  uint64_t bytes = 0;
  uint64_t sent_bytes = 0;
  std::string strategy;
};
using Jobs = std::map<JobKey, Job>;

Jobs jobs_of(const v1::StatusReply& reply) {
  Jobs jobs;
  for (const v1::AgentReport& agent : reply.agents())
    for (const v1::WorkerReport& worker : agent.workers()) {
      Job& job = jobs[key_of(worker)];
      job.world_size = std::max(job.world_size, worker.world_size());
      for (const v1::RankReport& rank : worker.ranks()) job.joined += rank.epoch() != 0 ? 1 : 0;
      job.operations += worker.operations();
      job.failures += worker.failures();
      job.bytes += worker.bytes();
      job.sent_bytes += worker.sent_bytes();
      job.strategy = worker.strategy();
    }
  return jobs;
}

double rate(uint64_t before, uint64_t after, double seconds) {
  return after > before && seconds > 0 ? static_cast<double>(after - before) / seconds : 0;
}

std::string bytes_a_second(double value) {
  return format_byte_size(static_cast<uint64_t>(value)) + "/s";
}

std::map<JobKey, const Diagnosis*> diagnoses_of(const MeshDiagnosis& mesh) {
  std::map<JobKey, const Diagnosis*> diagnoses;
  for (const JobDiagnosis& job : mesh.jobs) diagnoses[job.key] = &job.diagnosis;
  return diagnoses;
}

constexpr std::string_view kBold = "\x1b[1m";
constexpr std::string_view kRed = "\x1b[31m";
constexpr std::string_view kYellow = "\x1b[33m";
constexpr std::array<std::string_view, 4> kOrders = {"name", "operations", "tensors", "failures"};

// A row of a table, and what it may be sorted by.
struct Row {
  std::vector<std::string> cells;
  std::array<double, kOrders.size()> amounts{};  // By TopOrder.
  std::string_view color;
};

struct Line {
  std::string text;
  std::string_view color;
};
using Lines = std::vector<Line>;

void append(Lines& lines, const std::string& text, std::string_view color = {}) {
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back({line, color});
}

void append_table(Lines& lines, const std::vector<std::string>& header, std::vector<Row> rows,
                  TopOrder order) {
  std::ranges::stable_sort(rows, std::greater(),
                           [order](const Row& row) { return row.amounts.at(size_t(order)); });
  Table table(header);
  for (const Row& row : rows) table.add(row.cells);
  const size_t first = lines.size();
  append(lines, table.text());
  lines.at(first).color = kBold;
  for (size_t i = 0; i < rows.size(); ++i) lines.at(first + 1 + i).color = rows[i].color;
}

// A line for each job that is not healthy, which begins with the job's name.
std::string findings_text(const MeshDiagnosis& mesh) {
  std::string out;
  for (const JobDiagnosis& job : mesh.jobs)
    if (!is_healthy(job.diagnosis.verdict))
      out += printable(job.key.first + ": " + job.diagnosis.sentence) + "\n";
  return out.empty() ? "" : "\n" + out;
}

void append_jobs(Lines& lines, const TopView& view) {
  const Jobs before = jobs_of(view.before);
  const Jobs after = jobs_of(view.after);
  if (after.empty()) return append(lines, "no jobs");
  const auto diagnoses = diagnoses_of(view.diagnosis);
  std::vector<Row> rows;
  for (const auto& [key, job] : after) {
    const auto& [name, owner] = key;
    const auto found = before.find(key);
    const Job old = found == before.end() ? job : found->second;
    const Verdict verdict = diagnoses.at(key)->verdict;
    // Operations are counted by each rank, so the rate of the job is that of one.
    const double ranks = std::max<double>(1, static_cast<double>(job.joined));
    const double operations = rate(old.operations, job.operations, view.seconds) / ranks;
    const double tensors = rate(old.bytes, job.bytes, view.seconds);
    rows.push_back({{name, std::to_string(owner.uid), std::string(name_of(verdict)),
                     std::to_string(job.joined) + " of " + std::to_string(job.world_size),
                     format_number(operations), bytes_a_second(tensors),
                     bytes_a_second(rate(old.sent_bytes, job.sent_bytes, view.seconds)),
                     std::to_string(job.failures), job.strategy},
                    {0, operations, tensors, static_cast<double>(job.failures)},
                    is_healthy(verdict) ? "" : kYellow});
  }
  append_table(lines,
               {"JOB", "USER", "STATE", "RANKS", "OPS/S", "TENSORS", "SENT", "FAILED", "STRATEGY"},
               std::move(rows), view.order);
}

struct Rank {
  const v1::RankReport* report = nullptr;
  std::string host;
};
// By job, rank and process: who joined again begins again.
using RankKey = std::tuple<JobKey, uint32_t, uint32_t>;

std::map<RankKey, Rank> ranks_of(const v1::StatusReply& reply) {
  std::map<RankKey, Rank> ranks;
  for (const v1::AgentReport& agent : reply.agents())
    for (const v1::WorkerReport& worker : agent.workers())
      for (const v1::RankReport& rank : worker.ranks())
        ranks[{key_of(worker), rank.rank(), rank.pid()}] = {&rank, agent.host()};
  return ranks;
}

void append_ranks(Lines& lines, const TopView& view) {
  const std::map<RankKey, Rank> before = ranks_of(view.before);
  std::vector<Row> rows;
  for (const auto& [key, rank] : ranks_of(view.after)) {
    const std::string& job = std::get<0>(key).first;
    if (!view.job.empty() && job != view.job) continue;
    const auto found = before.find(key);
    const v1::RankReport& now = *rank.report;
    const v1::RankReport& old = found == before.end() ? now : *found->second.report;
    const double operations = rate(old.operations(), now.operations(), view.seconds);
    const double tensors = rate(old.bytes(), now.bytes(), view.seconds);
    rows.push_back({{job, std::to_string(now.rank()), rank.host, std::to_string(now.pid()),
                     now.epoch() == 0 ? "joining" : "joined", std::to_string(now.operations()),
                     format_number(operations), bytes_a_second(tensors)},
                    {0, operations, tensors, 0},
                    {}});
  }
  if (rows.empty()) return;
  lines.emplace_back();
  append_table(lines, {"JOB", "RANK", "HOST", "PID", "STATE", "OPERATIONS", "OPS/S", "TENSORS"},
               std::move(rows), view.order);
}

void append_hosts(Lines& lines, const v1::StatusReply& reply) {
  std::vector<Row> rows;
  for (const v1::AgentReport& agent : reply.agents())
    rows.push_back({{agent.host() + (agent.coordinator() ? "*" : ""), agent.state(),
                     std::to_string(agent.workers_size()), std::to_string(agent.gpus_size()),
                     agent.version(), agent.address()},
                    {},
                    agent.state() == "serving" ? "" : kYellow});
  lines.emplace_back();
  append_table(lines, {"HOST", "STATE", "JOBS", "GPUS", "VERSION", "ADDRESS"}, std::move(rows),
               TopOrder::name);
}

// Cuts what the terminal has no room for; its last line is left free.
std::string cut(const Lines& lines, const TopView& view) {
  std::string out;
  for (size_t i = 0; i < lines.size() && (view.lines == 0 || i + 2 <= view.lines); ++i) {
    const Line& line = lines[i];
    const bool colored = view.colors && !line.color.empty();
    out += colored ? line.color : std::string_view();
    out += view.columns == 0 ? line.text : line.text.substr(0, view.columns);
    out += colored ? "\x1b[m\n" : "\n";
  }
  return out;
}

std::string keys_text(const TopView& view) {
  const std::string text = "q quits, s sorts otherwise than by " +
                           std::string(kOrders.at(static_cast<size_t>(view.order)));
  return view.columns == 0 ? text : text.substr(0, view.columns - 1);
}

}  // namespace

TopOrder after(TopOrder order) {
  return static_cast<TopOrder>((static_cast<size_t>(order) + 1) % kOrders.size());
}

std::string top_text(const TopView& view) {
  Lines lines;
  if (!view.error.empty()) append(lines, printable(view.error) + "\n\n", kRed);
  append_jobs(lines, view);
  append(lines, findings_text(view.diagnosis), kYellow);
  append_ranks(lines, view);
  append_hosts(lines, view.after);
  return cut(lines, view) + (view.lines == 0 ? "" : keys_text(view));
}

}  // namespace tutti
