#include "tests/control/memory_store.h"

#include <condition_variable>
#include <map>
#include <mutex>

namespace tutti {

struct MemoryKeys::State {
  struct Change {
    std::string key;
    std::optional<std::string> value;
  };
  struct Granted {
    Millis ttl;
    Millis until;
  };

  void put(const KeyStore::Write& write) {
    KeyStore::Entry& entry = entries[write.key];
    if (entry.created == 0) entry.created = revision;
    entry.modified = revision;
    entry.key = write.key;
    entry.value = *write.value;
    entry.lease = write.lease;
    changes.push_back({write.key, write.value});
  }
  void remove(const std::string& key) {
    if (entries.erase(key) != 0) changes.push_back({key, {}});
  }
  void end_lease(KeyStore::Lease lease) {
    leases.erase(lease);
    ++revision;
    for (auto next = entries.begin(); next != entries.end();) {
      const auto entry = next++;
      if (entry->second.lease == lease) remove(std::string(entry->first));
    }
    changed.notify_all();
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, KeyStore::Entry> entries;
  std::map<KeyStore::Lease, Granted> leases;
  std::vector<Change> changes;  // All of them, for watches.
  int64_t revision = 1;
  KeyStore::Lease last_lease = 0;
  Millis now{0};
  bool answers = true;
};

namespace {

class MemoryStore final : public KeyStore {
 public:
  explicit MemoryStore(MemoryKeys::State& state) : state_(state) {}

  Result<Lease> grant(Millis ttl) override {
    const std::lock_guard lock(state_.mutex);
    if (Status up = check_locked(); !up.ok()) return up;
    state_.leases[++state_.last_lease] = {ttl, state_.now + ttl};
    return state_.last_lease;
  }

  Status keep_alive(Lease lease) override {
    const std::lock_guard lock(state_.mutex);
    if (Status up = check_locked(); !up.ok()) return up;
    const auto found = state_.leases.find(lease);
    if (found == state_.leases.end()) return not_found("the lease has ended");
    found->second.until = state_.now + found->second.ttl;
    return {};
  }

  Status revoke(Lease lease) override {
    const std::lock_guard lock(state_.mutex);
    if (Status up = check_locked(); !up.ok()) return up;
    if (!state_.leases.contains(lease)) return not_found("the lease has ended");
    state_.end_lease(lease);
    return {};
  }

  Result<Entry> create(const std::string& key, const std::string& value, Lease lease) override {
    const std::lock_guard lock(state_.mutex);
    if (Status up = check_locked(); !up.ok()) return up;
    const auto found = state_.entries.find(key);
    if (found != state_.entries.end()) return found->second;
    if (Status there = check_lease_locked(lease); !there.ok()) return there;
    ++state_.revision;
    state_.put({key, value, lease});
    state_.changed.notify_all();
    return state_.entries.at(key);
  }

  Result<int64_t> write(const std::vector<Fence>& fences,
                        const std::vector<Write>& writes) override {
    const std::lock_guard lock(state_.mutex);
    if (Status up = check_locked(); !up.ok()) return up;
    for (const Fence& fence : fences)
      if (!holds_locked(fence)) return aborted(fence.key + " is not what it was");
    for (const Write& write : writes)
      if (Status there = check_lease_locked(write.lease); !there.ok()) return there;
    ++state_.revision;
    for (const Write& write : writes) write.value ? state_.put(write) : state_.remove(write.key);
    state_.changed.notify_all();
    return state_.revision;
  }

  Result<std::vector<Entry>> list(const std::string& prefix) override {
    const std::lock_guard lock(state_.mutex);
    if (Status up = check_locked(); !up.ok()) return up;
    std::vector<Entry> found;
    for (const auto& [key, entry] : state_.entries)
      if (key.starts_with(prefix)) found.push_back(entry);
    return found;
  }

  Status watch(const std::string& prefix, const Watcher& watcher) override {
    std::unique_lock lock(state_.mutex);
    size_t next = state_.changes.size();
    for (bool opened = false;;) {
      if (Status up = check_locked(); !up.ok()) return up;
      if (!std::exchange(opened, true)) {
        lock.unlock();
        watcher.on_open();
        lock.lock();
      }
      if (next == state_.changes.size()) {
        state_.changed.wait(lock);
        continue;
      }
      const MemoryKeys::State::Change change = state_.changes[next++];
      if (!change.key.starts_with(prefix)) continue;
      lock.unlock();
      watcher.on_change(change.key, change.value);
      lock.lock();
    }
  }

  void cancel() override {
    const std::lock_guard lock(state_.mutex);
    cancelled_ = true;
    state_.changed.notify_all();
  }

  void set_deadline(TimePoint) override {}  // Nothing here waits.

  std::string name() const override { return "the store in memory"; }

 private:
  bool holds_locked(const Fence& fence) const {
    const auto found = state_.entries.find(fence.key);
    const Entry entry = found == state_.entries.end() ? Entry() : found->second;
    return fence.modified ? entry.modified == *fence.modified
                          : entry.created == fence.created && fence.created != 0;
  }
  Status check_locked() const {
    if (cancelled_) return {Code::cancelled, "the store was closed"};
    return state_.answers ? Status() : unavailable("the store does not answer");
  }
  Status check_lease_locked(Lease lease) const {
    return lease == 0 || state_.leases.contains(lease) ? Status()
                                                       : not_found("the lease has ended");
  }

  MemoryKeys::State& state_;
  bool cancelled_ = false;  // Guarded by the state's mutex.
};

}  // namespace

MemoryKeys::MemoryKeys() : state_(std::make_unique<State>()) {}
MemoryKeys::~MemoryKeys() = default;

std::unique_ptr<KeyStore> MemoryKeys::open() { return std::make_unique<MemoryStore>(*state_); }

void MemoryKeys::set_answers(bool answers) {
  const std::lock_guard lock(state_->mutex);
  state_->answers = answers;
  state_->changed.notify_all();
}

void MemoryKeys::advance(Millis time) {
  const std::lock_guard lock(state_->mutex);
  state_->now += time;
  std::vector<KeyStore::Lease> over;
  for (const auto& [lease, granted] : state_->leases)
    if (granted.until <= state_->now) over.push_back(lease);
  for (const KeyStore::Lease lease : over) state_->end_lease(lease);
}

}  // namespace tutti
