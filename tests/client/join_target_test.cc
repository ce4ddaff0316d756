// Which job a process joins as which rank, by the variables of its launcher.
#include "client/rank/join_target.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <map>
#include <optional>

#include "tests/support/variable.h"

namespace tutti::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Variables = std::map<std::string, std::string>;

const Variables kOurs = {{"TUTTI_RANK", "1"}, {"TUTTI_WORLD_SIZE", "2"}, {"TUTTI_JOB", "ours"}};
const Variables kTorchrun = {{"RANK", "3"},
                             {"WORLD_SIZE", "4"},
                             {"LOCAL_WORLD_SIZE", "2"},
                             {"MASTER_ADDR", "node1"},
                             {"MASTER_PORT", "29500"},
                             {"TORCHELASTIC_RUN_ID", "run7"}};
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "5"},
                            {"OMPI_COMM_WORLD_SIZE", "6"},
                            {"PMIX_NAMESPACE", "1484849153"},
                            {"OMPI_MCA_ess_base_jobid", "1484849153"}};
const Variables kPmi = {{"PMI_RANK", "7"}, {"PMI_SIZE", "8"}, {"PMI_JOBID", "kvs_1"}};
const Variables kSlurm = {{"SLURM_PROCID", "9"},
                          {"SLURM_NTASKS", "10"},
                          {"SLURM_JOB_ID", "4711"},
                          {"SLURM_STEP_ID", "0"}};

Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

// Sets a process's variables, and only these, for as long as it lives.
class With {
 public:
  explicit With(const std::vector<Variables>& given) {
    for (const Variables& all : {kOurs, kTorchrun, kOpenMpi, kPmi, kSlurm})
      for (const auto& [name, value] : all) set(name, {});
    for (const Variables& some : given)
      for (const auto& [name, value] : some) set(name, value);
  }

 private:
  void set(const std::string& name, const std::optional<std::string>& value) {
    variables_.erase(name);
    variables_.try_emplace(name, name, value);
  }
  std::map<std::string, Variable> variables_;
};

JoinTarget target_with(const std::vector<Variables>& given) {
  const With variables(given);
  JoinTarget target;
  const Status read = read_target(nullptr, target);
  EXPECT_TRUE(read.ok()) << read.message();
  return target;
}

std::string refusal_with(const std::vector<Variables>& given,
                         const tutti_join_options* options = nullptr) {
  const With variables(given);
  JoinTarget target;
  const Status read = read_target(options, target);
  EXPECT_EQ(read.code(), Code::invalid_argument) << "of job " << target.job;
  return read.message();
}

void expect(const JoinTarget& target, const std::string& launcher, const std::string& job,
            uint32_t rank, uint32_t world_size) {
  EXPECT_EQ(target.launcher, launcher);
  EXPECT_EQ(target.job, job);
  EXPECT_EQ(target.rank, rank);
  EXPECT_EQ(target.world_size, world_size);
}

TEST(JoinTarget, IsThatOfEachLauncher) {
  expect(target_with({kOurs}), "TUTTI_*", "ours", 1, 2);
  expect(target_with({kTorchrun}), "torchrun", "torchrun-run7", 3, 4);
  expect(target_with({kOpenMpi}), "Open MPI", "mpi-1484849153", 5, 6);
  expect(target_with({kPmi}), "PMI", "pmi-kvs_1", 7, 8);
  expect(target_with({kSlurm}), "Slurm", "slurm-4711.0", 9, 10);
}

TEST(JoinTarget, PrefersTheLaunchersInOrder) {
  expect(target_with({kOurs, kTorchrun, kOpenMpi, kPmi, kSlurm}), "TUTTI_*", "ours", 1, 2);
  expect(target_with({kTorchrun, kOpenMpi, kPmi, kSlurm}), "torchrun", "torchrun-run7", 3, 4);
  expect(target_with({kOpenMpi, kPmi, kSlurm}), "Open MPI", "mpi-1484849153", 5, 6);
  expect(target_with({kPmi, kSlurm}), "PMI", "pmi-kvs_1", 7, 8);
}

TEST(JoinTarget, NeverTakesRankAndWorldSizeFromTwoLaunchers) {
  expect(target_with({without(kTorchrun, "RANK"), kSlurm}), "Slurm", "slurm-4711.0", 9, 10);
  expect(target_with({without(kOpenMpi, "OMPI_COMM_WORLD_SIZE"), kPmi}), "PMI", "pmi-kvs_1", 7, 8);
  EXPECT_THAT(refusal_with({without(kOurs, "TUTTI_WORLD_SIZE"), kTorchrun}),
              HasSubstr("no world size given; pass one or set TUTTI_WORLD_SIZE"));
  EXPECT_THAT(refusal_with({without(kOurs, "TUTTI_RANK"), kTorchrun}),
              HasSubstr("no rank given; pass one or set TUTTI_RANK"));
}

