// Checks of a join that the coordinator and every agent make.
#include "daemon/base/job_check.h"

#include <algorithm>

#include "daemon/base/foreign_text.h"

namespace tutti {
namespace {

constexpr size_t kJobNameBytesMax = 128;
constexpr uint32_t kWorldSizeMax = 65'535;

}  // namespace

Status check_job(const std::string& job, uint32_t rank, uint32_t world_size) {
  if (job.empty()) return invalid_argument("the job has no name");
  if (Status named = check_name("the job's name", job, kJobNameBytesMax); !named.ok()) return named;
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
