// Takes part in the election of the coordinator of a mesh: asks a KeyStore what Election says, on a
// thread of its own, and saves the states of the jobs there. Each agent of a mesh with etcd has
// one.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/control/key_store.h"
#include "daemon/control/reachability.h"
#include "daemon/membership/election.h"
#include "daemon/membership/state_store.h"
#include "proto/mesh.pb.h"

namespace tutti {

class Elector final : public StateStore {
 public:
  // Called on the elector's thread.
  struct Events {
    std::function<void()> on_lead;  // This agent coordinates from now on; load() follows.
    // Another agent does, at this address.
    std::function<void(const std::string& address)> on_follow;
    // This agent does not any more, or not yet; also again and again while it lasts.
    std::function<void(const std::string& why)> on_stand_by;
    std::function<void(const v1::JobState& state)> on_saved;
  };

  Elector(std::unique_ptr<KeyStore> store, const Election::Options& options, Events events);
  ~Elector() override;  // Gives up the lease, so that another agent is elected at once.

  // Once for each on_lead(), in their order: what this agent was elected with. What save() is given
  // until the next load() is of that term, and is dropped once the term is over.
  std::vector<v1::JobState> load() override;
  bool save(const std::vector<v1::JobState>& states) override;
  // "etcd at ... has not answered for 12 s (why); joins wait until it does"; empty: it answers.
  std::string obstacle() const override;
  const Reachability& reachability() const { return reachability_; }

 private:
  void run();
  void watch();
  void wake();
  // Does all that is due, and returns when it is due again.
  TimePoint round();
  Keys::Answer ask(const Keys::Request& request, TimePoint deadline);
  void take_unsaved();
  void on_event(const Election::Event& event);
  void on_lead(const Election::Lead& lead);
  void on_stand_by(const Election::StandBy& stand_by);

  const std::unique_ptr<KeyStore> store_;
  const Election::Options options_;
  const Events events_;
  Reachability reachability_;
  Election election_;  // Of the elector's thread alone.
  std::mutex mutex_;   // Guards what follows.
  std::condition_variable woken_;
  std::deque<Election::Lead> leads_;  // Elections of this agent that load() has yet to return.
  int64_t term_ = 0;                  // That of the last load().
  std::vector<std::pair<int64_t, std::vector<v1::JobState>>> unsaved_;  // By term.
  bool wake_ = false;
  bool stopping_ = false;
  bool stopped_ = false;
  std::thread watch_thread_;
  std::thread thread_;
};

}  // namespace tutti
