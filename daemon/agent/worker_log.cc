#include "daemon/agent/worker_log.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>

#include "daemon/base/foreign_text.h"
#include "daemon/base/log.h"

namespace tutti {
namespace {

constexpr size_t kBytesASecond = 256 << 10;
constexpr size_t kBytesOfALine = 256;  // That each counts for, beside its own.
constexpr size_t kLineBytesMax = 4'096;
constexpr int kLastReads = 16;
constexpr Millis kSecond{1'000};

// For both ways: a pipe that nobody can read ends who writes to it.
Fd open_pipe(const std::string& path) {
  return Fd(open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW));
}

}  // namespace

Result<Fd> WorkerLog::make(const std::string& path) {
  unlink(path.c_str());
  if (mkfifo(path.c_str(), 0600) != 0) return errno_status("cannot make " + path);
  Fd end = open_pipe(path);
  if (!end.valid()) return errno_status("cannot open " + path);
  return end;
}

WorkerLog::WorkerLog(Loop& loop, const std::string& path) : loop_(loop), pipe_(open_pipe(path)) {}

WorkerLog::~WorkerLog() {
  if (!pipe_.valid() || job_.empty()) return;
  loop_.cancel(timer_);
  loop_.unwatch(pipe_.get());
  for (int reads = 0; reads < kLastReads && take_bytes(); ++reads) take_lines();
  if (!received_.empty()) write_line(received_);
}

void WorkerLog::start(const std::string& job) {
  job_ = job;
  if (pipe_.valid()) watch();
}

void WorkerLog::watch() {
  timer_ = 0;
  (void)loop_.watch(pipe_.get(), EPOLLIN, [this](uint32_t) { read_some(); });
}

void WorkerLog::read_some() {
  if (Clock::now() >= second_ + kSecond) {
    second_ = Clock::now();
    taken_ = 0;
  }
  if (taken_ >= kBytesASecond) {  // A pipe that is full keeps the worker from writing more.
    loop_.unwatch(pipe_.get());
    timer_ = loop_.at(second_ + kSecond, [this] { watch(); });
    return;
  }
  if (take_bytes()) take_lines();
}

bool WorkerLog::take_bytes() {
  std::array<char, 4'096> bytes;
  const ssize_t count = read(pipe_.get(), bytes.data(), bytes.size());
  if (count <= 0) return false;
  received_.append(bytes.data(), static_cast<size_t>(count));
  taken_ += static_cast<size_t>(count);
  return true;
}

void WorkerLog::take_lines() {
  size_t begin = 0;
  for (size_t end = 0; (end = received_.find('\n', begin)) != std::string::npos; begin = end + 1)
    write_line(received_.substr(begin, end - begin));
  received_.erase(0, begin);
  if (received_.size() < kLineBytesMax) return;
  write_line(received_);
  received_.clear();
}

// A worker's own log has lines "TIME LEVEL worker[PID] TEXT".
void WorkerLog::write_line(const std::string& line) {
  taken_ += kBytesOfALine;
  if (line.empty()) return;
  const std::string clean = clean_text(line);
  const size_t level_at = clean.find(' ') + 1;
  const size_t level_end = std::min(clean.find(' ', level_at), clean.size());
  const auto level = spdlog::level::from_str(clean.substr(level_at, level_end - level_at));
  const bool has_level = level_at != 0 && level != spdlog::level::off;
  log_of_job(job_, has_level ? level : spdlog::level::err,
             has_level ? clean.substr(std::min(level_end + 1, clean.size())) : clean);
}

}  // namespace tutti
