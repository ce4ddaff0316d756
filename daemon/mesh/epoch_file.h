// The file in which a coordinator of the embedded kind remembers the jobs' epochs and owners, so
// that its successor on this host goes on with them.
#pragma once

#include <string>

#include "daemon/base/status.h"
#include "proto/mesh.pb.h"

namespace tutti {

// No file: no states. FAILED_PRECONDITION: the file was not written by write_epoch_file(), or is
// another user's or writable by others; UNAVAILABLE: it cannot be read.
Result<v1::JobStates> read_epoch_file(const std::string& path);

// Replaces the file at once: readers find the old states or the new ones. Only this user
// may read it, because it holds secrets of epochs. UNAVAILABLE: it cannot be written.
Status write_epoch_file(const std::string& path, const v1::JobStates& states);

}  // namespace tutti
