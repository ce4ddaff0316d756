#include "daemon/diagnosis/job_diagnosis.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "daemon/base/text.h"
#include "daemon/diagnosis/findings.h"

namespace tutti {
namespace {

// A slow link comes before the ranks that wait for its data.
constexpr std::array kFindings = {
    find_failed,     find_not_joined,       find_disagreement, find_slow_link, find_behind,
    find_unanswered, find_failed_operation, find_late_rank,    find_network,   find_ended,
    find_idle};

// Nothing of a job that is over is slow any more.
constexpr std::array kFindingsOfOver = {find_stopped,          find_failed, find_not_joined,
                                        find_disagreement,     find_behind, find_unanswered,
                                        find_failed_operation, find_ended};

template <size_t N>
Finding first_of(const std::array<Finding (*)(const JobView&), N>& findings, const JobView& view) {
  for (const auto& find : findings)
    if (Finding found = find(view)) return found;
  return std::nullopt;
}

// How the job was to go on, which an agent may have said already.
void add_failed_join(const JobView& view, Diagnosis& found) {
  const v1::Failure* failed = failed_join(view);
  if (!view.is_over() || failed == nullptr) return;
  const std::string why = text_of(*failed);
  if (found.sentence.find(why) == std::string::npos) found.sentence += "; a join failed: " + why;
}

}  // namespace

Diagnosis judge(const JobView& view) {
  Finding found = view.is_over() ? first_of(kFindingsOfOver, view) : first_of(kFindings, view);
  if (!found) return running(view);
  add_failed_join(view, *found);
  return *std::move(found);
}

std::string_view name_of(Verdict verdict) {
  constexpr std::array<std::string_view, 13> kNames = {
      "no_such_job",      "failed",    "not_joined", "disagreement", "behind", "unanswered",
      "operation_failed", "slow_link", "late_rank",  "network",      "ended",  "idle",
      "running"};
  return kNames.at(static_cast<size_t>(verdict));
}

Grade grade_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::no_such_job:
    case Verdict::failed:
    case Verdict::disagreement:
    case Verdict::operation_failed:
      return Grade::fail;
    case Verdict::ended:
    case Verdict::idle:
    case Verdict::running:
      return Grade::ok;
    default:
      return Grade::warn;
  }
}

bool is_healthy(Verdict verdict) { return grade_of(verdict) == Grade::ok; }

bool has_failed(Verdict verdict) {
  return grade_of(verdict) == Grade::fail || verdict == Verdict::behind ||
         verdict == Verdict::not_joined || verdict == Verdict::unanswered;
}

Diagnosis diagnose(const std::string& job, const v1::StatusReply& status,
                   const v1::TraceReply& trace) {
  std::vector<std::pair<JobOwner, Diagnosis>> all;  // Of each owner's job of this name.
  for (const JobOwner& owner : owners_of(job, status, trace))
    all.emplace_back(owner, judge(view_job(job, owner, status, trace)));
  Diagnosis worst{.sentence = "no job " + job + " is known: see tutti status"};
  JobOwner whose;
  if (!all.empty())
    std::tie(whose, worst) =
        *std::ranges::min_element(all, {}, [](const auto& one) { return one.second.verdict; });
  if (all.size() > 1) {
    worst.evidence.push_back("this is the job of " + describe(whose));
    for (const auto& [owner, other] : all)
      if (owner != whose)
        worst.evidence.push_back("that of " + describe(owner) + ": " + other.sentence);
  }
  const JobView view = view_job(job, whose, status, trace);
  worst.evidence.insert(worst.evidence.end(), view.silent.begin(), view.silent.end());
  return worst;
}

std::string diagnosis_text(const Diagnosis& diagnosis) {
  std::string out = printable(diagnosis.sentence) + "\n";
  for (const std::string& line : diagnosis.evidence) out += "  " + printable(line) + "\n";
  return out;
}

void add_diagnosis(Json& json, const Diagnosis& diagnosis) {
  json.field("verdict", name_of(diagnosis.verdict))
      .field("healthy", is_healthy(diagnosis.verdict))
      .field("sentence", diagnosis.sentence)
      .key("evidence")
      .open('[');
  for (const std::string& line : diagnosis.evidence) json.value(line);
  json.close();
}

std::string diagnosis_json(const std::string& job, const Diagnosis& diagnosis) {
  Json json;
  json.open('{').field("job", job);
  add_diagnosis(json, diagnosis);
  return json.close().line();
}

}  // namespace tutti
