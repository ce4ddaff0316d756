// Which GPUs each rank of a run sees: what `tutti run --gpus` puts into CUDA_VISIBLE_DEVICES. Pure.
//
// All hosts of a LocalMesh are on this machine, so its GPUs are divided among all ranks, in order
// of rank.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/status.h"
#include "daemon/nvml/nvml.h"

namespace tutti {

inline constexpr int kGpusAuto = 0;

// Reads "2", GPUs a rank, or "auto". INVALID_ARGUMENT for any other text.
Result<int> parse_gpus(std::string_view text);

struct UsableGpus {
  std::vector<std::string> ids;       // As CUDA_VISIBLE_DEVICES takes them: UUIDs.
  std::vector<std::string> left_out;  // "GPU 3 failed: GPU is lost": why there are no more.
};

// The GPUs that a run may use. `visible` is the caller's CUDA_VISIBLE_DEVICES, nullopt where it is
// not set. It is read as CUDA does: an entry that names no GPU ends the list. Its numbers are those
// of NVML. INVALID_ARGUMENT where it names a GPU twice.
Result<UsableGpus> usable_gpus(const std::vector<GpuInfo>& gpus,
                               const std::optional<std::string>& visible);

// CUDA_VISIBLE_DEVICES of each rank. `each` is the number of GPUs a rank gets, none of which
// another one has. kGpusAuto: as many as all can have; where there are more ranks than GPUs, one
// each, in turn. RESOURCE_EXHAUSTED where there are too few.
Result<std::vector<std::string>> share_gpus(const UsableGpus& gpus, int each, int ranks);

}  // namespace tutti
