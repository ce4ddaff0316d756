// Launchers that start one process per rank: torchrun and MPI; and variables in general.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "client/faces/distribute/launch_resolver.h"

namespace tutti::distribute {
namespace {

using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

const Variables kTorchrun = {{"RANK", "3"},
                             {"WORLD_SIZE", "4"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "2"},
                             {"MASTER_ADDR", "node0"},
                             {"MASTER_PORT", "29500"},
                             {"TORCHELASTIC_RUN_ID", "job7"},
                             {"TORCHELASTIC_RESTART_COUNT", "2"}};

TorchrunResolver torchrun(const Variables& variables) {
  return TorchrunResolver({.num_accelerators = {{"GPU", 1}},
                           .rpc_layer = "grpc",
                           .variables = environment_of(variables)});
}

Variables without(const Variables& variables, const std::string& name) {
  Variables fewer = variables;
  fewer.erase(name);
  return fewer;
}

Variables with(const Variables& variables, const std::string& name, const std::string& value) {
  Variables changed = variables;
  changed[name] = value;
  return changed;
}

TEST(TorchrunResolver, EveryRankIsAWorker) {
  const TorchrunResolver resolver = torchrun(kTorchrun);
  EXPECT_EQ(*resolver.placement(), (Placement{3, 4, false, "node0:29500"}));
  EXPECT_EQ(*resolver.launch(), (Launch{3, 4, 1, 2}));
  EXPECT_EQ(*resolver.master(), "grpc://node0:29500");
  EXPECT_EQ(*resolver.num_accelerators(), (Accelerators{{"GPU", 1}}));
  EXPECT_EQ(*resolver.rpc_layer(), "grpc");
  EXPECT_EQ(resolver.run_id(), "job7");
  EXPECT_EQ(*resolver.restart_count(), 2);
  EXPECT_EQ(*torchrun(with(kTorchrun, "MASTER_ADDR", "fe80::1")).master(),
            "grpc://[fe80::1]:29500");
  EXPECT_EQ(*torchrun(with(kTorchrun, "MASTER_ADDR", "[::1]")).master(), "grpc://[::1]:29500");
}

TEST(TorchrunResolver, KnowsNoAddressButTheMasters) {
  const Status status = torchrun(kTorchrun).master({"worker", 1}).status();
  EXPECT_EQ(status.code(), Code::failed_precondition);
  EXPECT_THAT(status.message(), HasSubstr("the address of worker 1 is not known"));
}

TEST(TorchrunResolver, LocalRankAndElasticVariablesMayBeUnset) {
  const TorchrunResolver resolver = torchrun({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  EXPECT_EQ(*resolver.launch(), Launch{});
  EXPECT_EQ(resolver.run_id(), "");
  EXPECT_EQ(*resolver.restart_count(), 0);
}

TEST(TorchrunResolver, NeedsTheOthers) {
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    const Status status = torchrun(without(kTorchrun, name)).placement().status();
    EXPECT_EQ(status.code(), Code::failed_precondition);
    EXPECT_THAT(status.message(), HasSubstr(std::string(name) + " is not set; start this process "
                                                                "within torchrun"));
  }
}

TEST(TorchrunResolver, RefusesNumbersThatAreWrong) {
  for (const auto& [name, value] :
       Variables{{"RANK", "4"}, {"WORLD_SIZE", "0"}, {"LOCAL_RANK", "2"}, {"MASTER_PORT", "x"}})
    EXPECT_EQ(torchrun(with(kTorchrun, name, value)).placement().status().code(),
              Code::invalid_argument)
        << name;
  for (const char* text : {"", "-1", "-0", "+1", " 1", "1 ", "0x1", "1.0", "2147483648"})
    EXPECT_THAT(torchrun(with(kTorchrun, "RANK", text)).task().status().message(),
                HasSubstr("RANK='" + std::string(text) + "' is not a decimal number"));
  EXPECT_THAT(torchrun(with(kTorchrun, "WORLD_SIZE", "1000001")).launch().status().message(),
              HasSubstr("is more than 1000000"));
  EXPECT_FALSE(torchrun(with(kTorchrun, "TORCHELASTIC_RESTART_COUNT", "?")).restart_count().ok());
}

MpiResolver mpi(const Variables& variables, const std::string& master = "") {
  return MpiResolver({.master = master, .variables = environment_of(variables)});
}

const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                            {"OMPI_COMM_WORLD_SIZE", "2"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}};
const Variables kMvapich = {{"MV2_COMM_WORLD_RANK", "2"},
                            {"MV2_COMM_WORLD_SIZE", "3"},
                            {"MV2_COMM_WORLD_LOCAL_RANK", "2"},
                            {"MV2_COMM_WORLD_LOCAL_SIZE", "3"}};
const Variables kPmi = {{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "1"}};

TEST(MpiResolver, ReadsEachLaunchersVariables) {
  EXPECT_EQ(*mpi(kOpenMpi).launch(), (Launch{1, 2, 0, 1}));
  EXPECT_EQ(*mpi(kMvapich).launch(), (Launch{2, 3, 2, 3}));
  EXPECT_EQ(*mpi(kPmi).launch(), (Launch{3, 4, 1, {}}));
  Variables both = kPmi;
  both.insert(kMvapich.begin(), kMvapich.end());
  EXPECT_EQ(mpi(both).launch()->rank, 2);
}

TEST(MpiResolver, EveryRankIsAWorker) {
  EXPECT_EQ(*mpi(kOpenMpi).placement(), (Placement{1, 2, false, ""}));
  EXPECT_EQ(*mpi(kOpenMpi, "h:1").placement(), (Placement{1, 2, false, "h:1"}));
  EXPECT_EQ(*mpi(kOpenMpi, "h:1").master(), "h:1");
  EXPECT_EQ(*mpi(kOpenMpi).master(), "");
  EXPECT_EQ(mpi(kOpenMpi).master({"worker", 0}).status().code(), Code::failed_precondition);
}

TEST(MpiResolver, NeedsItsVariables) {
  EXPECT_EQ(mpi({}).placement().status().code(), Code::failed_precondition);
  EXPECT_EQ(mpi({{"PMI_RANK", "0"}}).task().status().code(), Code::failed_precondition);
  EXPECT_EQ(mpi({{"PMI_RANK", "4"}, {"PMI_SIZE", "4"}}).cluster_spec().status().code(),
            Code::invalid_argument);
}

TEST(Environment, IsTheProcesssOwnByDefault) {
  ASSERT_EQ(setenv("TUTTI_TEST_VARIABLE", "x", 1), 0);
  EXPECT_EQ(process_environment()("TUTTI_TEST_VARIABLE"), "x");
  ASSERT_EQ(unsetenv("TUTTI_TEST_VARIABLE"), 0);
  EXPECT_EQ(process_environment()("TUTTI_TEST_VARIABLE"), std::nullopt);
}

TEST(Environment, CountsVisibleGpus) {
  EXPECT_EQ(count_gpus(environment_of({{"CUDA_VISIBLE_DEVICES", "0"}})), 1);
  EXPECT_EQ(count_gpus(environment_of({{"CUDA_VISIBLE_DEVICES", "2,GPU-8a,5"}})), 3);
  EXPECT_EQ(count_gpus(environment_of({{"CUDA_VISIBLE_DEVICES", ""}})), 0);
  EXPECT_EQ(count_gpus(environment_of({{"CUDA_VISIBLE_DEVICES", "-1"}})), 0);
  EXPECT_EQ(count_gpus(environment_of({{"CUDA_VISIBLE_DEVICES", "1,0,-1,2"}})), 2);
}

TEST(Environment, ElseCountsWhatTheDriverLists) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(testing::TempDir()) / ("gpus_" + std::to_string(getpid()));
  EXPECT_EQ(count_gpus(environment_of({}), folder.string()), 0);
  fs::create_directories(folder / "0000:3b:00.0");
  fs::create_directories(folder / "0000:86:00.0");
  EXPECT_EQ(count_gpus(environment_of({}), folder.string()), 2);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace tutti::distribute
