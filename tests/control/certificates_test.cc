// What certificates must be, what their names prove, and how a directory of them is read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "daemon/base/loop.h"
#include "daemon/control/certificate_store.h"
#include "tests/support/await.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_ca.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kBoth = CertificateUse::server_and_client;
constexpr auto kClient = CertificateUse::client;

struct MeshCertificates : ::testing::Test {
  void expect_refused(const CertificateFiles& files, CertificateUse use, const std::string& file,
                      const std::string& why) {
    const Status status = check_certificates(files, use, "/x").status();
    EXPECT_EQ(status.code(), Code::failed_precondition) << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr("/x/" + file));
    EXPECT_THAT(status.message(), HasSubstr(why));
  }
  void expect_accepted(const CertificateFiles& files, CertificateUse use) {
    EXPECT_EQ(check_certificates(files, use, "/x").status().to_string(), "OK");
  }
  CertificateFiles files_of(const CertificateRequest& request) const {
    const IssuedCertificate issued = ca.issue(request);
    return {ca.certificate(), issued.chain, issued.key};
  }

  const TestCa ca{"authority"};
};

TEST_F(MeshCertificates, NamesAreRead) {
  const auto checked = check_certificates(
      files_of({.common_name = "b", .names = "DNS:B.Example,DNS:b,IP:10.0.0.1,IP:::1"}), kBoth,
      "/x");
  ASSERT_TRUE(checked.ok()) << checked.status().to_string();
  EXPECT_THAT(checked->names.dns, ElementsAre("b.example", "b"));
  EXPECT_THAT(checked->names.addresses, ElementsAre("10.0.0.1", "::1"));
  EXPECT_EQ(checked->names.spiffe_id, "");
  EXPECT_EQ(checked->names.common_name, "b");
  EXPECT_EQ(checked->names.to_string(), "DNS b.example, DNS b, IP 10.0.0.1, IP ::1, CN b");
  const auto now = std::time(nullptr);
  EXPECT_GT(checked->expires, now + 3'000);
  EXPECT_LE(checked->expires, now + 3'600);
  EXPECT_EQ(checked->expires - checked->renewal, 720);  // Of two hours.
  EXPECT_EQ(format_time(1'700'000'000), "2023-11-14T22:13:20Z");
}

TEST_F(MeshCertificates, SpiffeIdIsTheOnlyUri) {
  const auto id_of = [&](const std::string& names) {
    return certificate_names(ca.issue({.names = names}).chain)->spiffe_id;
  };
  EXPECT_EQ(id_of("URI:spiffe://x/host/b"), "spiffe://x/host/b");
  EXPECT_EQ(id_of("URI:spiffe://x/host/b,DNS:b"), "spiffe://x/host/b");
  EXPECT_EQ(id_of("URI:https://x/host/b"), "");
  EXPECT_EQ(id_of("URI:spiffe://x/host/b,URI:spiffe://x/host/c"), "");
  EXPECT_EQ(certificate_names(ca.issue({}).chain)->to_string(), "no names");
  EXPECT_EQ(certificate_names("nonsense").status().code(), Code::invalid_argument);
}

TEST_F(MeshCertificates, KeyOfAnotherCertificateIsRefused) {
  CertificateFiles files = files_of({.common_name = "b"});
  expect_accepted(files, kBoth);
  files.key = ca.issue({.common_name = "b"}).key;
  expect_refused(files, kBoth, "tls.key", "is not the key of the certificate");
  expect_refused(files, kClient, "tls.key", "is not the key of the certificate");
}

TEST_F(MeshCertificates, TimesAreChecked) {
  expect_refused(files_of({.common_name = "b", .ends_s = -60}), kBoth, "tls.crt (CN b)",
                 "certificate has expired; renew it");
  expect_refused(files_of({.common_name = "b", .begins_s = 600}), kBoth, "tls.crt",
                 "not yet valid");
}

TEST_F(MeshCertificates, AnotherAuthorityIsRefused) {
  CertificateFiles files = files_of({.common_name = "b"});
  const TestCa another("authority");  // Of the same name.
  files.ca = another.certificate();
  expect_refused(files, kBoth, "tls.crt", "put the authority that issued it into ca.crt");
  files.ca = another.certificate() + ca.certificate();
  expect_accepted(files, kBoth);
}

TEST_F(MeshCertificates, AuthoritiesInBetweenMayBeInEitherFile) {
  const TestCa between = ca.intermediate("between");
  const IssuedCertificate issued = between.issue({.common_name = "b"});
  expect_accepted({ca.certificate(), issued.chain, issued.key}, kBoth);
  expect_accepted({between.certificate(), issued.chain, issued.key}, kBoth);
  const std::string leaf = issued.chain.substr(0, issued.chain.find("-----BEGIN", 1));
  expect_refused({ca.certificate(), leaf, issued.key}, kBoth, "tls.crt", "issuer");
  expect_accepted({between.certificate(), leaf, issued.key}, kBoth);
}

TEST_F(MeshCertificates, UsageMustBeAllowed) {
  const CertificateFiles client = files_of({.common_name = "b", .usages = "clientAuth"});
  expect_refused(client, kBoth, "tls.crt", "serverAuth and clientAuth");
  expect_accepted(client, kClient);
  const CertificateFiles server = files_of({.common_name = "b", .usages = "serverAuth"});
  expect_refused(server, kBoth, "tls.crt", "serverAuth and clientAuth");
  expect_refused(server, kClient, "tls.crt", "(extended key usage clientAuth)");
  expect_accepted(files_of({.common_name = "b", .usages = ""}), kBoth);
}

TEST_F(MeshCertificates, TextsThatAreNoPemAreRefusedByFile) {
  const CertificateFiles good = files_of({.common_name = "b"});
  for (const std::string bad : {"", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n",
                                "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"}) {
    expect_refused({bad, good.chain, good.key}, kBoth, "ca.crt", "PEM");
    expect_refused({good.ca, bad, good.key}, kBoth, "tls.crt", "PEM");
    expect_refused({good.ca, good.chain, bad}, kBoth, "tls.key", "PEM");
    if (bad.starts_with('-'))
      expect_refused({good.ca + bad, good.chain, good.key}, kBoth, "ca.crt", "PEM");
  }
}

TEST_F(MeshCertificates, ClientsNeedTheAuthorityAlone) {
  const CertificateFiles files = files_of({.common_name = "b"});
  expect_accepted({.ca = files.ca}, kClient);
  const auto keyless = check_certificates({files.ca, files.chain, ""}, kClient, "/x");
  ASSERT_TRUE(keyless.ok());
  EXPECT_EQ(keyless->names.common_name, "b");
  expect_refused({}, kClient, "ca.crt", "PEM");
  expect_refused({.ca = files.ca}, kBoth, "tls.crt", "PEM");
}

CertificateNames spiffe(const std::string& id) { return {.spiffe_id = id}; }
const CertificateNames kOwn = spiffe("spiffe://x/ns/tutti/sa/agent");

TEST(MeshCertificateNames, ServerIsKnownByWhatWasDialled) {
  const CertificateNames b{
      .dns = {"b", "b.x"}, .addresses = {"10.0.0.1", "fe80::1"}, .common_name = "c"};
  for (const char* host : {"b", "B", "b.X", "10.0.0.1", "fe80::1", "FE80:0::1"})
    EXPECT_TRUE(names_server(b, host, {})) << host;
  for (const char* host : {"", "c", "b.", "x", "10.0.0.2", "*"})
    EXPECT_FALSE(names_server(b, host, {})) << host;
  EXPECT_FALSE(names_server({.dns = {""}}, "", {.dns = {""}}));
  EXPECT_FALSE(names_server({.dns = {"*.x"}}, "b.x", {}));
}

TEST(MeshCertificateNames, ServerMayBeASibling) {
  for (const char* id : {"spiffe://x/ns/tutti/sa/agent", "spiffe://x/ns/tutti/sa/other"})
    EXPECT_TRUE(names_server(spiffe(id), "10.0.0.1", kOwn)) << id;
  for (const char* id : {"spiffe://y/ns/tutti/sa/agent", "spiffe://x/ns/evil/sa/agent",
                         "spiffe://x/ns/tutti/sa/agent/2", "spiffe://x/ns/tutti/sa/",
                         "spiffe://x/ns/tutti/sa", "spiffe://x/agent", ""}) {
    EXPECT_FALSE(names_server(spiffe(id), "10.0.0.1", kOwn)) << id;
    EXPECT_FALSE(names_server(spiffe(id), "10.0.0.1", {})) << id;
  }
  // Without a path there are no siblings: every trust domain would be one.
  EXPECT_FALSE(names_server(spiffe("spiffe://y"), "10.0.0.1", spiffe("spiffe://x")));
}

TEST(MeshCertificateNames, ServerMayBeThisHost) {
  const CertificateNames b{.dns = {"b"}, .addresses = {"10.0.0.1"}};
  EXPECT_TRUE(names_server(b, "127.0.0.1", {.dns = {"c", "b"}}));
  EXPECT_TRUE(names_server(b, "127.0.0.1", {.addresses = {"10.0.0.1"}}));
  EXPECT_FALSE(names_server(b, "127.0.0.1", {.dns = {"c"}, .common_name = "b"}));
}

TEST(MeshCertificateNames, HostIsBoundToItsName) {
  EXPECT_TRUE(names_host({.dns = {"b"}}, "b", {}));
  EXPECT_FALSE(names_host({.dns = {"b"}, .common_name = "a"}, "a", {}));
  EXPECT_TRUE(names_host(spiffe("spiffe://x/tutti/b"), "b", spiffe("spiffe://x/tutti/a")));
  EXPECT_FALSE(names_host(spiffe("spiffe://x/tutti/b"), "c", spiffe("spiffe://x/tutti/a")));
  EXPECT_FALSE(names_host(spiffe("spiffe://x/else/b"), "b", spiffe("spiffe://x/tutti/a")));
  EXPECT_FALSE(names_host(spiffe("spiffe://x/tutti/b"), "b", {}));
  EXPECT_TRUE(names_host(kOwn, "any", kOwn));
}

TEST(MeshCertificateNames, AdministratorIsNamed) {
  EXPECT_TRUE(names_admin({.common_name = "tutti-admin"}, "tutti-admin", {}));
  EXPECT_TRUE(names_admin({.dns = {"tutti-admin"}}, "tutti-admin", {}));
  EXPECT_TRUE(names_admin(spiffe("spiffe://x/ops/ann"), "spiffe://x/ops/ann", {}));
  EXPECT_TRUE(names_admin(spiffe("spiffe://x/ns/tutti/sa/tutti-admin"), "tutti-admin", kOwn));
  EXPECT_FALSE(names_admin(spiffe("spiffe://x/ns/evil/sa/tutti-admin"), "tutti-admin", kOwn));
  EXPECT_FALSE(names_admin({.common_name = "tutti-admin2"}, "tutti-admin", {}));
  EXPECT_FALSE(names_admin({}, "", {}));
}

// The block of the page that begins with "```sh TLS files".
std::string commands_of(const std::string& page) {
  const std::string text = text_of(page);
  const std::string fence = "```sh TLS files\n";
  const size_t begin = text.find(fence) + fence.size();
  return text.substr(begin, text.find("```", begin) - begin);
}

struct MeshCertificateStore : ::testing::Test {
  void mount(const std::string& name) {
    mount_secret(directory, ca.issue({.common_name = name}), ca.certificate());
  }
  std::shared_ptr<CertificateStore> open(CertificateUse use = kBoth) {
    auto opened = CertificateStore::open(directory, use,
                                         [this](const auto& text) { warnings.push_back(text); });
    EXPECT_TRUE(opened.ok()) << opened.status().to_string();
    return opened.ok() ? *opened : nullptr;
  }
  void expect_refused(Code code, const std::string& part, CertificateUse use = kBoth) {
    const Status status = CertificateStore::open(directory, use, {}).status();
    EXPECT_EQ(status.code(), code) << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr(directory + "/"));
    EXPECT_THAT(status.message(), HasSubstr(part));
  }
  static std::string name_of(CertificateStore& store) { return store.current()->names.common_name; }

  const TestCa ca{"authority"};
  const TemporaryDirectory home;
  std::string directory = home;
  std::vector<std::string> warnings;
};

TEST_F(MeshCertificateStore, MissingFilesAreNamed) {
  for (const char* name : {"ca.crt", "tls.crt", "tls.key"}) {
    mount("b");
    fs::remove(fs::path(directory) / "..data" / name);
    expect_refused(Code::not_found, name);
    expect_refused(Code::not_found, "set tls = off");
  }
  fs::remove_all(directory);
  expect_refused(Code::not_found, "ca.crt cannot be read: ");
}

TEST_F(MeshCertificateStore, KeyThatOthersCanReadIsRefused) {
  mount("b");
  const std::string key = directory + "/tls.key";
  for (const mode_t mode : {0604, 0602, 0601, 0620, 0666}) {
    ASSERT_EQ(chmod(key.c_str(), mode), 0);
    expect_refused(Code::failed_precondition, "run: chmod 600 " + key);
  }
  for (const mode_t mode : {0600, 0400, 0440, 0640}) {
    ASSERT_EQ(chmod(key.c_str(), mode), 0);
    EXPECT_NE(open(), nullptr);
  }
}

TEST_F(MeshCertificateStore, FilesThatAreTooLargeAreRefused) {
  mount("b");
  std::ofstream(directory + "/ca.crt") << std::string(2 << 20, 'x');
  expect_refused(Code::failed_precondition, "larger than");
}

TEST_F(MeshCertificateStore, PlainFilesDo) {
  const IssuedCertificate issued = ca.issue({.common_name = "b"});
  std::ofstream(directory + "/ca.crt") << ca.certificate();
  std::ofstream(directory + "/tls.crt") << issued.chain;
  std::ofstream(directory + "/tls.key") << issued.key;
  ASSERT_EQ(chmod((directory + "/tls.key").c_str(), 0600), 0);
  EXPECT_EQ(name_of(*open()), "b");
}

TEST_F(MeshCertificateStore, CommandsOfThePageMakeFilesThatDo) {
  if (std::system("openssl version > /dev/null 2>&1") != 0) GTEST_SKIP() << "there is no openssl";
  std::ofstream(directory + "/commands") << commands_of(TUTTI_SOURCE_DIR "/docs/install.md");
  const std::string run = "cd " + directory + " && sh -e commands > log 2>&1";
  ASSERT_EQ(std::system(run.c_str()), 0);
  directory += "/a";
  EXPECT_EQ(open()->current()->names.to_string(), "DNS a, IP 10.0.0.1, CN a");
  directory.resize(directory.size() - 2);
}

TEST_F(MeshCertificateStore, ChangedFilesAreTaken) {
  mount("first");
  const auto store = open();
  const auto first = store->current();
  EXPECT_EQ(first->names.common_name, "first");
  EXPECT_EQ(store->current(), first);
  mount("second");
  EXPECT_EQ(name_of(*store), "second");
  EXPECT_THAT(warnings, IsEmpty());
}

TEST_F(MeshCertificateStore, FilesThatDoNotFitAreLeftAndWarnedOfOnce) {
  mount("first");
  const auto store = open();
  const std::string key = directory + "/tls.key";
  std::ofstream(key) << ca.issue({}).key;
  for (int times = 0; times < 3; ++times) EXPECT_EQ(name_of(*store), "first");
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr(key + " is not the key"));
  EXPECT_THAT(warnings[0], HasSubstr("the certificates read before stay in use"));
  std::ofstream(directory + "/tls.crt") << "half";
  EXPECT_EQ(name_of(*store), "first");
  EXPECT_EQ(warnings.size(), 2u);
  mount("second");
  EXPECT_EQ(name_of(*store), "second");
  std::ofstream(directory + "/tls.crt") << "half";
  EXPECT_EQ(name_of(*store), "second");
  EXPECT_EQ(warnings.size(), 3u);
  fs::remove_all(directory);
  EXPECT_EQ(name_of(*store), "second");
  EXPECT_EQ(warnings.size(), 4u);
}

TEST_F(MeshCertificateStore, ExpiryIsWarnedOfBeforeAndAfterItOnce) {
  mount_secret(directory, ca.issue({.common_name = "b", .ends_s = 3}), ca.certificate());
  const auto store = open();
  tutti::await([&] { return store->current() && warnings.size() >= 2; });
  ASSERT_EQ(warnings.size(), 2u);
  EXPECT_THAT(warnings[0],
              HasSubstr("/tls.crt expires at " + format_time(store->current()->expires) +
                        " and is not renewed yet"));
  EXPECT_THAT(warnings[1], HasSubstr("/tls.crt has expired"));
  (void)store->current();
  EXPECT_EQ(warnings.size(), 2u);
  mount("c");
  EXPECT_EQ(name_of(*store), "c");
}

TEST_F(MeshCertificateStore, WhatIsPublicIsEnoughForAClient) {
  mount("b");
  const auto store = open();
  const std::string published = directory + "/public";
  const mode_t mask = umask(0077);
  ASSERT_TRUE(publish_certificates(store->current()->files, published).ok());
  umask(mask);
  EXPECT_FALSE(fs::exists(published + "/tls.key"));
  for (const char* name : {"/ca.crt", "/tls.crt"})
    EXPECT_EQ(fs::status(published + name).permissions(), fs::perms(0644));
  EXPECT_EQ(fs::status(published).permissions(), fs::perms(0755));
  const auto reader = CertificateStore::open(published, kClient, {});
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  EXPECT_EQ(name_of(**reader), "b");
  mount("c");
  ASSERT_TRUE(publish_certificates(store->current()->files, published).ok());
  EXPECT_EQ(name_of(**reader), "c");
  EXPECT_FALSE(publish_certificates(store->current()->files, published + "/no/where").ok());
}

}  // namespace
}  // namespace tutti
