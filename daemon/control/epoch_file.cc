#include "daemon/control/epoch_file.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>

#include "daemon/base/fd.h"
#include "daemon/base/foreign_text.h"
#include "daemon/base/hash.h"
#include "daemon/membership/values.h"

namespace tutti {
namespace {

constexpr std::string_view kHeader = "tutti epochs 1 ";
constexpr size_t kBytesMax = size_t{256} << 20;

// The hash finds damage; nobody but this user could forge it.
std::string header_of(const std::string& bytes) {
  return std::string(kHeader) + std::to_string(bytes.size()) + " " + std::to_string(fnv1a(bytes)) +
         "\n";
}

Status unusable(const std::string& path, const std::string& why) {
  return failed_precondition(path + " " + why + ", so epochs and owners of jobs are forgotten");
}

Status check_file(int file, const std::string& path) {
  struct stat info {};
  if (fstat(file, &info) != 0) return errno_status("cannot look at " + path);
  if (!S_ISREG(info.st_mode)) return unusable(path, "is not a file");
  if (info.st_uid != geteuid())
    return unusable(path, "belongs to user " + std::to_string(info.st_uid));
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) return unusable(path, "is writable by others");
  return {};
}

Result<std::string> read_all(int file, const std::string& path) {
  std::string bytes;
  std::string buffer(size_t{64} << 10, '\0');
  for (;;) {
    const ssize_t got = read(file, buffer.data(), buffer.size());
    if (got < 0) return errno_status("cannot read " + path);
    if (got == 0) return bytes;
    bytes.append(buffer, 0, static_cast<size_t>(got));
    if (bytes.size() > kBytesMax) return unusable(path, "is too long");
  }
}

Status write_all(int file, const std::string& bytes, const std::string& path) {
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t wrote = write(file, bytes.data() + at, bytes.size() - at);
    if (wrote <= 0) return errno_status("cannot write " + path);
    at += static_cast<size_t>(wrote);
  }
  return {};
}

}  // namespace

Result<v1::JobStates> read_epoch_file(const std::string& path) {
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file.valid() && errno == ENOENT) return v1::JobStates();
  if (!file.valid()) return errno_status("cannot open " + path);
  if (Status safe = check_file(file.get(), path); !safe.ok()) return safe;
  const Result<std::string> text = read_all(file.get(), path);
  if (!text.ok()) return text.status();
  const size_t line = text->find('\n');
  const std::string bytes = line == std::string::npos ? "" : text->substr(line + 1);
  v1::JobStates states;
  if (line == std::string::npos || text->substr(0, line + 1) != header_of(bytes) ||
      !states.ParseFromString(bytes))
    return unusable(path, "is damaged");
  clean_texts(states);
  return states;
}

Status write_epoch_file(const std::string& path, const v1::JobStates& states) {
  const std::string made = path + ".new";
  unlink(made.c_str());
  const Fd file(open(made.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.valid()) return errno_status("cannot write " + made);
  const std::string bytes = states.SerializeAsString();
  Status written = write_all(file.get(), header_of(bytes) + bytes, made);
  if (written.ok() && rename(made.c_str(), path.c_str()) != 0)
    written = errno_status("cannot rename " + made);
  return written;
}

std::vector<v1::JobState> EpochFile::load() {
  states_.Clear();
  if (path_.empty()) return {};
  Result<v1::JobStates> states = read_epoch_file(path_);
  if (states.ok())
    states_ = *std::move(states);
  else
    spdlog::warn("{}", states.status().message());
  return {states_.jobs().begin(), states_.jobs().end()};
}

bool EpochFile::save(const std::vector<v1::JobState>& states) {
  if (path_.empty()) return true;
  for (const v1::JobState& state : states) replace(state);
  const Status written = write_epoch_file(path_, states_);
  if (!written.ok() && !fails_)
    spdlog::error("epochs are not remembered across a restart: {}", written.message());
  fails_ = !written.ok();
  return true;
}

void EpochFile::replace(const v1::JobState& state) {
  auto& jobs = *states_.mutable_jobs();
  const auto known = std::ranges::find_if(jobs, [&](const v1::JobState& job) {
    return job.job() == state.job() && is_owner(job.owner(), state.owner());
  });
  if (known != jobs.end()) jobs.erase(known);
  if (state.epoch() != 0) *jobs.Add() = state;
}

}  // namespace tutti
