// Who coordinates, and what is saved, over a store in memory that loses answers, or does late what
// it was asked for.
#include "daemon/control/elector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <memory>
#include <set>

#include "tests/control/memory_store.h"
#include "tests/control/net.h"
#include "tests/support/await.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// What may go wrong with one agent's writes of states.
struct Faults {
  std::atomic<bool> hold_writes{false};  // They fail, and happen when they are let go.
  std::atomic<bool> hang{false};         // Calls wait for cancel().
  std::mutex mutex;
  std::vector<std::function<Status()>> held;

  std::vector<Status> let_go() {
    hold_writes = false;
    const std::lock_guard lock(mutex);
    std::vector<Status> done;
    for (const auto& write : std::exchange(held, {})) done.push_back(write());
    return done;
  }
  size_t count() {
    const std::lock_guard lock(mutex);
    return held.size();
  }
};

class FaultyStore final : public KeyStore {
 public:
  FaultyStore(std::unique_ptr<KeyStore> store, Faults& faults)
      : store_(std::move(store)), faults_(faults) {}

  Result<Lease> grant(Millis ttl) override { return store_->grant(ttl); }
  Status keep_alive(Lease lease) override { return store_->keep_alive(lease); }
  Status revoke(Lease lease) override {
    if (Status hung = maybe_hang(); !hung.ok()) return hung;
    return store_->revoke(lease);
  }
  Result<Entry> create(const std::string& key, const std::string& value, Lease lease) override {
    return store_->create(key, value, lease);
  }
  Result<int64_t> write(const std::vector<Fence>& fences,
                        const std::vector<Write>& writes) override {
    if (!faults_.hold_writes || fences.size() < 2) return store_->write(fences, writes);
    const std::lock_guard lock(faults_.mutex);
    faults_.held.push_back([=, this] { return store_->write(fences, writes).status(); });
    return unavailable("the answer was lost");
  }
  Result<std::vector<Entry>> list(const std::string& prefix) override {
    if (Status hung = maybe_hang(); !hung.ok()) return hung;
    return store_->list(prefix);
  }
  Status watch(const std::string& prefix, const Watcher& watcher) override {
    return store_->watch(prefix, watcher);
  }
  void set_deadline(TimePoint deadline) override { store_->set_deadline(deadline); }
  void cancel() override {
    cancelled_ = true;
    store_->cancel();
  }
  std::string name() const override { return store_->name(); }

 private:
  Status maybe_hang() {
    if (!faults_.hang) return {};
    await([this] { return cancelled_.load(); });
    return {Code::cancelled, "cancelled"};
  }

  const std::unique_ptr<KeyStore> store_;
  Faults& faults_;
  std::atomic<bool> cancelled_{false};
};

// An agent with its elector, and what that has said.
class Agent {
 public:
  Agent(MemoryKeys& keys, const std::string& host, const std::string& address, Millis ttl = kTtl)
      : elector_(std::make_unique<Elector>(std::make_unique<FaultyStore>(keys.open(), faults),
                                           Election::Options{"/t", host, address, ttl}, events())) {
  }

  void end() { elector_.reset(); }
  Elector& elector() { return *elector_; }
  bool leads() { return role() == "leads"; }
  bool follows(const std::string& address) { return role() == "follows " + address; }
  std::string role() { return locked(role_); }
  std::string why() { return locked(why_); }
  int terms() { return locked(terms_); }
  // What the agent was elected with last.
  const std::vector<v1::JobState>& states() {
    for (; loaded_ < terms(); ++loaded_) states_ = elector_->load();
    return states_;
  }
  bool has_saved(uint32_t epoch) { return locked(saved_) >= epoch; }
  bool ever_saved(uint32_t epoch) {
    const std::lock_guard lock(mutex_);
    return all_saved_.contains(epoch);
  }
  void save(uint32_t epoch) {
    (void)states();
    save_as_before(epoch);
  }
  // In the term of the last save.
  void save_as_before(uint32_t epoch) {
    v1::JobState state;
    state.set_job("demo");
    state.set_epoch(epoch);
    elector_->save({state});
  }

  Faults faults;

 private:
  template <class T>
  T locked(const T& value) {
    const std::lock_guard lock(mutex_);
    return value;
  }
  Elector::Events events() {
    return {.on_lead =
                [this] {
                  const std::lock_guard lock(mutex_);
                  role_ = "leads";
                  ++terms_;
                },
            .on_follow =
                [this](const std::string& address) {
                  const std::lock_guard lock(mutex_);
                  role_ = "follows " + address;
                },
            .on_stand_by =
                [this](const std::string& why) {
                  const std::lock_guard lock(mutex_);
                  role_ = "stands by";
                  why_ = why;
                },
            .on_saved =
                [this](const v1::JobState& state) {
                  const std::lock_guard lock(mutex_);
                  saved_ = state.epoch();
                  all_saved_.insert(saved_);
                }};
  }

