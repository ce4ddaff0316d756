// Elects the coordinator of a mesh through a KeyStore, and keeps its states there. Each agent has
// one, with a thread of its own.
//
// Keys, behind PREFIX/: agents/HOST is the address of each agent. Who makes `coordinator`, with its
// address and host, is it until its lease ends. jobs/NAME are states of jobs. They are written only
// while `coordinator` is the key that their writer made, so a coordinator that was deposed and does
// not know it yet can keep none, and starts no epoch; and only while nothing was written since its
// last write, which `writes` counts, so a write that was given up cannot happen after a newer one.
//
// A coordinator whose lease may have ended, by its own clock from when it sent the last sign of
// life, stops coordinating. It begins again, with a new key, when the store answers again, if
// nobody else was elected.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "daemon/mesh/key_store.h"
#include "daemon/mesh/reachability.h"
#include "proto/mesh.pb.h"

namespace tutti {

class Elector {
 public:
  // Called on the elector's thread.
  struct Events {
    // This agent coordinates from now on, and begins with these states.
    std::function<void(std::vector<v1::JobState> states)> on_lead;
    // Another agent does, at this address.
    std::function<void(const std::string& address)> on_follow;
    // This agent does not any more, or not yet; also again and again while it lasts.
    std::function<void(const std::string& why)> on_stand_by;
    std::function<void(const v1::JobState& state)> on_saved;
  };
  struct Options {
    std::string prefix;   // "/tutti"
    std::string host;     // Of this agent.
    std::string address;  // The same, of its control plane.
    Millis ttl{};
  };

  Elector(std::unique_ptr<KeyStore> store, Options options, Events events);
  ~Elector();  // Gives up the lease, so that another agent is elected at once.

  // Keeps the states, in order, while this agent coordinates. Any thread; does not block.
  void save(std::vector<v1::JobState> states);
  const Reachability& reachability() const { return reachability_; }
  // "etcd at ... has not answered for 12 s (why); joins wait until it does"; empty: it answers.
  std::string obstacle() const;

 private:
  // States that are written at once.
  struct Batch {
    std::vector<v1::JobState> states;
    std::vector<KeyStore::Write> writes;
  };

  void run();
  void watch();
  // Does all that is due, and returns when it is due again.
  TimePoint step();
  Status act();
  Status keep_lease();
  Status publish_address();
  Result<KeyStore::Entry> find(const std::string& name);
  Status look_at_coordinator();
  Status apply(const KeyStore::Entry& coordinator);
  Status start_leading(const KeyStore::Entry& own);
  Status save_some();
  Status poll();
  Result<int64_t> write_batch(const Batch& batch);
  Batch next_batch();
  void stand_down(const std::string& why);
  std::string own_value() const { return options_.address + " " + options_.host; }
  std::string key(const std::string& name) const { return options_.prefix + "/" + name; }

  const std::unique_ptr<KeyStore> store_;
  const Options options_;
  const Events events_;
  Reachability reachability_;
  // For the elector's thread alone.
  KeyStore::Lease lease_ = 0;
  TimePoint lease_until_{};
  TimePoint renew_at_{};
  int64_t key_created_ = 0;  // Of `coordinator`; 0: this agent does not coordinate.
  int64_t last_write_ = 0;   // What `writes` was modified by; 0: nobody has written yet.
  std::string followed_;
  std::mutex mutex_;  // Guards what follows.
  std::condition_variable woken_;
  std::deque<v1::JobState> unsaved_;
  bool wake_ = false;
  bool stopping_ = false;
  bool stopped_ = false;
  std::thread watch_thread_;
  std::thread thread_;
};

}  // namespace tutti