TEST(JoinTarget, TakesRankAndWorldSizeForTorchrunsOnlyIfTheySayWhereToMeet) {
  const Variables bare = {{"RANK", "0"}, {"WORLD_SIZE", "2"}};
  EXPECT_THAT(refusal_with({bare}), AllOf(HasSubstr("TORCHELASTIC_RUN_ID or MASTER_ADDR"),
                                          HasSubstr("of these only RANK, WORLD_SIZE is set")));
  expect(target_with({bare, kSlurm}), "Slurm", "slurm-4711.0", 9, 10);
}

TEST(JoinTarget, NamesAllVariablesWhereNoneIsSet) {
  const std::string why = refusal_with({});
  for (const char* name : {"TUTTI_RANK", "TUTTI_WORLD_SIZE", "RANK and WORLD_SIZE",
                           "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE",
                           "SLURM_PROCID", "SLURM_NTASKS", "of these none is set"})
    EXPECT_THAT(why, HasSubstr(name));
}

TEST(JoinTarget, NamesTheVariableThatIsWrong) {
  Variables wrong = kSlurm;
  wrong["SLURM_PROCID"] = "first";
  EXPECT_THAT(refusal_with({wrong}), HasSubstr("SLURM_PROCID='first' is no rank"));
  wrong = kOpenMpi;
  wrong["OMPI_COMM_WORLD_SIZE"] = "";
  EXPECT_THAT(refusal_with({wrong}), HasSubstr("OMPI_COMM_WORLD_SIZE='' is no world size"));
  wrong = kPmi;
  wrong["PMI_RANK"] = "8";
  EXPECT_THAT(refusal_with({wrong}), AllOf(HasSubstr("rank 8 is out of range"),
                                           HasSubstr("PMI_RANK and PMI_SIZE of PMI")));
}

TEST(JoinTarget, IsOfTheJobThatTheEnvironmentNames) {
  const Variables named = {{"TUTTI_JOB", "mine"}};
  for (const Variables& launcher : {kTorchrun, kOpenMpi, kPmi, kSlurm})
    EXPECT_EQ(target_with({launcher, named}).job, "mine");
}

TEST(JoinTarget, HasNoNameThatAnotherJobMayHave) {
  const std::string torchrun =
      refusal_with({without(without(kTorchrun, "MASTER_PORT"), "TORCHELASTIC_RUN_ID")});
  EXPECT_THAT(torchrun, AllOf(HasSubstr("TUTTI_JOB"), HasSubstr("torchrun --rdzv-id=NAME")));
  EXPECT_THAT(refusal_with({without(kSlurm, "SLURM_STEP_ID")}), HasSubstr("Slurm gives no name"));
  EXPECT_THAT(refusal_with({without(kPmi, "PMI_JOBID")}), HasSubstr("PMI gives no name"));
  EXPECT_THAT(refusal_with({without(kOurs, "TUTTI_JOB")}), HasSubstr("no job given"));
}

TEST(JoinTarget, CallsARunOfTorchrunWithoutAnIdByWhereItMeets) {
  Variables run = kTorchrun;
  run["TORCHELASTIC_RUN_ID"] = "none";
  EXPECT_EQ(target_with({run}).job, "torchrun-node1:29500");
  run["MASTER_ADDR"] = "127.0.0.1";  // Of several nodes: which one?
  EXPECT_THAT(refusal_with({run}), HasSubstr("torchrun gives no name"));
  run["LOCAL_WORLD_SIZE"] = run["WORLD_SIZE"];
  std::array<char, HOST_NAME_MAX + 1> name{};
  gethostname(name.data(), name.size() - 1);
  EXPECT_EQ(target_with({run}).job, "torchrun-" + std::string(name.data()) + ":29500");
}

TEST(JoinTarget, TakesFromTheLauncherOnlyWhatIsNotGiven) {
  tutti_join_options options = tutti_join_defaults();
  options.rank = 0;
  EXPECT_THAT(refusal_with({kSlurm}, &options), HasSubstr("no job given"));
  options.job = "mine";
  JoinTarget target;
  {
    const With variables({kSlurm});
    ASSERT_TRUE(read_target(&options, target).ok());
  }
  expect(target, "Slurm", "mine", 0, 10);
  EXPECT_EQ(target.origin, "SLURM_NTASKS of Slurm");
  options.world_size = 1;
  {
    const With variables({kSlurm});
    ASSERT_TRUE(read_target(&options, target = {}).ok());
  }
  expect(target, "", "mine", 0, 1);
  EXPECT_EQ(with_origin(unavailable("gone"), target).message(), "gone");
}

TEST(JoinTarget, TellsInErrorsWhichVariablesWereTaken) {
  const Status why = with_origin(unavailable("gone", {3, "b"}), target_with({kTorchrun}));
  EXPECT_EQ(why.message(),
            "gone; this is rank 3 of 4 of job 'torchrun-run7' by RANK and WORLD_SIZE of torchrun");
  EXPECT_EQ(why.code(), Code::unavailable);
  EXPECT_EQ(why.culprit(), (Culprit{3, "b"}));
  EXPECT_THAT(with_origin(unavailable("gone"), target_with({kOurs})).message(),
              AllOf(HasSubstr("by TUTTI_RANK and TUTTI_WORLD_SIZE"), Not(HasSubstr(" of TUTTI"))));
}

}  // namespace
}  // namespace tutti::client
