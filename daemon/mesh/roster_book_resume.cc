// What workers that come back say of epochs that the roster book may not know.
#include <algorithm>

#include "daemon/mesh/mesh.h"
#include "daemon/mesh/roster_book.h"
#include "daemon/mesh/wire.h"

namespace tutti {
namespace {

bool well_formed(const v1::Resume& resume) {
  const auto& ranks = resume.ranks();
  const int world_size = resume.roster().ranks_size();
  return resume.epoch() != 0 && resume.epoch() <= kEpochMax && from_message(resume.roster()).ok() &&
         check_job(resume.job(), 0, static_cast<uint32_t>(world_size)).ok() &&
         std::ranges::all_of(ranks, [&](uint32_t r) { return r < uint32_t(world_size); });
}

}  // namespace

RosterBook::Answers RosterBook::resume(Worker worker, const v1::Resume& resume) {
  Answers answers;
  const bool stranger = !token_.empty() && !same_token(token_, resume.token());
  if (stranger || !well_formed(resume)) return answers;
  const std::string& name = resume.job();
  Job& job = open(name);
  const LastEpoch heard_of{resume.epoch(), EpochEnd::unknown};
  if (resume.epoch() > job.last.number || job.last == heard_of) learn(job, worker, resume, answers);
  const bool broke = job.last == LastEpoch{resume.epoch(), EpochEnd::death};
  if (is_running(job, resume)) {
    take_over(job, worker, resume);
  } else if (!resume.ranks().empty() && !resume.has_broken() && !broke) {
    const std::string epoch = "epoch " + std::to_string(resume.epoch());
    const Status cause = unavailable(epoch + " of job \"" + name + "\"" +
                                     " was ended while this worker was out of the coordinator's "
                                     "reach; join again");
    tell(answers, {worker}, aborted_message(name, resume.epoch(), cause));
  }
  settle(name, answers);
  return answers;
}

// Numbers are not enough: a book that lost its own may have given one twice.
bool RosterBook::is_running(const Job& job, const v1::Resume& resume) {
  return job.running && job.running->epoch == resume.epoch() &&
         same_token(job.running->secret, resume.roster().secret());
}

void RosterBook::learn(Job& job, Worker worker, const v1::Resume& resume, Answers& answers) {
  job.last = {resume.epoch(), resume.has_broken() ? EpochEnd::death : EpochEnd::unknown};
  if (resume.ranks().empty() || resume.has_broken()) return;
  job.last.end = EpochEnd::over;  // Once it does not run any more.
  const std::string& name = resume.job();
  const std::string epoch = "epoch " + std::to_string(resume.epoch());
  if (job.running) break_epoch(job, name, aborted(epoch + " has taken over"), worker, answers);
  job.strategy = resume.roster().strategy();
  job.running = Running{.epoch = resume.epoch(), .secret = resume.roster().secret(), .members = {}};
  for (const v1::RosterRank& who : resume.roster().ranks())
    job.running->members.push_back({0, who});
}

void RosterBook::take_over(Job& job, Worker worker, const v1::Resume& resume) {
  if (resume.has_broken()) return break_by_death(job);
  std::vector<Member>& members = job.running->members;
  for (Member& member : members)
    if (member.who.host() == resume.host()) member.worker = 0;
  for (const uint32_t rank : resume.ranks())
    if (rank < members.size()) members[rank].worker = worker;
}

}  // namespace tutti
