// The file in which a coordinator remembers epochs: what is written is read, and nothing else.
#include "daemon/control/epoch_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "daemon/membership/membership.h"
#include "tests/support/temporary_directory.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

struct MeshEpochFile : ::testing::Test {
  static v1::JobStates states_of(uint32_t epoch) {
    v1::JobStates states;
    states.add_jobs()->set_job("demo");
    states.mutable_jobs(0)->set_epoch(epoch);
    states.mutable_jobs(0)->mutable_owner()->set_uid(1'000);
    return states;
  }
  void write(const std::string& bytes) const { std::ofstream(path) << bytes; }
  Status refusal() const { return read_epoch_file(path).status(); }

  const TemporaryDirectory directory;
  const std::string path = directory / "epochs";
};

TEST_F(MeshEpochFile, WhatIsWrittenIsRead) {
  ASSERT_TRUE(write_epoch_file(path, states_of(7)).ok());
  ASSERT_TRUE(write_epoch_file(path, states_of(8)).ok());
  const Result<v1::JobStates> read = read_epoch_file(path);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ((*read).SerializeAsString(), states_of(8).SerializeAsString());
  EXPECT_EQ(std::distance(fs::directory_iterator(directory), {}), 1) << "nothing else is left";
}

TEST_F(MeshEpochFile, OnlyItsUserMayReadIt) {
  ASSERT_TRUE(write_epoch_file(path, states_of(7)).ok());
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(MeshEpochFile, NoFileIsNoStates) {
  const Result<v1::JobStates> read = read_epoch_file(path);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ((*read).jobs_size(), 0);
}

TEST_F(MeshEpochFile, DamageIsFound) {
  ASSERT_TRUE(write_epoch_file(path, states_of(7)).ok());
  const std::string good = text_of(path);
  for (size_t at = 0; at < good.size(); ++at) {
    std::string damaged = good;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    write(damaged);
    EXPECT_EQ(refusal().code(), Code::failed_precondition) << at;
    write(good.substr(0, at));
    EXPECT_THAT(refusal().message(), HasSubstr(path + " is damaged")) << at;
  }
  write(good);
  EXPECT_TRUE(read_epoch_file(path).ok());
}

TEST_F(MeshEpochFile, WhatOthersMayHaveWrittenIsNotBelieved) {
  ASSERT_TRUE(write_epoch_file(path, states_of(7)).ok());
  chmod(path.c_str(), 0620);
  EXPECT_THAT(refusal().message(), HasSubstr("writable by others"));
  chmod(path.c_str(), 0600);
  fs::rename(path, path + ".moved");
  fs::create_symlink(path + ".moved", path);
  EXPECT_FALSE(refusal().ok());
  fs::remove(path);
  fs::create_directory(path);
  EXPECT_THAT(refusal().message(), HasSubstr("is not a file"));
}

TEST_F(MeshEpochFile, AFileOfAnotherUserIsNotBelieved) {
  ASSERT_TRUE(write_epoch_file(path, states_of(7)).ok());
  if (chown(path.c_str(), 12'345, -1) != 0) GTEST_SKIP() << "needs root, to give a file away";
  EXPECT_THAT(refusal().message(), HasSubstr("belongs to user 12345"));
}

TEST_F(MeshEpochFile, ALinkInItsPlaceIsReplacedAndNotFollowed) {
  write("untouched");
  fs::rename(path, path + ".target");
  fs::create_symlink(path + ".target", path);
  fs::create_symlink(path + ".target", path + ".new");
  ASSERT_TRUE(write_epoch_file(path, states_of(7)).ok());
  EXPECT_FALSE(fs::is_symlink(path));
  EXPECT_EQ(fs::file_size(path + ".target"), 9u);
}

// ---- As a store of states ----

v1::JobState state_of(const std::string& job, uint32_t epoch) {
  v1::JobState state;
  state.set_job(job);
  state.set_epoch(epoch);
  return state;
}

TEST_F(MeshEpochFile, ItsSuccessorLoadsTheNewestStateOfEachJob) {
  EpochFile file(path);
  EXPECT_TRUE(file.load().empty());
  EXPECT_TRUE(file.save({state_of("a", 1), state_of("b", 1)}));
  EXPECT_TRUE(file.save({state_of("a", 2)}));
  const std::vector<v1::JobState> states = EpochFile(path).load();
  ASSERT_EQ(states.size(), 2u);
  EXPECT_EQ(states[0].job(), "b");
  EXPECT_EQ(states[1].job(), "a") << "what changed last is last";
  EXPECT_EQ(states[1].epoch(), 2u);
}

TEST_F(MeshEpochFile, JobsOfOneNameBelongToTheirOwners) {
  v1::JobState other = state_of("a", 7);
  other.mutable_owner()->set_uid(1'001);
  EpochFile file(path);
  file.save({state_of("a", 1), other});
  EXPECT_EQ(EpochFile(path).load().size(), 2u);
}

TEST_F(MeshEpochFile, AForgottenJobIsNotLoaded) {
  EpochFile file(path);
  file.save({state_of("a", 1)});
  file.save({state_of("a", 0)});
  EXPECT_TRUE(EpochFile(path).load().empty());
}

// As after a downgrade: the newer version finds its state where no older one has replaced it.
TEST_F(MeshEpochFile, ARefusedStateStaysUntilItsJobHasANewOne) {
  v1::JobState unknown = state_of("a", 7);
  unknown.set_end(99);
  EpochFile(path).save({unknown, state_of("b", 1)});
  EpochFile file(path);
  Membership membership([](const v1::Pass&) { return Status(); });
  for (const v1::JobState& state : file.load())
    EXPECT_EQ(membership.restore(state, {}).ok(), state.job() == "b");
  file.save({state_of("b", 2)});
  ASSERT_EQ(EpochFile(path).load().size(), 2u);
  file.save({state_of("a", 1)});
  const std::vector<v1::JobState> states = EpochFile(path).load();
  ASSERT_EQ(states.size(), 2u);
  EXPECT_EQ(states[1].epoch(), 1u);
  EXPECT_EQ(states[1].end(), 0u);
}

TEST_F(MeshEpochFile, WhereItCannotBeWrittenEpochsStartAllTheSame) {
  EpochFile file(directory / "no such directory" / "epochs");
  EXPECT_TRUE(file.save({state_of("a", 1)}));
  EXPECT_TRUE(EpochFile("").save({state_of("a", 1)}));
}

TEST_F(MeshEpochFile, ADamagedFileIsNoStates) {
  write("nonsense");
  EXPECT_TRUE(EpochFile(path).load().empty());
}

}  // namespace
}  // namespace tutti
