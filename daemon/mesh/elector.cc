#include "daemon/mesh/elector.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>

#include "daemon/mesh/membership_values.h"

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

// One whose roster is too long for the store is kept without it, as one that workers may resume.
std::string value_of(v1::JobState state) {
  if (state.ByteSizeLong() > kStateBytesMax) {
    state.clear_roster();
    state.set_end(0);
  }
  return state.SerializeAsString();
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

Elector::~Elector() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    woken_.notify_all();
  }
  if (!reachability_.is_reached()) store_->cancel();
  thread_.join();
  store_->cancel();
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
  return store_->name() + " has not answered for " + std::to_string(seconds.count()) +
         " s; joins wait until it does";
}

void Elector::run() {
  for (;;) {
    const TimePoint next = step();
    std::unique_lock lock(mutex_);
    woken_.wait_until(lock, next, [this] { return wake_ || stopping_; });
    wake_ = false;
    if (stopping_) break;
  }
  if (lease_ != 0 && reachability_.is_reached()) (void)store_->revoke(lease_);
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
  if (seat_created_ != 0 && lease_may_be_over) leave_seat(obstacle());
  if (seat_created_ == 0 && followed_.empty()) events_.on_stand_by(obstacle());
  return Clock::now() + kRetry;
}

Status Elector::act() {
  if (seat_created_ != 0 && Clock::now() >= lease_until_)
    leave_seat("its lease in " + store_->name() + " may have ended");
  if (Status kept = keep_lease(); !kept.ok()) return kept;
  if (Status seen = look_at_seat(); !seen.ok()) return seen;
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
      leave_seat("its lease in " + store_->name() + " has ended");
    }
  }
  if (lease_ == 0) {
    const Result<KeyStore::Lease> granted = store_->grant(options_.ttl);
    if (!granted.ok()) return granted.status();
    const std::string name = key("agents/" + encoded(options_.host));
    if (Status put = store_->write({}, {{name, options_.address, *granted}}); !put.ok()) return put;
    lease_ = *granted;
  }
  lease_until_ = sent + options_.ttl;
  renew_at_ = sent + options_.ttl / 3;
  return {};
}

Status Elector::look_at_seat() {
  const std::string name = key("coordinator");
  const Result<std::vector<KeyStore::Entry>> found = store_->list(name);
  if (!found.ok()) return found.status();
  if ((*found).empty()) {
    const Result<KeyStore::Entry> made = store_->create(name, options_.address, lease_);
    return made.ok() ? take_seat(*made) : made.status();
  }
  const KeyStore::Entry& seat = (*found)[0];
  const bool of_former_self = seat.value == options_.address && seat.lease != lease_;
  if (!of_former_self) return take_seat(seat);
  // An earlier process at this address cannot use it any more.
  const Status removed = store_->write(KeyStore::Fence{name, seat.created}, {{name, {}, 0}});
  return removed.ok() || removed.code() == Code::aborted ? look_at_seat() : removed;
}

Status Elector::take_seat(const KeyStore::Entry& seat) {
  if (seat.lease != lease_) {
    if (seat_created_ != 0) leave_seat(seat.value + " was elected");
    if (std::exchange(followed_, seat.value) != seat.value) events_.on_follow(seat.value);
    return {};
  }
  if (seat_created_ == seat.created) return {};
  const Result<std::vector<KeyStore::Entry>> jobs = store_->list(key("jobs/"));
  if (!jobs.ok()) return jobs.status();
  std::vector<v1::JobState> states;
  for (const KeyStore::Entry& entry : *jobs)
    if (!states.emplace_back().ParseFromString(entry.value)) states.pop_back();
  seat_created_ = seat.created;
  followed_ = seat.value;
  spdlog::info("coordinates: elected through {}, with {} jobs", store_->name(), states.size());
  events_.on_lead(std::move(states));
  return {};
}

void Elector::leave_seat(const std::string& why) {
  if (seat_created_ == 0) return;
  seat_created_ = 0;
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
  if (seat_created_ == 0) unsaved_.clear();
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

Status Elector::save_some() {
  for (;;) {
    const Batch batch = next_batch();
    if (batch.states.empty()) return {};
    const Status kept =
        store_->write(KeyStore::Fence{key("coordinator"), seat_created_}, batch.writes);
    if (kept.code() == Code::aborted) {
      leave_seat("it was deposed");
      return look_at_seat();
    }
    if (!kept.ok()) return kept;
    {
      const std::lock_guard lock(mutex_);
      unsaved_.erase(unsaved_.begin(),
                     unsaved_.begin() + static_cast<ptrdiff_t>(batch.states.size()));
    }
    if (Clock::now() >= lease_until_) return unavailable("it answered too late for the lease");
    for (const v1::JobState& state : batch.states) events_.on_saved(state);
  }
}

}  // namespace tutti
