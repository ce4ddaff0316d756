// What `tutti doctor` sees of real files, ports and libraries, without an agent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "daemon/doctor/doctor.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_ca.h"
#include "tests/support/variable.h"

namespace tutti {
namespace {

using testing::HasSubstr;

constexpr long kDay = 86'400;

class DoctorView : public testing::Test {
 protected:
  void SetUp() override {
    options_.settings.socket = directory_ / "none.sock";
    options_.settings.run_dir = directory_;
    options_.settings.listen = "127.0.0.1:0";
    options_.settings.host = "b";
  }

  Check check(const std::string& subject) const {
    const std::vector<Check> checks = examine(look_at_node(options_));
    return *std::ranges::find(checks, subject, &Check::subject);
  }
  void expect(const std::string& subject, Grade grade, const std::string& finding) const {
    const Check found = check(subject);
    EXPECT_EQ(found.grade, grade) << subject;
    EXPECT_THAT(found.finding, HasSubstr(finding));
  }

  const TemporaryDirectory directory_;
  DoctorOptions options_;
};

TEST_F(DoctorView, CertificatesAreCheckedAsTheAgentDoes) {
  const TestCa ca("authority");
  options_.settings.tls = "require";
  options_.settings.tls_dir = directory_ / "tls";
  expect("certificates", Grade::fail, "ca.crt cannot be read");
  mount_secret(options_.settings.tls_dir,
               ca.issue({.common_name = "b", .names = "DNS:b", .ends_s = 100 * kDay + 60}),
               ca.certificate());
  expect("certificates", Grade::ok, "tls.crt expires in 100 days, and names DNS b");
  mount_secret(options_.settings.tls_dir,
               ca.issue({.common_name = "b", .names = "DNS:b", .ends_s = 5 * kDay + 60}),
               ca.certificate());
  expect("certificates", Grade::warn, "tls.crt expires in 5 days");
  options_.settings.host = "c";
  expect("certificates", Grade::fail, "tls.crt names DNS b, CN b, not this host, c");
  IssuedCertificate mixed = ca.issue({.common_name = "b", .names = "DNS:b"});
  mixed.key = ca.issue({.common_name = "b", .names = "DNS:b"}).key;
  mount_secret(options_.settings.tls_dir, mixed, ca.certificate());
  expect("certificates", Grade::fail, "tls.key");
}

TEST_F(DoctorView, AGpuThatCannotBeOpenedHasFailed) {
  options_.settings.nvml_library = TUTTI_FAKE_NVML;
  expect("gpus", Grade::ok, "GPUs that work: 2");
  const Variable lost("FAKE_NVML_LOST", "1");
  expect("gpus", Grade::fail, "GPU 1 failed: ");
}

TEST_F(DoctorView, TokensThatOthersMayRead) {
  options_.settings.token_file = directory_ / "token";
  std::ofstream(options_.settings.token_file) << "secret role=agent\n";
  chmod(options_.settings.token_file.c_str(), 0644);
  expect("tokens", Grade::fail, options_.settings.token_file);
  chmod(options_.settings.token_file.c_str(), 0600);
  expect("tokens", Grade::ok, "there is a token for agents");
}

TEST_F(DoctorView, ARunDirectoryThatOthersMayWrite) {
  chmod(directory_.c_str(), 0755);
  expect("directories", Grade::ok, "and to nobody else");
  chmod(directory_.c_str(), 0777);
  expect("directories", Grade::fail, "others may write to " + directory_.string());
}

TEST_F(DoctorView, AFullOrReadOnlyRunDirectory) {
  if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    GTEST_SKIP() << "only root may mount";
  const char* target = directory_.c_str();
  ASSERT_EQ(mount("none", target, "tmpfs", 0, "size=2m,mode=0755"), 0);
  expect("directories", Grade::ok, "and to nobody else");
  std::ofstream(directory_ / "ballast") << std::string(1'500'000, 'x');
  expect("directories", Grade::fail, directory_.string() + " is full: ");
  std::filesystem::remove(directory_ / "ballast");
  ASSERT_EQ(mount("none", target, "tmpfs", MS_REMOUNT | MS_RDONLY, nullptr), 0);
  expect("directories", Grade::fail, directory_.string() + " is on a read-only file system");
  EXPECT_EQ(umount(target), 0);
}

TEST_F(DoctorView, AWorkerThatIsNotThereOrNoProgram) {
  expect("worker", Grade::ok, "the one beside tuttid");
  options_.settings.worker_binary = directory_ / "worker";
  expect("worker", Grade::fail, "there is no " + options_.settings.worker_binary);
  std::ofstream(options_.settings.worker_binary) << "#!/bin/sh\n";
  expect("worker", Grade::fail, "cannot be executed");
  chmod(options_.settings.worker_binary.c_str(), 0755);
  expect("worker", Grade::ok, "can be executed");
}

TEST_F(DoctorView, AddressesThatOthersCannotReach) {
  options_.settings.coordinator = "192.0.2.1:7601";  // Of no machine (RFC 5737).
  options_.timeout_ms = 1;
  expect("listen", Grade::fail, "only this machine reaches that");
  expect("coordinator", Grade::fail, "192.0.2.1:7601 is not reached: ");
}

TEST_F(DoctorView, EtcdThatIsNotReachedAndItsFiles) {
  options_.settings.etcd = "192.0.2.1:2379";
  options_.settings.trust_network = "yes";
  options_.timeout_ms = 1;
  expect("etcd", Grade::fail, "192.0.2.1:2379 is not reached: ");
  options_.settings.etcd_tls_dir = directory_;
  expect("etcd", Grade::fail, "ca.crt cannot be read: No such file");
  std::ofstream(directory_ / "ca.crt") << "authority";
  options_.settings.etcd_user = "tutti";
  options_.settings.etcd_password_file = directory_ / "password";
  expect("etcd", Grade::fail, options_.settings.etcd_password_file);
}

}  // namespace
}  // namespace tutti
