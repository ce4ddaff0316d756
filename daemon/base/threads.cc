#include "daemon/base/threads.h"

#include <string>

namespace tutti {
namespace {

// With fewer it takes longer to call the ranks than to fold.
constexpr size_t kFoldingCoresMin = 4;

}  // namespace

// A thread moves about 5 GB/s by TCP; on fewer cores it takes them from trainers and folds.
size_t data_streams(const Settings& settings, size_t cores) {
  if (settings.data_streams != "auto") return std::stoul(settings.data_streams);
  return cores < 8 ? 1 : cores < 16 ? 2 : 4;
}

bool do_ranks_fold(const Settings& settings, size_t cores) {
  if (settings.folding != "auto") return settings.folding == "ranks";
  return cores >= kFoldingCoresMin;
}

}  // namespace tutti
