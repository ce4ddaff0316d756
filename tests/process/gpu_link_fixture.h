// Jobs on GPUs of several hosts that NCCL may connect: the fake one, over the fake driver.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <optional>

#include "daemon/control/admin_client.h"
#include "proto/mesh.pb.h"
#include "tests/process/gpu_fixture.h"
#include "tests/support/temporary_directory.h"

namespace tutti::testing {

// A rank of such a job: its GPU, its group, and tensors of kCount floats.
class GpuRank {
 public:
  static constexpr size_t kCount = 1000;
  static constexpr int kMostOperations = 20'000;

  explicit GpuRank(const RankContext& context, int gpu = 0)
      : cuda(gpu),
        rank(context.rank),
        ranks(context.world_size),
        memory_(cuda, kCount * sizeof(float)) {}

  std::byte* data() const { return memory_.data(); }
  void write_ones() const { cuda.write(data(), std::vector<float>(kCount, 1)); }
  tutti_code reduce(CGroup& group, const tutti_options* options = nullptr,
                    tutti_work** work = nullptr) const {
    return tutti_all_reduce(group.get(), data(), data(), kCount, TUTTI_F32, TUTTI_SUM, options,
                            work);
  }
  void check_ramp(CGroup& group) const {
    cuda.write(data(), ramp(kCount, static_cast<float>(rank)));
    CGroup::expect(reduce(group));
    check(cuda.read<float>(data(), kCount) == sum_of_ramps(kCount, ranks), "a right sum");
  }
  // Runs operations until `is_true` on rank 0, which the ranks tell each other on the host.
  void reduce_until(CGroup& group, const std::function<bool()>& is_true) const {
    for (int i = 0; i < kMostOperations; ++i) {
      check_ramp(group);
      int told = rank == 0 && is_true() ? 1 : 0;
      CGroup::expect(
          tutti_all_reduce(group.get(), &told, &told, 1, TUTTI_I32, TUTTI_MAX, nullptr, nullptr));
      if (told != 0) return;
    }
    check(false, "it comes to that within so many operations");
  }

  const CudaProgram cuda;
  const int rank;
  const int ranks;

 private:
  const GpuMemory memory_;
};

class GpuLinkMesh : public ::testing::TestWithParam<std::vector<int>> {
 protected:
  GpuLinkMesh() {
    set("TUTTI_CUDA_DRIVER", TUTTI_FAKE_CUDA);
    set("TUTTI_GPU_LINK", "nccl");
    set("TUTTI_NCCL_LIBRARY", TUTTI_FAKE_NCCL);
    set("FAKE_NCCL_LOG", directory_ / "log");
    set("FAKE_NCCL_FAULTS", directory_ / "faults");
  }
  // For the processes that start later.
  void set(const std::string& name, const std::string& value) {
    environment_.erase(name);
    environment_.try_emplace(name, name, value);
  }
  // After what a test adds to the environment.
  void start_mesh() { mesh_.emplace(static_cast<int>(GetParam().size())); }
  std::vector<Trainer> start(const Trainer::Body& body) {
    if (!mesh_) start_mesh();
    return mesh_->start("job", GetParam(), body);
  }
  std::string run(const Trainer::Body& body) {
    std::vector<Trainer> trainers = start(body);
    const std::string reports = TestMesh::wait(trainers);
    return reports.empty() ? reports : reports + mesh_->log_tails();
  }
  int hosts() const { return static_cast<int>(GetParam().size()); }

  void set_fault(const std::string& line) const {
    std::ofstream(directory_ / "faults", std::ios::app) << line << std::endl;
  }
  void clear_faults() const { std::filesystem::remove(directory_ / "faults"); }
  // What NCCL has done so far, "all_reduce f32 1000", a line each.
  std::string nccl_log() const { return text_of(directory_ / "log"); }
  bool nccl_was_used() const { return !nccl_log().empty(); }

  v1::WorkerReport worker(int host) const { return worker_report(*mesh_, host, "job"); }

  const TemporaryDirectory directory_;
  std::map<std::string, Variable> environment_;
  const Gate gate_;
  std::optional<TestMesh> mesh_;
};

}  // namespace tutti::testing
