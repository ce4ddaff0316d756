#include "daemon/diagnosis/mesh_diagnosis.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <set>

#include "daemon/base/text.h"
#include "daemon/diagnosis/checks.h"
#include "daemon/diagnosis/describe.h"
#include "daemon/diagnosis/findings.h"

namespace tutti {
namespace {

constexpr size_t kRanksNamed = 4;
constexpr size_t kJobsNamed = 4;
constexpr uint64_t kRunDirFreeMin = uint64_t{1} << 20;  // As the alert TuttiRunDirFull has it,
constexpr double kDescriptorsUsed = 0.8;                // and TuttiFewDescriptorsLeft.
constexpr int64_t kClockOffMs = 20'000;                 // As TuttiClockOff has it.
constexpr size_t kFindingColumn = 21;                   // As in doctor_text().

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

// What keeps a node that serves from taking joins, or will soon; empty: nothing.
std::string obstacle_of(const v1::AgentReport& agent) {
  const auto is_reached = [](const std::string& state) {
    return state.empty() || state == "connected";
  };
  if (!is_reached(agent.coordinator_state()))
    return "takes no joins: its coordinator " + agent.coordinator_address() + " is " +
           agent.coordinator_state();
  if (!is_reached(agent.etcd_state())) return "does not reach etcd: " + agent.etcd_state();
  if (agent.protocol() != 0 && agent.run_dir_free_bytes() < kRunDirFreeMin)
    return "has a run_dir that is full or cannot be written; free space there";
  if (agent.descriptors() > kDescriptorsUsed * static_cast<double>(agent.descriptors_max()))
    return "has " + std::to_string(agent.descriptors()) + " of " +
           std::to_string(agent.descriptors_max()) + " descriptors open; raise LimitNOFILE";
  return "";
}

void add_node(const v1::AgentReport& agent, MeshDiagnosis& mesh) {
  const std::string obstacle = obstacle_of(agent);
  const bool fails = grade_of(agent) == Grade::fail;
  mesh.nodes.push_back(obstacle.empty() ? grade_of(agent) : Grade::fail);
  if (mesh.nodes.back() == Grade::fail)
    mesh.alarms.push_back({"Node " + (agent.host().empty() ? agent.address() : agent.host()),
                           fails ? describe_state(agent) : obstacle});
  for (const v1::Gpu& gpu : agent.gpus())
    if (gpu.failed())
      mesh.alarms.push_back(
          {"GPU " + std::to_string(gpu.index()) + " of " + agent.host(), gpu.state()});
}

constexpr std::string_view kJobAlarm = "Job ";

std::string row_text(std::optional<Grade> grade, const std::string& subject,
                     const std::string& finding) {
  std::string line(grade ? name_of(*grade) : "");
  line.resize(6, ' ');
  line += printable(subject);
  line.resize(std::max<size_t>(line.size() + 1, kFindingColumn), ' ');
  return line + printable(finding) + "\n";
}

std::string count_text(size_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

// "1 problem, 2 warnings in 3 jobs and 2 nodes; failed and gone: demo (see tutti jobs --all)".
std::string sum_text(const MeshDiagnosis& mesh) {
  const auto warnings = std::ranges::count_if(mesh.jobs, [](const JobDiagnosis& job) {
    return grade_of(job.diagnosis.verdict) == Grade::warn;
  });
  std::string out = count_text(mesh.alarms.size(), "problem") + ", " +
                    count_text(static_cast<size_t>(warnings), "warning") + " in " +
                    count_text(mesh.jobs.size(), "job") + " and " +
                    count_text(mesh.nodes.size(), "node");
  for (size_t i = 0; i < std::min(mesh.failed.size(), kJobsNamed); ++i)
    out += (i == 0 ? "; failed and gone: " : ", ") + printable(mesh.failed[i].first);
  if (mesh.failed.size() > kJobsNamed) out += ", ...";
  return out + (mesh.failed.empty() ? "\n" : " (see tutti jobs --all)\n");
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

// Whose clock counts; null: no such agent tells its time.
const v1::AgentReport* coordinator_of(const v1::StatusReply& status) {
  const auto found = std::ranges::find_if(status.agents(), [](const auto& agent) {
    return agent.coordinator() && agent.time_ms() != 0;
  });
  return found == status.agents().end() ? nullptr : &*found;
}

void add_clocks(const v1::StatusReply& status, MeshDiagnosis& mesh) {
  for (const v1::AgentReport& agent : status.agents()) {
    const int64_t ahead_ms = clock_ahead_ms(status, agent);
    if (std::abs(ahead_ms) < kClockOffMs) continue;
    mesh.alarms.push_back({"Node " + agent.host(),
                           "has a clock that is " + std::to_string(std::abs(ahead_ms) / 1'000) +
                               " s " + (ahead_ms > 0 ? "ahead of" : "behind") + " that of " +
                               coordinator_of(status)->host() + "; see that NTP runs there"});
  }
}

// Ranks that wait alone say that there must be another host. No proof: the name may be an alias.
std::string doubtful_coordinator_of(const v1::StatusReply& status, const MeshDiagnosis& mesh) {
  const bool waits = std::ranges::any_of(mesh.jobs, [](const JobDiagnosis& job) {
    return job.diagnosis.verdict == Verdict::not_joined;
  });
  if (!waits || describe_lone(status).empty()) return {};
  const auto found = std::ranges::find_if(status.agents(), [](const auto& agent) {
    return !is_gone(agent) && takes_anothers_place(agent);
  });
  return found == status.agents().end() ? "" : found->host();
}

// Jobs without a worker whose last run failed on some host.
std::vector<JobKey> failed_last(const v1::StatusReply& status, const std::set<JobKey>& running) {
  std::set<JobKey> ended;
  for (const v1::AgentReport& agent : status.agents())
    for (const v1::EndedJob& job : agent.ended()) ended.insert(key_of(job.last()));
  std::vector<JobKey> failed;
  for (const JobKey& key : ended) {
    const uint32_t newest = newest_epoch(key.first, key.second, status, {});
    const auto has_failed = [&](const EndedOnHost& one) {
      return one.job->outcome() == "failed" && epoch_of(one.job->last()) == newest;
    };
    if (!running.contains(key) &&
        std::ranges::any_of(last_run(key.first, key.second, status), has_failed))
      failed.push_back(key);
  }
  return failed;
}

}  // namespace

JobKey key_of(const v1::WorkerReport& worker) { return {worker.job(), owner_of(worker)}; }

int64_t clock_ahead_ms(const v1::StatusReply& status, const v1::AgentReport& agent) {
  const v1::AgentReport* coordinator = coordinator_of(status);
  const bool is_known = coordinator != nullptr && agent.time_ms() != 0 && !is_gone(agent);
  return is_known ? agent.time_ms() - coordinator->time_ms() : 0;
}

MeshDiagnosis diagnose_mesh(const v1::StatusReply& status, const v1::TraceReply& trace) {
  MeshDiagnosis mesh;
  std::set<JobKey> jobs;
  std::map<std::string, int> names;
  for (const v1::AgentReport& agent : status.agents())
    if (!is_gone(agent) && ++names[agent.host()] == 2 && !agent.host().empty())
      mesh.alarms.push_back({"Node " + agent.host(),
                             "is the name of two agents; give each a name of its own with the "
                             "setting host"});
  add_clocks(status, mesh);
  for (const v1::AgentReport& agent : status.agents()) {
    add_node(agent, mesh);
    for (const v1::WorkerReport& worker : agent.workers()) jobs.insert(key_of(worker));
  }
  mesh.failed = failed_last(status, jobs);
  for (const JobKey& key : jobs) {
    const JobDiagnosis& job = mesh.jobs.emplace_back(diagnose_job(key, status, trace));
    if (grade_of(job.diagnosis.verdict) == Grade::fail)
      mesh.alarms.push_back({std::string(kJobAlarm) + key.first, job.diagnosis.sentence});
  }
  mesh.doubtful_coordinator = doubtful_coordinator_of(status, mesh);
  return mesh;
}

Grade grade_of(const MeshDiagnosis& mesh) {
  Grade worst = mesh.alarms.empty() ? Grade::ok : Grade::fail;
  for (const JobDiagnosis& job : mesh.jobs)
    worst = std::max(worst, grade_of(job.diagnosis.verdict));
  return worst;
}

std::string mesh_diagnosis_text(const MeshDiagnosis& mesh) {
  std::vector<const JobDiagnosis*> jobs;
  for (const JobDiagnosis& job : mesh.jobs) jobs.push_back(&job);
  std::ranges::stable_sort(jobs, std::greater<>(), [](const JobDiagnosis* job) {
    return grade_of(job->diagnosis.verdict);
  });
  std::string out;
  for (const Alarm& alarm : mesh.alarms)
    if (!alarm.subject.starts_with(kJobAlarm))
      out += row_text(Grade::fail, alarm.subject, alarm.finding);
  for (const JobDiagnosis* job : jobs) {
    out += row_text(grade_of(job->diagnosis.verdict), job->key.first, job->diagnosis.sentence);
    for (const std::string& line : job->diagnosis.evidence) out += row_text({}, "", line);
  }
  return out + sum_text(mesh);
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
