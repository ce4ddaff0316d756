// Whose jobs of a name there are: each user, and each subject of a token, has jobs of its own.
// Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/mesh.pb.h"

namespace tutti {

struct JobOwner {
  uint32_t uid = 0;
  std::string subject;
  auto operator<=>(const JobOwner&) const = default;
};
std::string describe(const JobOwner& owner);  // "user 1001", "user 1001 (alice)".

JobOwner owner_of(const v1::HostTrace& trace);
JobOwner owner_of(const v1::WorkerReport& worker);
// The newest epoch, also where it is over.
uint32_t epoch_of(const v1::WorkerReport& worker);

// Those with a running job of this name; where there is none, those whose job has ended. Ascending.
std::vector<JobOwner> owners_of(const std::string& job, const v1::StatusReply& status,
                                const v1::TraceReply& trace);
// The same, of a reply on one job.
std::vector<JobOwner> owners_of(const v1::TraceReply& trace);

struct EndedOnHost {
  std::string host;
  const v1::EndedJob* job = nullptr;
};
// What hosts remember of the job's last run: what ended since the worker that ended last had
// started, by each host's clock. Earlier runs may have had higher epochs; all of them where that
// is not known. Belongs to `status`.
std::vector<EndedOnHost> last_run(const std::string& job, const JobOwner& owner,
                                  const v1::StatusReply& status);

// For the running job; for one that has ended where none runs. 0: there is none.
uint32_t newest_epoch(const std::string& job, const JobOwner& owner, const v1::StatusReply& status,
                      const v1::TraceReply& trace);
uint32_t newest_epoch(const JobOwner& owner, const v1::TraceReply& trace);

}  // namespace tutti
