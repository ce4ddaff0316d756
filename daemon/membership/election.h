// The rules by which the agents of a mesh elect its coordinator through a store of keys, and by
// which the coordinator saves its states there. A pure state machine: the time and the store's
// answers go in; the next request, and what has come about, go out. No IO, threads or clock.
//
// Keys, behind PREFIX/: agents/HOST is the address of each agent. The agent that makes
// `coordinator`, with its address and host, is the coordinator until its lease ends. jobs/NAME are
// states of jobs. They are written only while `coordinator` is the key that their writer made, so a
// coordinator that was deposed and does not know it yet can save none, and starts no epoch; and
// only while nothing was written since its last write, which `writes` counts, so a write that was
// given up cannot happen after a newer one.
//
// A coordinator whose lease may have ended, by its own clock from when it sent the last sign of
// life, stops coordinating. It starts again, with a new key, when the store answers again, if
// nobody else was elected.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "daemon/base/loop.h"
#include "daemon/base/status.h"
#include "proto/mesh.pb.h"

namespace tutti {

// The values that a store of keys knows: etcd's, as far as they are needed.
struct Keys {
  using Lease = int64_t;  // Never 0.

  struct Entry {
    std::string key;
    std::string value;
    int64_t created = 0;   // The revision of the store at which the key came into being.
    int64_t modified = 0;  // The revision at which it got this value.
    Lease lease = 0;       // The key goes when the lease does; 0: it stays.
  };
  struct Write {
    std::string key;
    std::optional<std::string> value;  // None: the key is removed.
    Lease lease = 0;
  };
  // That a key exists, and is the same as ever since revision `created`; or, with `modified`, that
  // it has had its value since that revision, or with 0, that it does not exist.
  struct Fence {
    std::string key;
    int64_t created = 0;
    std::optional<int64_t> modified = {};
  };

  // Requests.
  struct Grant {};  // A lease.
  struct KeepAlive {
    Lease lease;
  };
  struct Create {  // Where there is no such key. The answer is what is there then.
    std::string key;
    std::string value;
    Lease lease;
  };
  struct Transaction {  // All or nothing. ABORTED: a fence does not hold.
    std::vector<Fence> fences;
    std::vector<Write> writes;
  };
  struct List {
    std::string prefix;
  };
  using Request = std::variant<Grant, KeepAlive, Create, Transaction, List>;
  // UNAVAILABLE, DEADLINE_EXCEEDED, CANCELLED: what was asked for may have happened, or may happen
  // later.
  struct Answer {
    Status status;
    Lease lease = 0;             // Of Grant.
    std::vector<Entry> entries;  // Of List, and of Create one.
    int64_t revision = 0;        // Of Transaction.
  };
};

class Election {
 public:
  // ---- What comes about ----

  // This agent coordinates from now on, and begins with these states.
  struct Lead {
    int64_t term;  // For save().
    std::vector<v1::JobState> states;
  };
  // Another agent does.
  struct Follow {
    std::string address;
  };
  // This agent does not any more (`deposed`), or not yet; also again and again while it lasts.
  struct StandBy {
    std::string why;  // Empty: what prevents the store from answering.
    bool deposed = false;
  };
  struct Saved {
    v1::JobState state;
  };
  // Another agent has this agent's host for its own, or an earlier process of this one had it.
  struct HostTaken {
    std::string address;
  };
  using Event = std::variant<Lead, Follow, StandBy, Saved, HostTaken>;

  struct Step {
    std::vector<Event> events;             // In their order.
    std::optional<Keys::Request> request;  // Its answer is due at answered().
    // With a request: an answer after it is of no use. Otherwise begin() is due then.
    TimePoint at = TimePoint::max();
    Status done = {};  // Without a request: how the round ended.
  };

  struct Options {
    std::string prefix;   // "/tutti"
    std::string host;     // Of this agent.
    std::string address;  // Of its control plane.
    Millis ttl{};         // Of the lease.
  };
  // `store`: its name, for messages.
  Election(Options options, std::string store)
      : options_(std::move(options)), store_(std::move(store)) {}

  // A round: keeps the lease, looks who coordinates, and saves what is there to be saved. Also
  // earlier than it is due.
  Step begin(TimePoint now);
  Step answered(const Keys::Answer& answer, TimePoint now);
  // Saves the states, in order, while this agent coordinates in that term.
  void save(int64_t term, const std::vector<v1::JobState>& states);
  bool leads() const { return key_created_ != 0; }
  Keys::Lease lease() const { return lease_; }  // 0: none.

 private:
  // What the request in progress is for.
  enum class Phase {
    idle,
    renewing,    // The lease.
    granting,    // A new one.
    announcing,  // This agent's address, under it.
    replacing,   // Another one's address.
    looking,     // Who coordinates.
    removing,    // The key of an earlier term of this agent.
    standing,    // For election: making the key.
    counting,    // Writes, and
    reading,     // states, of earlier coordinators.
    saving,
    recounting,  // Writes, where one was lost.
  };

  Step ask(Phase phase, Keys::Request request);
  Step end(const Status& done, TimePoint now);
  Step keep_lease(TimePoint now);
  Step on_renewed(const Status& kept, TimePoint now);
  Step on_announced(const Keys::Entry& there);
  Step use_lease();
  Step look();
  Step on_seen(const Keys::Entry& coordinator, TimePoint now);
  Step stand();
  Step follow_or_lead(const Keys::Entry& coordinator, TimePoint now);
  Step lead(const std::vector<Keys::Entry>& jobs, TimePoint now);
  Step on_coordinator_known(TimePoint now);
  Step save_next(TimePoint now);
  Step on_saved(const Keys::Answer& answer, TimePoint now);
  void stand_down(const std::string& why);
  std::string own_value() const { return options_.address + " " + options_.host; }
  std::string key(const std::string& name) const { return options_.prefix + "/" + name; }

  // States that are written at once.
  struct Batch {
    std::vector<v1::JobState> states;
    std::vector<Keys::Write> writes;
  };
  Batch next_batch() const;

  Options options_;
  std::string store_;
  Phase phase_ = Phase::idle;
  std::vector<Event> events_;
  TimePoint sent_{};  // The sign of life of this round.
  Keys::Lease granted_ = 0;
  Keys::Lease lease_ = 0;
  TimePoint lease_until_{};
  TimePoint renew_at_{};
  int64_t key_created_ = 0;  // Of `coordinator`; 0: this agent does not coordinate.
  int64_t own_created_ = 0;  // The same, of a term that is about to begin.
  int64_t last_write_ = 0;   // What `writes` was modified by; 0: nobody has written yet.
  std::string followed_;
  std::deque<v1::JobState> unsaved_;
  Batch batch_;              // Being saved.
  bool lost_write_ = false;  // Another was elected, or an earlier write of this agent has happened.
};

}  // namespace tutti