  std::mutex mutex_;  // Guards what follows, but for the last three.
  std::string role_;
  std::string why_;
  int terms_ = 0;
  uint32_t saved_ = 0;
  std::set<uint32_t> all_saved_;
  std::unique_ptr<Elector> elector_;
  int loaded_ = 0;                      // Elections, in states(). The test's thread only.
  std::vector<v1::JobState> states_{};  // The test's thread only.
};

struct MeshElector : ::testing::Test {
  uint32_t epoch_kept() {
    const auto jobs = keys.open()->list("/t/jobs/");
    v1::JobState state;
    return jobs.ok() && jobs->size() == 1 && state.ParseFromString(jobs->at(0).value)
               ? state.epoch()
               : 0;
  }
  int64_t created() {
    const auto found = keys.open()->list("/t/coordinator");
    return found.ok() && !found->empty() ? found->at(0).created : 0;
  }

  MemoryKeys keys;
};

TEST_F(MeshElector, OneLeadsAndItsSuccessorGoesOnWithWhatItKept) {
  Agent a(keys, "a", "10.0.0.1:7601");
  ASSERT_TRUE(await([&] { return a.leads(); }));
  Agent b(keys, "b", "10.0.0.2:7601");
  ASSERT_TRUE(await([&] { return b.follows("10.0.0.1:7601"); }));
  a.save(3);
  ASSERT_TRUE(await([&] { return a.has_saved(3); }));
  a.end();
  ASSERT_TRUE(await([&] { return b.leads(); }));
  ASSERT_EQ(b.states().size(), 1u);
  EXPECT_EQ(b.states()[0].epoch(), 3u);
}

TEST_F(MeshElector, WithoutTheStoreNobodyLeadsAndThenAgainWithAnotherKey) {
  Agent a(keys, "a", "10.0.0.1:7601");
  ASSERT_TRUE(await([&] { return a.leads(); }));
  const int64_t before = created();
  keys.set_answers(false);
  ASSERT_TRUE(await([&] { return a.role() == "stands by"; }));
  EXPECT_THAT(a.elector().obstacle(), AllOf(HasSubstr("the store in memory has not answered for "),
                                            HasSubstr("(the store does not answer)")));
  keys.set_answers(true);
  ASSERT_TRUE(await([&] { return a.leads(); }));
  EXPECT_NE(created(), before);
}

