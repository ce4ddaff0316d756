// Which GPUs the ranks of `tutti run --gpus` see.
#include "daemon/launch/gpu_shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Strings = std::vector<std::string>;

std::vector<GpuInfo> machine(int count) {
  std::vector<GpuInfo> gpus(static_cast<size_t>(count));
  for (int index = 0; index < count; ++index) {
    GpuInfo& gpu = gpus[static_cast<size_t>(index)];
    gpu.index = index;
    gpu.uuid = "GPU-" + std::to_string(index) + "f";
  }
  return gpus;
}

Strings usable(int count, const std::string& visible) {
  const Result<UsableGpus> found = usable_gpus(machine(count), visible);
  EXPECT_EQ(found.status().to_string(), "OK");
  return found->ids;
}

Result<Strings> shares(int count, int each, int ranks) {
  return share_gpus(*usable_gpus(machine(count), std::nullopt), each, ranks);
}

TEST(GpuOption, IsANumberOrAuto) {
  EXPECT_EQ(*parse_gpus("2"), 2);
  EXPECT_EQ(*parse_gpus("auto"), kGpusAuto);
  for (const char* text : {"", "0", "-1", "2x", "all", "1.5", "100000"}) {
    EXPECT_EQ(parse_gpus(text).status().code(), Code::invalid_argument) << text;
  }
  EXPECT_THAT(parse_gpus("all").status().message(),
              HasSubstr("--gpus 'all': expected how many GPUs each rank gets, or auto"));
}

TEST(GpuShares, RanksGetTheirNumberInOrder) {
  EXPECT_THAT(*shares(4, 1, 2), ElementsAre("GPU-0f", "GPU-1f"));
  EXPECT_THAT(*shares(4, 2, 2), ElementsAre("GPU-0f,GPU-1f", "GPU-2f,GPU-3f"));
}

TEST(GpuShares, AutoDividesEvenly) {
  EXPECT_THAT(*shares(4, kGpusAuto, 2), ElementsAre("GPU-0f,GPU-1f", "GPU-2f,GPU-3f"));
  EXPECT_THAT(*shares(3, kGpusAuto, 2), ElementsAre("GPU-0f", "GPU-1f"))
      << "no rank has more than others";
  EXPECT_THAT(*shares(2, kGpusAuto, 2), ElementsAre("GPU-0f", "GPU-1f"));
}

TEST(GpuShares, AutoSharesInTurnWhereThereAreMoreRanks) {
  EXPECT_THAT(*shares(2, kGpusAuto, 5),
              ElementsAre("GPU-0f", "GPU-1f", "GPU-0f", "GPU-1f", "GPU-0f"));
}

TEST(GpuShares, TooFewSaysHowManyThereAreAndWhatToDo) {
  const Status status = shares(3, 2, 2).status();
  EXPECT_EQ(status.code(), Code::resource_exhausted);
  EXPECT_EQ(status.message(),
            "--gpus 2 needs 4 GPUs for 2 ranks, and there are 3; start fewer ranks, or let "
            "--gpus auto divide what there is");
  EXPECT_THAT(shares(1, 3, 1).status().message(),
              HasSubstr("needs 3 GPUs for 1 rank, and there is 1;"));
  for (const int each : {1, kGpusAuto}) {
    EXPECT_EQ(shares(0, each, 1).status().message(),
              "there is no GPU for --gpus; leave out --gpus to run without");
  }
}

TEST(UsableGpus, AreThoseOfCudaVisibleDevicesInItsOrder) {
  EXPECT_THAT(usable(4, "2,0"), ElementsAre("GPU-2f", "GPU-0f"));
  EXPECT_THAT(usable(4, "GPU-3f, GPU-1"), ElementsAre("GPU-3f", "GPU-1f"));
  EXPECT_THAT(usable(4, "MIG-a,MIG-b"), ElementsAre("MIG-a", "MIG-b"));
}

TEST(UsableGpus, AnEntryThatNamesNoneEndsTheList) {
  for (const char* none : {"", "-1", "NoDevFiles", "4", "GPU-9", "GPU-", "GPU"}) {
    EXPECT_THAT(usable(4, none), IsEmpty()) << none;
  }
  EXPECT_THAT(usable(4, "1,7,2"), ElementsAre("GPU-1f"));
}

TEST(UsableGpus, OneThatIsNamedTwiceIsAnError) {
  for (const char* twice : {"1,1", "1,GPU-1f", "GPU-1,GPU-1f"}) {
    const Status status = usable_gpus(machine(2), twice).status();
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_THAT(status.message(), HasSubstr(std::string(twice) + " names GPU 1 twice"));
  }
  EXPECT_THAT(usable_gpus(machine(1), "MIG-a,MIG-a").status().message(), HasSubstr("MIG-a twice"));
}

TEST(UsableGpus, ThoseThatFailedOrAreDividedAreLeftOutAndNamed) {
  std::vector<GpuInfo> gpus = machine(3);
  gpus[0].mig = true;
  gpus[2].fault = "GPU is lost";
  for (const auto& visible : {std::optional<std::string>(), std::optional<std::string>("0,1,2")}) {
    const Result<UsableGpus> found = usable_gpus(gpus, visible);
    EXPECT_THAT(found->ids, ElementsAre("GPU-1f"));
    EXPECT_THAT(share_gpus(*found, 2, 1).status().message(),
                HasSubstr("there is 1 (GPU 0 is divided by MIG: name its parts, which nvidia-smi "
                          "-L lists, in CUDA_VISIBLE_DEVICES; GPU 2 failed: GPU is lost"));
  }
}

TEST(UsableGpus, WhatTheVariableHidesIsSaidWhereThereAreTooFew) {
  const Result<UsableGpus> found = usable_gpus(machine(8), "0,1");
  EXPECT_THAT(share_gpus(*found, 1, 4).status().message(),
              HasSubstr("there are 2 (CUDA_VISIBLE_DEVICES=0,1 names 2 GPUs of this machine's 8); "
                        "start fewer ranks"));
}

}  // namespace
}  // namespace tutti
