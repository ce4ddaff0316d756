#include "daemon/cli/jobs_report.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "daemon/base/text.h"

namespace tutti {
namespace {

void add_host(JobRow& row, const std::string& host, uint32_t world_size) {
  row.hosts += (row.hosts.empty() ? "" : ",") + host;
  row.ranks = std::max(row.ranks, world_size);
}

std::vector<JobRow> running_jobs(const v1::StatusReply& status, const MeshDiagnosis& mesh) {
  std::vector<JobRow> rows;
  for (const JobDiagnosis& job : mesh.jobs) {
    JobRow& row = rows.emplace_back(JobRow{.key = job.key,
                                           .state = std::string(name_of(job.diagnosis.verdict)),
                                           .finding = job.diagnosis.sentence});
    for (const v1::AgentReport& agent : status.agents())
      for (const v1::WorkerReport& worker : agent.workers())
        if (key_of(worker) == job.key) add_host(row, agent.host(), worker.world_size());
  }
  return rows;
}

// One row for what hosts remember of one run of a job: the host nearest to a failure speaks for
// all.
std::vector<JobRow> ended_jobs(const v1::StatusReply& status) {
  // By job, epoch, and how many runs of that epoch its host had before: 0 is the epoch of all that
  // never began.
  std::map<std::tuple<JobKey, uint32_t, int>, JobRow> runs;
  std::map<std::tuple<JobKey, uint32_t, int>, int> weights;  // Of the host that speaks.
  for (const v1::AgentReport& agent : status.agents()) {
    std::map<std::pair<JobKey, uint32_t>, int> earlier;
    for (const v1::EndedJob& ended : agent.ended()) {
      const v1::WorkerReport& last = ended.last();
      const uint32_t epoch = epoch_of(last);
      const int run = earlier[{key_of(last), epoch}]++;
      JobRow& row = runs[{key_of(last), epoch, run}];
      int& heaviest = weights.try_emplace({key_of(last), epoch, run}, -1).first->second;
      const int weight = weight_of(agent.host(), ended);
      const bool speaks = weight > heaviest;
      heaviest = std::max(heaviest, weight);
      add_host(row, agent.host(), last.world_size());
      const int64_t ago_ms = std::max<int64_t>(0, agent.time_ms() - ended.time_ms());
      row.ended_ms = row.ended_ms < 0 ? ago_ms : std::min(row.ended_ms, ago_ms);
      row.epoch = epoch;
      if (!speaks) continue;
      row.key = key_of(last);
      row.state = ended.outcome();
      row.finding = ended.sentence();
    }
  }
  std::vector<JobRow> rows;
  for (auto& [run, row] : runs) rows.push_back(std::move(row));
  std::ranges::stable_sort(rows, [](const JobRow& a, const JobRow& b) {
    return std::tie(a.ended_ms, b.epoch, a.key) < std::tie(b.ended_ms, a.epoch, b.key);
  });
  return rows;
}

}  // namespace

std::vector<JobRow> jobs_of(const v1::StatusReply& status, const MeshDiagnosis& mesh, bool all) {
  std::vector<JobRow> rows = running_jobs(status, mesh);
  if (all) std::ranges::move(ended_jobs(status), std::back_inserter(rows));
  return rows;
}

std::string jobs_text(const std::vector<JobRow>& jobs) {
  if (jobs.empty()) return "no jobs\n";
  Table table({"JOB", "USER", "RANKS", "HOSTS", "ENDED", "STATE", "FINDING"});
  for (const JobRow& job : jobs)
    table.add({job.key.first, std::to_string(job.key.second.uid), std::to_string(job.ranks),
               job.hosts,
               job.ended_ms < 0 ? "-" : describe_seconds(double(job.ended_ms) / 1'000) + " ago",
               job.state, job.finding});
  return table.text();
}

std::string jobs_json(const std::vector<JobRow>& jobs) {
  Json json;
  json.open('{').key("jobs").open('[');
  for (const JobRow& job : jobs) {
    json.open('{')
        .field("job", job.key.first)
        .field("uid", job.key.second.uid)
        .field("subject", job.key.second.subject)
        .field("state", job.state)
        .field("hosts", job.hosts)
        .field("ranks", job.ranks)
        .field("finding", job.finding);
    if (job.ended_ms >= 0) json.field("ended_s", job.ended_ms / 1'000);
    json.close();
  }
  return json.close().close().line();
}

}  // namespace tutti
