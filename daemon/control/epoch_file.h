// The file in which a coordinator of the embedded kind remembers the jobs' epochs and owners, so
// that its successor on this host goes on with them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "daemon/base/status.h"
#include "daemon/membership/state_store.h"
#include "proto/mesh.pb.h"

namespace tutti {

// No file: no states. FAILED_PRECONDITION: the file was not written by write_epoch_file(), or is
// another user's or writable by others; UNAVAILABLE: it cannot be read.
Result<v1::JobStates> read_epoch_file(const std::string& path);

// Replaces the file at once: readers find the old states or the new ones. Only this user
// may read it, because it holds secrets of epochs. UNAVAILABLE: it cannot be written.
Status write_epoch_file(const std::string& path, const v1::JobStates& states);

// Saves states in such a file. Where it cannot be written the log says so, and jobs go on.
class EpochFile final : public StateStore {
 public:
  // Empty: it saves nothing.
  explicit EpochFile(std::string path) : path_(std::move(path)) {}

  std::vector<v1::JobState> load() override;
  bool save(const std::vector<v1::JobState>& states) override;
  std::string obstacle() const override { return {}; }

 private:
  // In the place of what is known of the job, behind all others.
  void replace(const v1::JobState& state);

  const std::string path_;
  v1::JobStates states_;  // Those that changed last are last.
  bool fails_ = false;    // And the log says so.
};

}  // namespace tutti
