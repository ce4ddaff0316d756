#include "daemon/mesh/elector.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>

#include "daemon/base/address.h"
#include "daemon/base/foreign_text.h"
#include "daemon/mesh/membership_values.h"

namespace tutti {
namespace {

constexpr Millis kRetry{500};
constexpr Millis kFarewell{300};  // For giving up the lease.
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

// One whose roster is too long for the store is kept without it, as one that workers may resume.
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

}  // namespace

Elector::Elector(std::unique_ptr<KeyStore> store, Options options, Events events)
    : store_(std::move(store)),
      options_(std::move(options)),
      events_(std::move(events)),
      reachability_(store_->name()) {
  watch_thread_ = std::thread([this] { watch(); });
  thread_ = std::thread([this] { run(); });
}

// The lease is given up if the store answers at once.
Elector::~Elector() {
  {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    woken_.notify_all();
    woken_.wait_for(lock, kFarewell, [this] { return stopped_; });
  }
  store_->cancel();
  thread_.join();
  watch_thread_.join();
}

void Elector::save(std::vector<v1::JobState> states) {
  const std::lock_guard lock(mutex_);
  for (v1::JobState& state : states) unsaved_.push_back(std::move(state));
  wake_ = true;
  woken_.notify_all();
}

std::string Elector::obstacle() const {
  if (reachability_.is_reached()) return {};
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(reachability_.lost_for());
  const std::string why = reachability_.why();
  return store_->name() + " has not answered for " + std::to_string(seconds.count()) + " s" +
         (why.empty() ? "" : " (" + why + ")") + "; joins wait until it does";
}

void Elector::run() {
  for (;;) {
    const TimePoint next = step();
    std::unique_lock lock(mutex_);
    woken_.wait_until(lock, next, [this] { return wake_ || stopping_; });
    wake_ = false;
    if (stopping_) break;
  }
  if (lease_ != 0) (void)store_->revoke(lease_);
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  woken_.notify_all();
}

// Only wakes the other thread, which then looks for itself: so nothing is lost between two watches.
void Elector::watch() {
  const auto wake = [this] {
    const std::lock_guard lock(mutex_);
    wake_ = true;
    woken_.notify_all();
  };
  for (;;) {
    (void)store_->watch(key("coordinator"),
                        {.on_open = wake, .on_change = [&](const auto&, const auto&) { wake(); }});
    std::unique_lock lock(mutex_);
    if (woken_.wait_for(lock, kRetry, [this] { return stopping_; })) return;
  }
}

TimePoint Elector::step() {
  const Status done = act();
  if (done.ok()) {
    reachability_.reached();
    return std::min(renew_at_, Clock::now() + options_.ttl / 3);
  }
  if (done.code() != Code::cancelled) reachability_.lost(done.message());
  const bool lease_may_be_over = lease_ == 0 || Clock::now() >= lease_until_;
  const bool will_not_do = !is_silence(done.code());
  if (lease_may_be_over || will_not_do) stand_down(obstacle());
  if (will_not_do) renew_at_ = {};  // Perhaps for want of the lease.
  if (key_created_ == 0 && followed_.empty()) events_.on_stand_by(obstacle());
  return Clock::now() + kRetry;
}

Status Elector::act() {
  if (Clock::now() >= lease_until_)
    stand_down("its lease in " + store_->name() + " may have ended");
  store_->set_deadline(key_created_ == 0 ? TimePoint::max() : lease_until_);
  if (Status kept = keep_lease(); !kept.ok()) return kept;
  if (Status seen = look_at_coordinator(); !seen.ok()) return seen;
  return save_some();
}

Status Elector::keep_lease() {
  const TimePoint sent = Clock::now();
  if (lease_ != 0 && sent < renew_at_) return {};
  if (lease_ != 0) {
    const Status kept = store_->keep_alive(lease_);
    if (!kept.ok() && kept.code() != Code::not_found) return kept;
    if (!kept.ok()) {
      lease_ = 0;
      stand_down("its lease in " + store_->name() + " has ended");
    }
  }
  if (lease_ == 0)
    if (Status published = publish_address(); !published.ok()) return published;
  lease_until_ = sent + options_.ttl;
  renew_at_ = sent + options_.ttl / 3;
  if (key_created_ != 0) store_->set_deadline(lease_until_);
  return {};
}

// Under a new lease.
Status Elector::publish_address() {
  const Result<KeyStore::Lease> granted = store_->grant(options_.ttl);
  if (!granted.ok()) return granted.status();
  const std::string name = key("agents/" + encoded(options_.host));
  const Result<KeyStore::Entry> told = store_->create(name, options_.address, *granted);
  if (!told.ok()) return told.status();
  if ((*told).lease != *granted) {  // Of a process before this one, or of another agent.
    if ((*told).value != options_.address)
      spdlog::warn(
          "the agent at {}, too, calls its host {}, or did until {} s ago; each needs a "
          "name of its own (host)",
          clean_text((*told).value), options_.host,
          std::chrono::duration_cast<std::chrono::seconds>(options_.ttl).count());
    const auto put = store_->write({}, {{name, options_.address, *granted}});
    if (!put.ok()) return put.status();
  }
  lease_ = *granted;
  return {};
}

// Not those that only begin so, as of a mesh whose prefix does. Without `created`: there is none.
Result<KeyStore::Entry> Elector::find(const std::string& name) {
  const Result<std::vector<KeyStore::Entry>> all = store_->list(name);
  if (!all.ok()) return all.status();
  const auto found = std::ranges::find(*all, name, &KeyStore::Entry::key);
  return found == (*all).end() ? KeyStore::Entry() : *found;
}

Status Elector::look_at_coordinator() {
  const std::string name = key("coordinator");
  const Result<KeyStore::Entry> found = find(name);
  if (!found.ok()) return found.status();
  if ((*found).created == 0) {
    const Result<KeyStore::Entry> made = store_->create(name, own_value(), lease_);
    return made.ok() ? apply(*made) : made.status();
  }
  const KeyStore::Entry& there = *found;
  const bool is_own = there.lease == lease_ && there.created == key_created_;
  if (is_own || there.value != own_value()) return apply(there);
  // An earlier process, or this one before it stood down: what that may still write is not kept
  // once the key is made again.
  const auto removed = store_->write({KeyStore::Fence{name, there.created}}, {{name, {}, 0}});
  if (!removed.ok() && removed.status().code() != Code::aborted) return removed.status();
  const Result<KeyStore::Entry> made = store_->create(name, own_value(), lease_);
  return made.ok() ? apply(*made) : made.status();
}

Status Elector::apply(const KeyStore::Entry& coordinator) {
  if (coordinator.lease == lease_)
    return coordinator.created == key_created_ ? Status() : start_leading(coordinator);
  const std::string address = clean_text(coordinator.value.substr(0, coordinator.value.find(' ')));
  if (!parse_address(address).ok())
    return failed_precondition("the key " + coordinator.key +
                               " holds no address; remove it there (etcdctl del)");
  stand_down(address + " was elected");
  if (address == options_.address && coordinator.value != own_value())
    return failed_precondition("the coordinator \"" + clean_text(coordinator.value) +
                               "\" has this agent's own address; give each agent in listen the "
                               "address at which the others reach it");
  if (std::exchange(followed_, address) != address) events_.on_follow(address);
  return {};
}

Status Elector::start_leading(const KeyStore::Entry& own) {
  stand_down("its key was made again");
  const Result<KeyStore::Entry> writes = find(key("writes"));
  if (!writes.ok()) return writes.status();
  const Result<std::vector<KeyStore::Entry>> jobs = store_->list(key("jobs/"));
  if (!jobs.ok()) return jobs.status();
  if (Clock::now() >= lease_until_) return unavailable("it answered too late for the lease");
  std::vector<v1::JobState> states;
  for (const KeyStore::Entry& entry : *jobs)
    if (!states.emplace_back().ParseFromString(entry.value)) states.pop_back();
  for (v1::JobState& state : states) clean_texts(state);
  last_write_ = (*writes).modified;
  key_created_ = own.created;
  followed_ = options_.address;
  spdlog::info("coordinates: elected through {}, with {} jobs", store_->name(), states.size());
  events_.on_lead(std::move(states));
  return {};
}

void Elector::stand_down(const std::string& why) {
  if (key_created_ == 0) return;
  key_created_ = 0;
  followed_.clear();
  {
    const std::lock_guard lock(mutex_);
    unsaved_.clear();
  }
  spdlog::warn("does not coordinate any more: {}", why);
  events_.on_stand_by(why);
}

Elector::Batch Elector::next_batch() {
  const std::lock_guard lock(mutex_);
  if (key_created_ == 0) unsaved_.clear();
  Batch batch;
  size_t bytes = 0;
  for (const v1::JobState& state : unsaved_) {
    const std::string name = key("jobs/" + encoded(key_of(state.owner(), state.job())));
    const bool again =  // A transaction may write a key only once.
        std::ranges::find(batch.writes, name, &KeyStore::Write::key) != batch.writes.end();
    if (again || batch.writes.size() == kWritesAtOnce || bytes > kWriteBytes) break;
    batch.states.push_back(state);
    batch.writes.push_back({name, {}});
    if (state.epoch() == 0) continue;  // It is to be forgotten.
    batch.writes.back().value = value_of(state);
    bytes += batch.writes.back().value->size();
  }
  return batch;
}

Result<int64_t> Elector::write_batch(const Batch& batch) {
  std::vector<KeyStore::Write> writes = batch.writes;
  writes.push_back({key("writes"), options_.host});
  return store_->write({{key("coordinator"), key_created_}, {key("writes"), 0, last_write_}},
                       writes);
}

Status Elector::save_some() {
  for (;;) {
    const Batch batch = next_batch();
    if (batch.states.empty()) return {};
    const Result<int64_t> kept = write_batch(batch);
    if (kept.status().code() == Code::aborted) {
      if (Status seen = poll(); !seen.ok()) return seen;
      continue;
    }
    if (!kept.ok()) return kept.status();
    last_write_ = *kept;
    {
      const std::lock_guard lock(mutex_);
      unsaved_.erase(unsaved_.begin(),
                     unsaved_.begin() + static_cast<ptrdiff_t>(batch.states.size()));
    }
    if (Clock::now() >= lease_until_) return unavailable("it answered too late for the lease");
    for (const v1::JobState& state : batch.states) events_.on_saved(state);
  }
}

// Another was elected; or an earlier write of this agent has happened that seemed to have failed,
// and what is unsaved is written again, over it.
Status Elector::poll() {
  if (Status seen = look_at_coordinator(); !seen.ok() || key_created_ == 0) return seen;
  const Result<KeyStore::Entry> writes = find(key("writes"));
  if (!writes.ok()) return writes.status();
  last_write_ = (*writes).modified;
  return {};
}

}  // namespace tutti
