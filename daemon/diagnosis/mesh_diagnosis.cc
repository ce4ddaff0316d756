#include "daemon/diagnosis/mesh_diagnosis.h"

#include <algorithm>
#include <set>

#include "daemon/base/text.h"
#include "daemon/diagnosis/describe.h"
#include "daemon/diagnosis/findings.h"

namespace tutti {
namespace {

constexpr size_t kRanksNamed = 4;

std::string describe_wait(const std::vector<uint32_t>& missing) {
  return "waits for " + (missing.size() > kRanksNamed ? std::to_string(missing.size()) + " ranks"
                                                      : describe_ranks(missing));
}

std::vector<RankDiagnosis> diagnose_ranks(const JobView& view) {
  const Waits waits = waits_of(view);
  const std::map<uint32_t, uint64_t> behind = ranks_behind(view);
  const Lateness lateness = lateness_of(view);
  std::vector<RankDiagnosis> ranks;
  for (const auto& [number, rank] : view.ranks) {
    if (rank.pid == 0) continue;
    RankDiagnosis& found = ranks.emplace_back(RankDiagnosis{.rank = number});
    if (const auto call = waits.calls.find(number); call != waits.calls.end()) {
      const std::vector<uint32_t>& missing = waits.missing.at(op_of(*call->second));
      found.waits = !missing.empty();
      found.doing = found.waits ? describe_wait(missing) : "in " + describe(*call->second);
    }
    if (const auto count = behind.find(number); count != behind.end()) found.behind = count->second;
    const auto late = lateness.seconds.find(number);
    if (late == lateness.seconds.end()) continue;
    found.late_s = std::max(late->second, 0.0);
    found.is_late = lateness.is_late(late->second);
  }
  return ranks;
}

JobDiagnosis diagnose_job(const JobKey& key, const v1::StatusReply& status,
                          const v1::TraceReply& trace) {
  const JobView view = view_job(key.first, key.second, status, trace);
  JobDiagnosis job{.key = key, .diagnosis = judge(view), .ranks = diagnose_ranks(view)};
  job.diagnosis.evidence.insert(job.diagnosis.evidence.end(), view.silent.begin(),
                                view.silent.end());
  for (const uint32_t rank : gone_ranks(view))
    if (!std::ranges::binary_search(job.ranks, rank, {}, &RankDiagnosis::rank))
      job.gone.push_back(rank);
  std::ranges::sort(job.gone);
  const size_t known = job.ranks.size() + job.gone.size();
  job.missing = view.world_size - std::min<uint32_t>(view.world_size, uint32_t(known));
  return job;
}

void add_node(const v1::AgentReport& agent, MeshDiagnosis& mesh) {
  mesh.nodes.push_back(grade_of(agent));
  if (mesh.nodes.back() == Grade::fail)
    mesh.alarms.push_back(
        {"Node " + (agent.host().empty() ? agent.address() : agent.host()), "is " + agent.state()});
  for (const v1::Gpu& gpu : agent.gpus())
    if (gpu.failed())
      mesh.alarms.push_back(
          {"GPU " + std::to_string(gpu.index()) + " of " + agent.host(), gpu.state()});
}

void add_rank(Json& json, const RankDiagnosis& rank) {
  json.open('{')
      .field("rank", rank.rank)
      .field("doing", rank.doing)
      .field("waits", rank.waits)
      .field("behind", rank.behind)
      .field("late", rank.is_late);
  if (rank.late_s) json.field("late_us", static_cast<int64_t>(*rank.late_s * 1e6));
  json.close();
}

void add_job(Json& json, const JobDiagnosis& job) {
  const auto& [name, owner] = job.key;
  json.open('{').field("job", name).field("uid", owner.uid).field("subject", owner.subject);
  add_diagnosis(json, job.diagnosis);
  json.field("grade", name_of(grade_of(job.diagnosis.verdict))).key("ranks").open('[');
  for (const RankDiagnosis& rank : job.ranks) add_rank(json, rank);
  json.close().key("gone").open('[');
  for (const uint32_t rank : job.gone) json.value(rank);
  json.close().field("missing", job.missing).close();
}

}  // namespace

JobKey key_of(const v1::WorkerReport& worker) { return {worker.job(), owner_of(worker)}; }

MeshDiagnosis diagnose_mesh(const v1::StatusReply& status, const v1::TraceReply& trace) {
  MeshDiagnosis mesh;
  std::set<JobKey> jobs;
  for (const v1::AgentReport& agent : status.agents()) {
    add_node(agent, mesh);
    for (const v1::WorkerReport& worker : agent.workers()) jobs.insert(key_of(worker));
  }
  for (const JobKey& key : jobs) {
    const JobDiagnosis& job = mesh.jobs.emplace_back(diagnose_job(key, status, trace));
    if (grade_of(job.diagnosis.verdict) == Grade::fail)
      mesh.alarms.push_back({"Job " + key.first, job.diagnosis.sentence});
  }
  return mesh;
}

std::string mesh_diagnosis_json(const MeshDiagnosis& mesh) {
  Json json;
  json.open('{').key("alarms").open('[');
  for (const Alarm& alarm : mesh.alarms)
    json.open('{').field("subject", alarm.subject).field("finding", alarm.finding).close();
  json.close().key("nodes").open('[');
  for (const Grade grade : mesh.nodes) json.value(name_of(grade));
  json.close().key("jobs").open('[');
  for (const JobDiagnosis& job : mesh.jobs) add_job(json, job);
  return json.close().close().line();
}

}  // namespace tutti
