#include "client/faces/distribute/rendezvous.h"

#include <utility>

#include "client/faces/base/base.h"

namespace tutti::distribute {

Status Rendezvous::meet(size_t replica, const Call& call, const Merge& merge) {
  Lock lock(mutex_);
  if (std::deque<Status>& owed = owed_[replica]; !owed.empty()) {
    Status status = std::move(owed.front());
    owed.pop_front();
    return status;
  }
  concluded_.wait(lock, [&] { return !merging_; });  // A round that went on without this replica.
  calls_[replica] = call;
  if (arrived_++ == 0) merge_ = merge;
  const uint64_t round = round_;
  if (all_came()) {
    conclude(lock, outcome());
    return results_[replica];
  }
  const auto left = [&] { return round_ != round || merging_; };
  if (!concluded_.wait_for(lock, call.timeout, left))
    conclude(lock, miss_the_others());
  else
    concluded_.wait(lock, [&] { return round_ != round; });
  return results_[replica];
}

// The error of a round to which some have not come, which owes it to them.
Status Rendezvous::miss_the_others() {
  std::string missing;
  for (size_t i = 0; i < calls_.size(); ++i)
    if (!calls_[i] && !finished_[i]) missing += (missing.empty() ? "" : ", ") + name_of(i);
  const size_t first = first_arrived();
  const Status late = deadline_exceeded(name_of(first) + " waits in " + calls_[first]->name +
                                        " for what has not called in time: " + missing +
                                        "; every replica must make the same calls");
  for (size_t i = 0; i < calls_.size(); ++i)
    if (!calls_[i] && !finished_[i]) owed_[i].push_back(late);
  return late;
}

void Rendezvous::finish(size_t replica, const Status& status) {
  Lock lock(mutex_);
  if (first_failure_.ok()) first_failure_ = status;
  if (finished_count_ == 0)
    first_finished_ = name_of(replica) +
                      (status.ok() ? " has returned" : " has failed (" + status.message() + ")");
  finished_[replica] = true;
  ++finished_count_;
  if (all_came()) conclude(lock, outcome());
}

Status Rendezvous::first_failure() const {
  const std::lock_guard lock(mutex_);
  return first_failure_;
}

size_t Rendezvous::first_arrived() const {
  size_t first = 0;
  while (!calls_[first]) ++first;
  return first;
}

// Whether those who came may go on.
Status Rendezvous::outcome() const {
  for (size_t i = 0; i < calls_.size(); ++i)
    if (calls_[i] && !calls_[i]->own.ok())
      return {calls_[i]->own.code(), name_of(i) + ": " + calls_[i]->own.message()};
  const size_t first = first_arrived();
  if (finished_count_ > 0)
    return failed_precondition(first_finished_ + ", while " + name_of(first) + " waits in " +
                               calls_[first]->name + "; every replica must make the same calls");
  for (size_t i = 1; i < calls_.size(); ++i)
    if (calls_[i]->name != calls_[0]->name)
      return invalid_argument(
          faces::disagreement("replica", ids_[0], {calls_[0]->name}, ids_[i], {calls_[i]->name}));
  return {};
}

// Merges without the lock: those who came wait, and those who did not wait until it has ended.
void Rendezvous::conclude(Lock& lock, const Status& met) {
  const std::vector<std::optional<Call>> calls =
      std::exchange(calls_, std::vector<std::optional<Call>>(calls_.size()));
  std::vector<void*> arguments;
  for (const std::optional<Call>& call : calls)
    arguments.push_back(call ? call->argument : nullptr);
  const Merge merge = std::move(merge_);
  arrived_ = 0;
  merging_ = true;
  concluded_.notify_all();
  lock.unlock();
  const Status status = no_throw([&] { return merge(met, arguments); });
  lock.lock();
  for (size_t i = 0; i < calls.size(); ++i)
    if (calls[i]) results_[i] = status;
  merging_ = false;
  ++round_;
  concluded_.notify_all();
}

}  // namespace tutti::distribute