TEST_F(MeshElector, WhoseLeaseEndsFollowsTheNext) {
  Agent a(keys, "a", "10.0.0.1:7601", Millis(600'000));
  ASSERT_TRUE(await([&] { return a.leads(); }));
  Agent b(keys, "b", "10.0.0.2:7601", Millis(3'600'000));
  ASSERT_TRUE(await([&] { return b.follows("10.0.0.1:7601"); }));
  keys.advance(Millis(600'000));
  // Both see that the key is gone; the first agent has no lease to make it with.
  ASSERT_TRUE(await([&] { return b.leads() && a.follows("10.0.0.2:7601"); }))
      << a.role() << ", " << b.role();
  a.save(9);
  b.save(4);
  ASSERT_TRUE(await([&] { return b.has_saved(4); }));
  EXPECT_EQ(epoch_kept(), 4u);
}

// A member of the store that was stopped does what it was asked for when it goes on.
TEST_F(MeshElector, AWriteThatWasGivenUpDoesNotHappenAfterANewerOne) {
  Agent a(keys, "a", "10.0.0.1:7601");
  ASSERT_TRUE(await([&] { return a.leads(); }));
  a.faults.hold_writes = true;
  a.save(1);
  ASSERT_TRUE(await([&] { return a.faults.count() > 0; }));
  a.faults.hold_writes = false;
  a.save(2);
  ASSERT_TRUE(await([&] { return a.has_saved(2); }));
  for (const Status& late : a.faults.let_go()) EXPECT_EQ(late.code(), Code::aborted);
  EXPECT_EQ(epoch_kept(), 2u);
}

TEST_F(MeshElector, AWriteThatHappenedThoughItsAnswerWasLostIsRepeated) {
  Agent a(keys, "a", "10.0.0.1:7601");
  ASSERT_TRUE(await([&] { return a.leads(); }));
  a.faults.hold_writes = true;
  a.save(1);
  ASSERT_TRUE(await([&] { return a.faults.count() > 0; }));
  EXPECT_TRUE(a.faults.let_go().at(0).ok());
  EXPECT_TRUE(await([&] { return a.has_saved(1); })) << a.role() << ": " << a.why();
  a.save(2);
  EXPECT_TRUE(await([&] { return a.has_saved(2); }));
}

TEST_F(MeshElector, WhatWasGivenUpInAnEarlierTermIsNotKept) {
  Agent a(keys, "a", "10.0.0.1:7601");
  ASSERT_TRUE(await([&] { return a.leads(); }));
  a.faults.hold_writes = true;
  a.save(1);
  ASSERT_TRUE(await([&] { return a.faults.count() > 0; }));
  keys.set_answers(false);
  ASSERT_TRUE(await([&] { return a.role() == "stands by"; }));
  keys.set_answers(true);
  ASSERT_TRUE(await([&] { return a.leads(); }));
  for (const Status& late : a.faults.let_go()) EXPECT_EQ(late.code(), Code::aborted);
  EXPECT_EQ(epoch_kept(), 0u);
}

TEST_F(MeshElector, AKeyThatSomebodyRemovedBeginsANewTerm) {
  Agent a(keys, "a", "10.0.0.1:7601");
  ASSERT_TRUE(await([&] { return a.leads(); }));
  ASSERT_TRUE(keys.open()->write({}, {{"/t/coordinator", {}}}).ok());
  EXPECT_TRUE(await([&] { return a.terms() == 2; }));
  EXPECT_THAT(a.why(), HasSubstr("its key was made again"));
}

// A coordinator that was deposed and elected again before it heard of the first election.
TEST_F(MeshElector, EachLoadIsOfOneElectionInTheirOrder) {
  Agent a(keys, "a", "10.0.0.1:7601");
  ASSERT_TRUE(await([&] { return a.leads(); }));
  ASSERT_TRUE(keys.open()->write({}, {{"/t/coordinator", {}}}).ok());
  ASSERT_TRUE(await([&] { return a.terms() == 2; }));
  (void)a.elector().load();
  a.save_as_before(7);
  (void)a.elector().load();
  a.save_as_before(8);
  ASSERT_TRUE(await([&] { return a.has_saved(8); }));
  EXPECT_FALSE(a.ever_saved(7));
}

// The agent's loop may hear later of the new term than a worker's stream asks for an epoch.
TEST_F(MeshElector, StatesOfATermThatIsOverAreNotKept) {
  Agent a(keys, "a", "10.0.0.1:7601");
  ASSERT_TRUE(await([&] { return a.leads(); }));
  a.save(1);
  ASSERT_TRUE(await([&] { return a.has_saved(1); }));
  ASSERT_TRUE(keys.open()->write({}, {{"/t/coordinator", {}}}).ok());
  ASSERT_TRUE(await([&] { return a.terms() == 2; }));
  a.save_as_before(2);
  a.save(3);
  ASSERT_TRUE(await([&] { return a.has_saved(3); }));
  EXPECT_FALSE(a.ever_saved(2));
}

TEST_F(MeshElector, KeysThatOnlyBeginLikeItsOwnAreAnothers) {
  ASSERT_TRUE(keys.open()->write({}, {{"/t/coordinator-b/agents/x", "10.9.9.9:7601"}}).ok());
  Agent a(keys, "a", "10.0.0.1:7601");
  EXPECT_TRUE(await([&] { return a.leads(); })) << a.role();
}

TEST_F(MeshElector, AKeyWithoutAnAddressIsNamed) {
  ASSERT_TRUE(keys.open()->write({}, {{"/t/coordinator", "\xff\xfe"}}).ok());
  Agent a(keys, "a", "10.0.0.1:7601");
  EXPECT_TRUE(await([&] {
    return a.why().find("the key /t/coordinator holds no address") != std::string::npos;
  })) << a.why();
  ASSERT_TRUE(keys.open()->write({}, {{"/t/coordinator", {}}}).ok());
  EXPECT_TRUE(await([&] { return a.leads(); }));
}

TEST_F(MeshElector, TwoAgentsOfOneAddressDoNotDeposeEachOther) {
  Agent a(keys, "a", "127.0.0.1:7601");
  ASSERT_TRUE(await([&] { return a.leads(); }));
  Agent b(keys, "b", "127.0.0.1:7601");
  ASSERT_TRUE(await([&] { return b.role() == "stands by"; }));
  EXPECT_TRUE(await([&] {
    return b.why().find("\"127.0.0.1:7601 a\" has this agent's own address") != std::string::npos;
  })) << b.why();
  EXPECT_EQ(a.terms(), 1);
}

TEST_F(MeshElector, AnEarlierProcessOfTheSameAgentIsDeposedAtOnce) {
  const auto killed = keys.open();
  const auto lease = killed->grant(Millis(3'600'000));
  ASSERT_TRUE(killed->create("/t/coordinator", "10.0.0.1:7601 a", *lease).ok());
  Agent a(keys, "a", "10.0.0.1:7601");
  EXPECT_TRUE(await([&] { return a.leads(); }));
}

TEST_F(MeshElector, EndsSoonThoughTheStoreHangs) {
  Agent a(keys, "a", "10.0.0.1:7601");
  ASSERT_TRUE(await([&] { return a.leads(); }));
  a.faults.hang = true;
  const TimePoint begin = Clock::now();
  a.end();
  EXPECT_LT(Clock::now() - begin, kPatience / 2);
}

}  // namespace
}  // namespace tutti
