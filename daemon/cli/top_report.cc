#include "daemon/cli/top_report.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <tuple>
#include <utility>

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

// A line for each job that is not healthy, which begins with the job's name.
std::string findings_text(const MeshDiagnosis& mesh) {
  std::string out;
  for (const JobDiagnosis& job : mesh.jobs)
    if (!is_healthy(job.diagnosis.verdict))
      out += printable(job.key.first + ": " + job.diagnosis.sentence) + "\n";
  return out.empty() ? "" : "\n" + out;
}

std::string jobs_table(const TopView& view) {
  const Jobs before = jobs_of(view.before);
  const Jobs after = jobs_of(view.after);
  if (after.empty()) return "no jobs\n";
  const auto diagnoses = diagnoses_of(view.diagnosis);
  Table table({"JOB", "USER", "STATE", "RANKS", "OPS/S", "TENSORS", "SENT", "FAILED", "STRATEGY"});
  for (const auto& [key, job] : after) {
    const auto& [name, owner] = key;
    const auto found = before.find(key);
    const Job old = found == before.end() ? job : found->second;
    // Operations are counted by each rank, so the rate of the job is that of one.
    const double ranks = std::max<double>(1, static_cast<double>(job.joined));
    table.add({name, std::to_string(owner.uid), std::string(name_of(diagnoses.at(key)->verdict)),
               std::to_string(job.joined) + " of " + std::to_string(job.world_size),
               format_number(rate(old.operations, job.operations, view.seconds) / ranks),
               bytes_a_second(rate(old.bytes, job.bytes, view.seconds)),
               bytes_a_second(rate(old.sent_bytes, job.sent_bytes, view.seconds)),
               std::to_string(job.failures), job.strategy});
  }
  return table.text();
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

std::string ranks_table(const TopView& view) {
  const std::map<RankKey, Rank> before = ranks_of(view.before);
  Table table({"JOB", "RANK", "HOST", "PID", "STATE", "OPERATIONS", "OPS/S", "TENSORS"});
  bool any = false;
  for (const auto& [key, rank] : ranks_of(view.after)) {
    const std::string& job = std::get<0>(key).first;
    if (!view.job.empty() && job != view.job) continue;
    any = true;
    const auto found = before.find(key);
    const v1::RankReport& now = *rank.report;
    const v1::RankReport& old = found == before.end() ? now : *found->second.report;
    table.add({job, std::to_string(now.rank()), rank.host, std::to_string(now.pid()),
               now.epoch() == 0 ? "joining" : "joined", std::to_string(now.operations()),
               format_number(rate(old.operations(), now.operations(), view.seconds)),
               bytes_a_second(rate(old.bytes(), now.bytes(), view.seconds))});
  }
  return any ? "\n" + table.text() : "";
}

std::string hosts_table(const v1::StatusReply& reply) {
  Table table({"HOST", "STATE", "JOBS", "GPUS", "VERSION", "ADDRESS"});
  for (const v1::AgentReport& agent : reply.agents())
    table.add({agent.host() + (agent.coordinator() ? "*" : ""), agent.state(),
               std::to_string(agent.workers_size()), std::to_string(agent.gpus_size()),
               agent.version(), agent.address()});
  return "\n" + table.text();
}

// Cuts what the terminal has no room for; the last line is left free.
std::string cut(const std::string& text, size_t columns, size_t lines) {
  std::istringstream in(text);
  std::string out;
  size_t count = 0;
  for (std::string line; std::getline(in, line); ++count) {
    if (lines != 0 && count + 2 > lines) break;
    out += (columns == 0 ? line : line.substr(0, columns)) + "\n";
  }
  return out;
}

}  // namespace

std::string top_text(const TopView& view) {
  const std::string error = view.error.empty() ? "" : printable(view.error) + "\n\n";
  return cut(error + jobs_table(view) + findings_text(view.diagnosis) + ranks_table(view) +
                 hosts_table(view.after),
             view.columns, view.lines);
}

}  // namespace tutti
