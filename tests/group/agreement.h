// A fixture of two hosts' Ranks and a Leader whose messages arrive at once; the test plays the
// engines.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/group/follower.h"
#include "daemon/group/leader.h"

namespace tutti::testing {

inline Roster roster_of(int ranks) {
  Roster roster;
  roster.job = "demo";
  roster.epoch = 1;
  for (int rank = 0; rank < ranks; ++rank)
    roster.ranks.push_back({static_cast<uint32_t>(4700 + rank), rank < 2 ? "a" : "b", ""});
  return roster;
}

inline Signature all_reduce_of(uint64_t count, Dtype dtype = Dtype::f32, Op op = Op::sum) {
  return {Collective::all_reduce, dtype, op, count, 0, {}};
}

// Ranks 0 and 1 on host a, which leads, 2 and 3 on host b.
class AgreementTest : public ::testing::Test {
 protected:
  AgreementTest() {
    FollowerRules rules;
    rules.automatic = [](Collective, uint64_t, const Communicator&) {
      return Strategy{StrategyKind::ring, 0};
    };
    rules.blocker = [](const EpochOp&) { return std::pair(std::string("data"), 2); };
    for (int host = 0; host < 2; ++host)
      followers_.push_back(std::make_unique<Follower>(roster_, hosts_, host, rules));
  }

  // A rank of the whole job makes its next call.
  void call(int rank, const Signature& signature, int timeout_ms = 1000, Status invalid = {}) {
    const auto ms = static_cast<uint32_t>(timeout_ms);
    follower_of(rank).on_call(0, rank,
                              {signature, std::move(invalid), now_ + Millis(timeout_ms), ms}, now_);
    run();
  }
  void call_all(const Signature& signature) {
    for (int rank = 0; rank < 4; ++rank) call(rank, signature);
  }
  Follower& follower_of(int rank) { return *followers_[rank < 2 ? 0 : 1]; }

  // The engines of both hosts end the operation, OK.
  void complete(uint64_t number) {
    for (const auto& follower : followers_) follower->on_finished({0, number}, {});
    run();
  }
  // The engine of host b meets a frame of host a.
  void meet(uint64_t number) {
    if (starts_[0].at(number) != starts_[1].at(number)) followers_[1]->on_mismatch({0, number}, 0);
    run();
  }
  void pass(int ms) {
    now_ += Millis(ms);
    for (const auto& follower : followers_) follower->on_time(now_);
    leader_.on_time(now_);
    run();
  }
  void leave(int rank, const Status& cause) {
    follower_of(rank).leave(rank, cause, now_);
    run();
  }
  // The status of the operation, which must be the same on both hosts.
  Status told(uint64_t number) {
    EXPECT_EQ(answers_[0].at(number).to_string(), answers_[1].at(number).to_string());
    return answers_[0].at(number);
  }
  bool started(uint64_t number) {
    return starts_[0].contains(number) && starts_[1].contains(number);
  }

  void run() {
    for (bool more = true; more;) {
      more = false;
      for (int host = 0; host < 2; ++host)
        for (const Action& action : followers_[static_cast<size_t>(host)]->take_actions()) {
          more = true;
          perform(host, action);
        }
      for (const Send& send : leader_.take_sends()) {
        more = true;
        if (send.host == silent_) continue;
        const Status taken =
            followers_[static_cast<size_t>(send.host)]->on_message(send.message, now_);
        EXPECT_TRUE(taken.ok()) << taken.to_string();
      }
    }
  }
  void perform(int host, const Action& action) {
    const auto at = static_cast<size_t>(host);
    if (const Send* send = std::get_if<Send>(&action); send != nullptr && host != silent_) {
      const Status taken = leader_.on_message(host, send->message, now_);
      EXPECT_TRUE(taken.ok()) << taken.to_string();
    }
    if (const Start* start = std::get_if<Start>(&action)) {
      starts_[at][start->op.number] = start->agreement;
      strategies_[at][start->op.number] = start->strategies;
    }
    if (const Cancel* cancel = std::get_if<Cancel>(&action))
      if (starts_[at].contains(cancel->op.number))
        followers_[at]->on_finished(cancel->op, cancel->cause);
    if (const EndEpoch* end = std::get_if<EndEpoch>(&action))
      for (const auto& [number, agreement] : starts_[at])
        if (!answers_[at].contains(number)) followers_[at]->on_finished({0, number}, end->cause);
    if (const Complete* complete = std::get_if<Complete>(&action))
      answers_[at][complete->op.number] = complete->status;
  }

  const Roster roster_ = roster_of(4);
  const std::vector<Host> hosts_ = hosts_of(roster_);
  std::vector<std::unique_ptr<Follower>> followers_;
  Leader leader_{roster_, hosts_, {}};
  TimePoint now_{};
  int silent_ = -1;                         // A host that neither sends nor receives.
  std::map<uint64_t, uint64_t> starts_[2];  // By host: number, agreement.
  std::map<uint64_t, Strategies> strategies_[2];
  std::map<uint64_t, Status> answers_[2];
};

}  // namespace tutti::testing
