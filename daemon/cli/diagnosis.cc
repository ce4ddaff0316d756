#include "daemon/cli/diagnosis.h"

#include <algorithm>
#include <array>

#include "daemon/base/text.h"
#include "daemon/cli/findings.h"

namespace tutti {
namespace {

constexpr std::array kFindings = {find_failed,    find_not_joined, find_disagreement,
                                  find_behind,    find_unanswered, find_failed_operation,
                                  find_slow_link, find_late_rank,  find_network,
                                  find_ended,     find_idle};

}  // namespace

std::string_view name_of(Verdict verdict) {
  constexpr std::array<std::string_view, 13> kNames = {
      "no_such_job",      "failed",    "not_joined", "disagreement", "behind", "unanswered",
      "operation_failed", "slow_link", "late_rank",  "network",      "ended",  "idle",
      "running"};
  return kNames.at(static_cast<size_t>(verdict));
}

bool is_healthy(Verdict verdict) { return verdict >= Verdict::ended; }

Diagnosis diagnose(const std::string& job, const v1::StatusReply& status,
                   const v1::TraceReply& trace) {
  const JobView view = view_job(job, status, trace);
  Diagnosis diagnosis;
  if (!view.has_worker && !view.has_trace) {
    diagnosis.sentence = "no job " + job + " is known: see tutti status";
  } else {
    diagnosis = running(view);
    for (const auto& find : kFindings)
      if (Finding found = find(view)) {
        diagnosis = *std::move(found);
        break;
      }
  }
  diagnosis.evidence.insert(diagnosis.evidence.end(), view.silent.begin(), view.silent.end());
  return diagnosis;
}

std::string diagnosis_text(const Diagnosis& diagnosis) {
  std::string out = printable(diagnosis.sentence) + "\n";
  for (const std::string& line : diagnosis.evidence) out += "  " + printable(line) + "\n";
  return out;
}

std::string diagnosis_json(const std::string& job, const Diagnosis& diagnosis) {
  Json json;
  json.open('{')
      .field("job", job)
      .field("verdict", name_of(diagnosis.verdict))
      .field("healthy", is_healthy(diagnosis.verdict))
      .field("sentence", diagnosis.sentence)
      .key("evidence")
      .open('[');
  for (const std::string& line : diagnosis.evidence) json.value(line);
  json.close().close();
  return json.line();
}

}  // namespace tutti
