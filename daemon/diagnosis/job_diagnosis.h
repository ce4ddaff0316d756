// The state of a job: one verdict, by what its hosts report. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/text.h"
#include "daemon/diagnosis/grade.h"
#include "proto/mesh.pb.h"

namespace tutti {

// In the order in which they count: the first that holds is the verdict.
enum class Verdict : uint8_t {
  no_such_job,
  failed,  // The epoch is over, a rank is gone that others needed, or all are gone in the midst.
  not_joined,    // Ranks wait for others to join.
  disagreement,  // The ranks asked for different operations.
  behind,        // Ranks wait in an operation that another one has not called.
  unanswered,    // Ranks wait, and hosts did not tell what theirs called.
  operation_failed,
  slow_link,
  late_rank,  // The same rank is the last one, again and again.
  network,    // All have called, and data moves, or ought to, between hosts.
  ended,      // All ranks have left.
  idle,       // No rank waits.
  running,
};
std::string_view name_of(Verdict verdict);
// FAIL where operations fail; WARN where ranks wait, or are slowed down.
Grade grade_of(Verdict verdict);
bool is_healthy(Verdict verdict);  // OK.
// A job that has ended with this verdict did not do what it was to.
bool has_failed(Verdict verdict);

struct Diagnosis {
  Verdict verdict = Verdict::no_such_job;
  std::string sentence;
  std::vector<std::string> evidence;  // A line each.
};

// `trace` should be taken before `status`. Jobs that only compute are idle: a rank is behind when
// others have waited for it for a second, and for twice as long as it usually takes.
Diagnosis diagnose(const std::string& job, const v1::StatusReply& status,
                   const v1::TraceReply& trace);

// How near a host is to the cause that a job failed, by what it remembers: most where its worker
// crashed, then where the first rank died, then where the job failed; 0: it did not.
int weight_of(const std::string& host, const v1::EndedJob& job);

std::string diagnosis_text(const Diagnosis& diagnosis);
// Adds "verdict", "healthy", "sentence" and "evidence" to an object.
void add_diagnosis(Json& json, const Diagnosis& diagnosis);
// {"job":...,"verdict":"behind","healthy":false,"sentence":...,"evidence":[...]} on one line.
std::string diagnosis_json(const std::string& job, const Diagnosis& diagnosis);

}  // namespace tutti
