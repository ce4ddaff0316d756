// Checks of a join that the coordinator and every agent make.
#include <algorithm>

#include "daemon/mesh/mesh.h"

namespace tutti {
namespace {

constexpr size_t kJobNameBytesMax = 128;
constexpr uint32_t kWorldSizeMax = 65'535;

}  // namespace

Status check_job(const std::string& job, uint32_t rank, uint32_t world_size) {
  if (job.empty()) return invalid_argument("the job has no name");
  if (job.size() > kJobNameBytesMax)
    return invalid_argument("the job's name is longer than " + std::to_string(kJobNameBytesMax) +
                            " bytes");
  if (std::ranges::any_of(job, [](unsigned char c) { return c < 0x20 || c == 0x7f; }))
    return invalid_argument("the job's name holds a control character");
  if (world_size == 0 || world_size > kWorldSizeMax)
    return invalid_argument("world size " + std::to_string(world_size) + " is not from 1 to " +
                            std::to_string(kWorldSizeMax));
  if (rank >= world_size)
    return invalid_argument("rank " + std::to_string(rank) + " is not below the world size " +
                                std::to_string(world_size),
                            {.rank = static_cast<int>(std::min(rank, kWorldSizeMax))});
  return {};
}

}  // namespace tutti
