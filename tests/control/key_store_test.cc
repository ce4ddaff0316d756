// The contract of a KeyStore: transactions, leases, watches and fences. In memory always; in a real
// etcd where there is one.
#include "daemon/control/key_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <optional>

#include "daemon/base/text.h"
#include "daemon/control/etcd_store.h"
#include "tests/control/memory_store.h"
#include "tests/control/net.h"
#include "tests/support/await.h"
#include "tests/support/etcd_cluster.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_ca.h"

namespace tutti {
namespace {

using ::testing::ElementsAre;

struct MeshKeyStore : ::testing::TestWithParam<std::string> {
  void SetUp() override {
    if (GetParam() == "memory") {
      memory.emplace();
    } else if (!testing::EtcdCluster::is_there()) {
      GTEST_SKIP() << "needs etcd: tests/tools/get etcd-server etcd-client";
    } else if (GetParam() == "etcd_tls_user") {
      guard();
    } else {
      cluster.emplace(1);
    }
    store = open();
  }
  // With certificates on both sides, and a user.
  void guard() {
    options.tls_dir = home / "tls";
    options.user = "tutti";
    options.password_file = home / "password";
    const TestCa ca("etcd");
    mount_secret(options.tls_dir, ca.issue({.common_name = "", .names = "IP:127.0.0.1"}),
                 ca.certificate());
    std::ofstream(options.password_file) << "two words\n";
    std::filesystem::permissions(options.password_file, std::filesystem::perms(0600));
    cluster.emplace(1, options.tls_dir);
    cluster->ask_for_user("tutti", "two words", {"/t/", "/u/"});
  }
  std::unique_ptr<KeyStore> open() {
    if (memory) return memory->open();
    options.endpoints = split(cluster->endpoints(), ',');
    options.call_timeout = Millis(5'000);
    auto opened = open_etcd(options);
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    return *std::move(opened);
  }
  // Until the leases that nobody keeps alive have ended.
  void outlive_leases() {
    if (memory) memory->advance(kTtl);
  }
  std::vector<std::string> keys(const std::string& prefix) {
    std::vector<std::string> names;
    const auto entries = store->list(prefix);
    for (const KeyStore::Entry& entry : *entries) names.push_back(entry.key);
    return names;
  }

  const TemporaryDirectory home;
  EtcdOptions options;
  std::optional<MemoryKeys> memory;
  std::optional<testing::EtcdCluster> cluster;
  std::unique_ptr<KeyStore> store;
};

TEST_P(MeshKeyStore, WhoComesFirstMakesTheKey) {
  const auto first = store->create("/t/owner", "a", *store->grant(kTtl));
  ASSERT_TRUE(first.ok()) << first.status().message();
  const auto second = open()->create("/t/owner", "b", *store->grant(kTtl));
  ASSERT_TRUE(second.ok()) << second.status().message();
  EXPECT_EQ((*second).value, "a");
  EXPECT_EQ((*second).created, (*first).created);
  EXPECT_EQ((*second).lease, (*first).lease);
  EXPECT_NE((*first).created, 0);
}

TEST_P(MeshKeyStore, KeysAreListedByPrefixInOrder) {
  ASSERT_TRUE(store->write({}, {{"/t/b", "2"}, {"/t/a", "1"}, {"/u/c", "3"}}).ok());
  EXPECT_THAT(keys("/t/"), ElementsAre("/t/a", "/t/b"));
  ASSERT_TRUE(store->write({}, {{"/t/a", {}}}).ok());
  EXPECT_THAT(keys("/t/"), ElementsAre("/t/b"));
  EXPECT_EQ((*store->list("/u/")).at(0).value, "3");
}

TEST_P(MeshKeyStore, AFenceThatDoesNotHoldWritesNothing) {
  const auto owner = store->create("/t/owner", "a", 0);
  ASSERT_TRUE(owner.ok());
  const KeyStore::Fence fence{"/t/owner", (*owner).created};
  ASSERT_TRUE(store->write({fence}, {{"/t/x", "1"}}).ok());
  ASSERT_TRUE(store->write({}, {{"/t/owner", "changed"}}).ok());
  EXPECT_TRUE(store->write({fence}, {{"/t/x", "2"}}).ok()) << "it is the same key";
  ASSERT_TRUE(store->write({}, {{"/t/owner", {}}}).ok());
  EXPECT_EQ(store->write({fence}, {{"/t/x", "3"}, {"/t/y", "3"}}).status().code(), Code::aborted);
  ASSERT_TRUE(store->create("/t/owner", "b", 0).ok());
  EXPECT_EQ(store->write({fence}, {{"/t/x", "4"}}).status().code(), Code::aborted);
  EXPECT_EQ((*store->list("/t/x")).at(0).value, "2");
  EXPECT_THAT(keys("/t/y"), ElementsAre());
}

// Whatever the contract is tried with, etcd takes nobody without.
TEST_P(MeshKeyStore, StrangersAreRefusedWhereEtcdIsGuarded) {
  if (options.user.empty()) return;
  EtcdOptions stranger = options;
  stranger.user.clear();
  EXPECT_FALSE((*open_etcd(stranger))->list("/t/").ok()) << "without a user";
  std::ofstream(options.password_file) << "wrong\n";
  EXPECT_THAT((*open_etcd(options))->list("/t/").status().message(),
              ::testing::HasSubstr("does not take the user tutti"));
  stranger.tls_dir.clear();
  EXPECT_FALSE((*open_etcd(stranger))->list("/t/").ok()) << "without TLS";
  EXPECT_EQ(store->list("/other/").status().code(), Code::permission_denied);
}

TEST_P(MeshKeyStore, AFenceOfTheValueHoldsUntilTheNextWrite) {
  const KeyStore::Fence absent{.key = "/t/count", .modified = 0};
  const auto first = store->write({absent}, {{"/t/count", "1"}});
  ASSERT_TRUE(first.ok()) << first.status().message();
  EXPECT_EQ(store->write({absent}, {{"/t/count", "2"}}).status().code(), Code::aborted);
  const KeyStore::Fence unchanged{.key = "/t/count", .modified = *first};
  ASSERT_TRUE(store->write({unchanged}, {{"/t/other", "1"}}).ok());
  const auto second = store->write({unchanged}, {{"/t/count", "1"}});
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(store->write({unchanged}, {{"/t/other", "2"}}).status().code(), Code::aborted);
  EXPECT_EQ((*store->list("/t/count")).at(0).modified, *second);
  EXPECT_EQ((*store->list("/t/other")).at(0).value, "1");
}

TEST_P(MeshKeyStore, CallsEndByTheDeadline) {
  store->set_deadline(Clock::now() - Millis(1));
  if (cluster) {
    EXPECT_EQ(store->list("/t/").status().code(), Code::deadline_exceeded);
  }
  store->set_deadline(TimePoint::max());
  EXPECT_TRUE(store->list("/t/").ok());
}

TEST_P(MeshKeyStore, KeysGoWithTheirLease) {
  const auto lease = store->grant(kTtl);
  ASSERT_TRUE(lease.ok());
  ASSERT_TRUE(store->create("/t/mine", "a", *lease).ok());
  ASSERT_TRUE(store->keep_alive(*lease).ok());
  EXPECT_THAT(keys("/t/mine"), ElementsAre("/t/mine"));
  outlive_leases();
  EXPECT_TRUE(await([&] { return keys("/t/mine").empty(); }));
  EXPECT_EQ(store->keep_alive(*lease).code(), Code::not_found);
  EXPECT_EQ(store->revoke(*lease).code(), Code::not_found);
}

TEST_P(MeshKeyStore, RevokingALeaseTakesItsKeys) {
  const auto lease = store->grant(kTtl);
  ASSERT_TRUE(store->create("/t/mine", "a", *lease).ok());
  EXPECT_TRUE(store->revoke(*lease).ok());
  EXPECT_THAT(keys("/t/mine"), ElementsAre());
}

TEST_P(MeshKeyStore, AWatchTellsChangesInOrderUntilItIsCancelled) {
  const auto watching = open();
  std::promise<void> opened;
  std::promise<std::vector<std::string>> told;
  std::vector<std::string> changes;
  auto ended = std::async(std::launch::async, [&] {
    return watching->watch("/t/", {.on_open = [&] { opened.set_value(); },
                                   .on_change =
                                       [&](const std::string& key, const auto& value) {
                                         changes.push_back(key + "=" + value.value_or("gone"));
                                         if (key == "/t/last") told.set_value(changes);
                                       }});
  });
  opened.get_future().wait();
  const auto lease = store->grant(kTtl);
  ASSERT_TRUE(store->create("/t/a", "1", *lease).ok());
  ASSERT_TRUE(store->write({}, {{"/u/b", "2"}}).ok());
  ASSERT_TRUE(store->write({}, {{"/t/c", "3"}}).ok());
  ASSERT_TRUE(store->revoke(*lease).ok());
  ASSERT_TRUE(store->write({}, {{"/t/last", "4"}}).ok());
  auto future = told.get_future();
  ASSERT_EQ(future.wait_for(kPatience), std::future_status::ready);
  EXPECT_THAT(future.get(), ElementsAre("/t/a=1", "/t/c=3", "/t/a=gone", "/t/last=4"));
  watching->cancel();
  EXPECT_EQ(ended.get().code(), Code::cancelled);
  EXPECT_EQ(watching->list("/t/").status().code(), Code::cancelled);
}

TEST_P(MeshKeyStore, AStoreThatDoesNotAnswerIsUnavailable) {
  if (memory)
    memory->set_answers(false);
  else
    cluster->stop(0);
  EXPECT_EQ(store->list("/t/").status().code(), Code::unavailable);
  EXPECT_EQ(store->grant(kTtl).status().code(), Code::unavailable);
}

INSTANTIATE_TEST_SUITE_P(All, MeshKeyStore, ::testing::Values("memory", "etcd", "etcd_tls_user"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tutti
