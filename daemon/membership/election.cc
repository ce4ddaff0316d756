#include "daemon/membership/election.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <utility>

#include "daemon/base/address.h"
#include "daemon/base/foreign_text.h"
#include "daemon/membership/values.h"

namespace tutti {
namespace {

constexpr Millis kRetry{500};
constexpr size_t kWritesAtOnce = 32;
constexpr size_t kWriteBytes = 512 << 10;
constexpr size_t kStateBytesMax = 900 << 10;  // etcd takes 1.5 MiB.

// Names of jobs may hold anything.
std::string encoded(const std::string& text) {
  std::string out;
  for (const unsigned char c : text) {
    if (std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-') {
      out += static_cast<char>(c);
      continue;
    }
    std::array<char, 4> digits;
    std::snprintf(digits.data(), digits.size(), "%%%02X", c);
    out += digits.data();
  }
  return out;
}

// One whose roster is too long for the store is saved without it, as one that workers may resume.
std::string value_of(v1::JobState state) {
  if (state.ByteSizeLong() > kStateBytesMax) {
    state.clear_roster();
    state.set_end(0);
  }
  return state.SerializeAsString();
}

// The store may have done what it was asked for, or do it later.
bool is_silence(Code code) {
  return code == Code::unavailable || code == Code::deadline_exceeded || code == Code::cancelled;
}

// Not those that only begin so, as of a mesh whose prefix does. Without `created`: there is none.
Keys::Entry find(const std::vector<Keys::Entry>& all, const std::string& name) {
  const auto found = std::ranges::find(all, name, &Keys::Entry::key);
  return found == all.end() ? Keys::Entry() : *found;
}

}  // namespace

// ---- Steps ----

Election::Step Election::begin(TimePoint now) {
  if (now >= lease_until_) stand_down("its lease in " + store_ + " may have ended");
  return keep_lease(now);
}

Election::Step Election::answered(const Keys::Answer& answer, TimePoint now) {
  const Phase phase = std::exchange(phase_, Phase::idle);
  if (phase == Phase::renewing) return on_renewed(answer.status, now);
  if (phase == Phase::saving) return on_saved(answer, now);
  const bool was_gone = phase == Phase::removing && answer.status.code() == Code::aborted;
  if (!answer.status.ok() && !was_gone) return end(answer.status, now);
  switch (phase) {
    case Phase::granting:
      granted_ = answer.lease;
      return ask(Phase::announcing,
                 Keys::Create{key("agents/" + encoded(options_.host)), options_.address, granted_});
    case Phase::announcing:
      return on_announced(answer.entries.at(0));
    case Phase::replacing:
      return use_lease();
    case Phase::looking:
      return on_seen(find(answer.entries, key("coordinator")), now);
    case Phase::removing:
      return stand();
    case Phase::standing:
      return follow_or_lead(answer.entries.at(0), now);
    case Phase::counting:
      last_write_ = find(answer.entries, key("writes")).modified;
      return ask(Phase::reading, Keys::List{key("jobs/")});
    case Phase::reading:
      return lead(answer.entries, now);
    case Phase::recounting:
      last_write_ = find(answer.entries, key("writes")).modified;
      return save_next(now);
    default:
      return end({}, now);
  }
}

Election::Step Election::ask(Phase phase, Keys::Request request) {
  phase_ = phase;
  return {.events = std::exchange(events_, {}),
          .request = std::move(request),
          .at = leads() ? lease_until_ : TimePoint::max()};
}

Election::Step Election::end(const Status& done, TimePoint now) {
  lost_write_ = false;
  if (done.ok())
    return {.events = std::exchange(events_, {}),
            .request = {},
            .at = std::min(renew_at_, now + options_.ttl / 3)};
  const bool lease_may_be_over = lease_ == 0 || now >= lease_until_;
  const bool will_not_do = !is_silence(done.code());
  if (lease_may_be_over || will_not_do) stand_down("");
  if (will_not_do) renew_at_ = {};  // Perhaps for want of the lease.
  if (!leads() && followed_.empty()) events_.push_back(StandBy{});
  const TimePoint again = now + kRetry;
  return {.events = std::exchange(events_, {}),
          .request = {},
          .at = leads() ? std::min(again, lease_until_) : again,  // To stand down in time.
          .done = done};
}

void Election::stand_down(const std::string& why) {
  if (!leads()) return;
  key_created_ = 0;
  followed_.clear();
  unsaved_.clear();
  events_.push_back(StandBy{why, true});
}

// ---- The lease ----

Election::Step Election::keep_lease(TimePoint now) {
  sent_ = now;
  if (lease_ == 0) return ask(Phase::granting, Keys::Grant{});
  return now < renew_at_ ? look() : ask(Phase::renewing, Keys::KeepAlive{lease_});
}

Election::Step Election::on_renewed(const Status& kept, TimePoint now) {
  if (!kept.ok() && kept.code() != Code::not_found) return end(kept, now);
  granted_ = lease_;
  if (kept.ok()) return use_lease();
  lease_ = 0;
  stand_down("its lease in " + store_ + " has ended");
  return ask(Phase::granting, Keys::Grant{});
}

// The key is of a process before this one, or of another agent.
Election::Step Election::on_announced(const Keys::Entry& there) {
  if (there.lease == granted_) return use_lease();
  if (there.value != options_.address) events_.push_back(HostTaken{clean_text(there.value)});
  return ask(Phase::replacing, Keys::Transaction{{}, {{there.key, options_.address, granted_}}});
}

Election::Step Election::use_lease() {
  lease_ = granted_;
  lease_until_ = sent_ + options_.ttl;
  renew_at_ = sent_ + options_.ttl / 3;
  return look();
}

// ---- Who coordinates ----

Election::Step Election::look() { return ask(Phase::looking, Keys::List{key("coordinator")}); }

Election::Step Election::stand() {
  return ask(Phase::standing, Keys::Create{key("coordinator"), own_value(), lease_});
}

Election::Step Election::on_seen(const Keys::Entry& coordinator, TimePoint now) {
  if (coordinator.created == 0) return stand();
  const bool is_own = coordinator.lease == lease_ && coordinator.created == key_created_;
  if (is_own || coordinator.value != own_value()) return follow_or_lead(coordinator, now);
  // An earlier process, or this one before it stood down: what that may still write is not saved
  // once the key is a new one.
  return ask(Phase::removing, Keys::Transaction{{Keys::Fence{coordinator.key, coordinator.created}},
                                                {{coordinator.key, {}, 0}}});
}

Election::Step Election::follow_or_lead(const Keys::Entry& coordinator, TimePoint now) {
  if (coordinator.lease == lease_ && coordinator.created == key_created_)
    return on_coordinator_known(now);
  if (coordinator.lease == lease_) {
    stand_down("its key was made again");
    own_created_ = coordinator.created;
    return ask(Phase::counting, Keys::List{key("writes")});
  }
  const std::string address = clean_text(coordinator.value.substr(0, coordinator.value.find(' ')));
  if (!parse_address(address).ok())
    return end(failed_precondition("the key " + coordinator.key +
                                   " holds no address; remove it there (etcdctl del)"),
               now);
  stand_down(address + " was elected");
  if (address == options_.address && coordinator.value != own_value())
    return end(failed_precondition("the coordinator \"" + clean_text(coordinator.value) +
                                   "\" has this agent's own address; give each agent in listen "
                                   "the address at which the others reach it"),
               now);
  if (std::exchange(followed_, address) != address) events_.push_back(Follow{address});
  return on_coordinator_known(now);
}

Election::Step Election::lead(const std::vector<Keys::Entry>& jobs, TimePoint now) {
  if (now >= lease_until_) return end(unavailable("it answered too late for the lease"), now);
  Lead begun{.term = own_created_, .states = {}};
  for (const Keys::Entry& entry : jobs)
    if (!begun.states.emplace_back().ParseFromString(entry.value)) begun.states.pop_back();
  for (v1::JobState& state : begun.states) clean_texts(state);
  key_created_ = own_created_;
  followed_ = options_.address;
  events_.push_back(std::move(begun));
  return on_coordinator_known(now);
}

Election::Step Election::on_coordinator_known(TimePoint now) {
  if (lost_write_ && leads()) {
    lost_write_ = false;
    return ask(Phase::recounting, Keys::List{key("writes")});
  }
  return save_next(now);
}

// ---- States ----

void Election::save(int64_t term, const std::vector<v1::JobState>& states) {
  if (!leads() || term != key_created_) return;
  unsaved_.insert(unsaved_.end(), states.begin(), states.end());
}

Election::Batch Election::next_batch() const {
  Batch batch;
  size_t bytes = 0;
  for (const v1::JobState& state : unsaved_) {
    const std::string name = key("jobs/" + encoded(key_of(state.owner(), state.job())));
    const bool again =  // A transaction may write a key only once.
        std::ranges::find(batch.writes, name, &Keys::Write::key) != batch.writes.end();
    if (again || batch.writes.size() == kWritesAtOnce || bytes > kWriteBytes) break;
    batch.states.push_back(state);
    batch.writes.push_back({name, {}});
    if (state.epoch() == 0) continue;  // It is to be forgotten.
    batch.writes.back().value = value_of(state);
    bytes += batch.writes.back().value->size();
  }
  return batch;
}

Election::Step Election::save_next(TimePoint now) {
  batch_ = next_batch();
  if (batch_.states.empty()) return end({}, now);
  std::vector<Keys::Write> writes = batch_.writes;
  writes.push_back({key("writes"), options_.host});
  return ask(Phase::saving,
             Keys::Transaction{
                 {{key("coordinator"), key_created_}, {key("writes"), 0, last_write_}}, writes});
}

// Where the fences did not hold, another was elected; or an earlier write of this agent has
// happened that seemed to have failed, and what is unsaved is written again, over it.
Election::Step Election::on_saved(const Keys::Answer& answer, TimePoint now) {
  if (answer.status.code() == Code::aborted) {
    lost_write_ = true;
    return look();
  }
  if (!answer.status.ok()) return end(answer.status, now);
  last_write_ = answer.revision;
  unsaved_.erase(unsaved_.begin(), unsaved_.begin() + static_cast<ptrdiff_t>(batch_.states.size()));
  if (now >= lease_until_) return end(unavailable("it answered too late for the lease"), now);
  for (v1::JobState& state : batch_.states) events_.push_back(Saved{std::move(state)});
  return save_next(now);
}

}  // namespace tutti
