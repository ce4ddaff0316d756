// Clears up after a launcher that is killed: a process of its own waits for the launcher's end,
// then ends the workers whose sockets are in the folder, and removes the folder with all that is in
// it.
#pragma once

#include <filesystem>

#include "daemon/base/fd.h"
#include "daemon/base/status.h"

namespace tutti {

class FolderKeeper {
 public:
  FolderKeeper() = default;
  // Before this process has other threads. The keeper is a child of this process, in a session of
  // its own, and holds none of its descriptors.
  static Result<FolderKeeper> start(const std::filesystem::path& folder);

 private:
  explicit FolderKeeper(Fd alive) : alive_(std::move(alive)) {}

  Fd alive_;  // The end of a pipe, which closes with this process.
};

}  // namespace tutti
