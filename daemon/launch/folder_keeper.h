// Clears up after a launcher that is killed: a process of its own waits for the launcher's end,
// then ends the agents and workers whose sockets are in the folder, and removes the folder with all
// that is in it.
#pragma once

#include <filesystem>
#include <functional>

#include "daemon/base/fd.h"
#include "daemon/base/status.h"

namespace tutti {

inline constexpr const char* kTokenFile = "token";  // In the folder.

// What it does then: removes the token, at once because it opens the mesh, and then processes and
// folder, again until two rounds find neither, because those that end may start and write others. A
// bounded number of rounds; calls `pause` between them.
void clear_up(const std::filesystem::path& folder, const std::function<void()>& pause);

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
