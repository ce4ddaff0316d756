#include "daemon/launch/rank_processes.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <numeric>

namespace tutti {
namespace {

namespace fs = std::filesystem;

constexpr Millis kGrace{2'000};  // To end unasked, and then again after SIGTERM.
// For ranks that left the job before the failed ones: they may be failing, too, and slow to end.
constexpr Millis kFirstGrace{10'000};
constexpr Millis kRecordInterval{50};
constexpr size_t kListedMax = 16;
constexpr int kReadsMax = 16;  // In a row, before other events get their turn.

// The Python package of the installed prefix, or of the source tree this was built in.
std::string python_directory() {
  for (const char* folder : {TUTTI_PYTHON_INSTALLED, TUTTI_PYTHON_SOURCE}) {
    const fs::path path = program_directory() / folder;
    if (fs::exists(path / "tutti" / "__init__.py")) return fs::weakly_canonical(path);
  }
  return "";
}

std::string library_path() {
  for (const char* folder : {"../" TUTTI_LIBDIR, "../lib"}) {
    const fs::path path = program_directory() / folder / "libtutti.so";
    if (fs::exists(path)) return fs::weakly_canonical(path);
  }
  return "";
}

// Rank 0 inherits standard input, unless it is a terminal: the ranks' process groups are not in its
// foreground.
int input_of(int rank, int null) { return rank == 0 && !isatty(0) ? -1 : null; }

}  // namespace

Environment rank_environment(const LocalMesh::Host& host, const std::string& job,
                             const RankPlace& place, const std::string& rendezvous) {
  Environment out;
  for (const char* prefix : {"TUTTI_", ""}) {
    out.set(std::string(prefix) + "RANK", std::to_string(place.rank));
    out.set(std::string(prefix) + "WORLD_SIZE", std::to_string(place.world_size));
  }
  out.set("LOCAL_RANK", std::to_string(place.local_rank));
  out.set("LOCAL_WORLD_SIZE", std::to_string(place.local_world_size));
  const size_t colon = rendezvous.rfind(':');
  out.set("MASTER_ADDR", rendezvous.substr(0, colon));
  out.set("MASTER_PORT", rendezvous.substr(colon + 1));
  out.set("TUTTI_SOCKET", host.socket);
  out.set("TUTTI_JOB", job);
  out.set("TUTTI_HOST", host.name);
  out.set("TUTTI_ADDRESS", host.address);
  out.set_default("TUTTI_LIBRARY", library_path());
  if (const std::string python = python_directory(); !python.empty()) {
    const std::string before = out.get("PYTHONPATH");
    out.set("PYTHONPATH", before.empty() ? python : python + ":" + before);
  }
  return out;
}

RankProcesses::RankProcesses(Loop& loop, ChildProcesses& children, const LocalMesh& mesh,
                             RankOptions options)
    : loop_(loop), children_(children), mesh_(mesh), options_(std::move(options)) {
  const int world_size = std::reduce(options_.per_host.begin(), options_.per_host.end());
  for (int rank = 0; rank < world_size; ++rank) ranks_.emplace_back(rank);
}

RankProcesses::~RankProcesses() {
  for (const Rank& rank : ranks_)
    if (rank.pipe.valid()) loop_.unwatch(rank.pipe.get());
}

Result<int> RankProcesses::run() {
  Status status = start_all();
  if (!status.ok()) {
    signal_all(SIGKILL);
    return status;
  }
  const auto is_undecided = [this] { return !failed_.empty() && failure_ == 0; };
  while (running_ > 0 || is_undecided()) loop_.run_once(Clock::now() + Millis(1'000));
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    read_output(static_cast<int>(rank));
    (void)print(ranks_[rank].prefixer.finish());
  }
  if (!ending_) warnings_ = mesh_.log_tails(true);
  return failure_;
}

Status RankProcesses::start_all() {
  RankPlace place{.world_size = static_cast<int>(ranks_.size())};
  for (size_t h = 0; h < options_.per_host.size(); ++h) {
    place.local_world_size = options_.per_host[h];
    for (place.local_rank = 0; place.local_rank < place.local_world_size; ++place.local_rank) {
      Status status = start(mesh_.hosts()[h], place);
      if (!status.ok()) return status;
      ++place.rank;
    }
  }
  return {};
}

Status RankProcesses::start(const LocalMesh::Host& host, const RankPlace& place) {
  Rank& entry = ranks_[static_cast<size_t>(place.rank)];
  const Fd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  SpawnOptions options{.command = options_.command, .netns = host.netns};
  options.environment = rank_environment(host, options_.job, place, mesh_.rendezvous());
  if (!options_.gpus.empty())
    options.environment.set("CUDA_VISIBLE_DEVICES", options_.gpus[static_cast<size_t>(place.rank)]);
  options.in = input_of(place.rank, null.get());
  Fd write_end;
  if (Status status = connect_output(place.rank, options, write_end); !status.ok()) return status;
  const Result<pid_t> pid =
      children_.spawn(options, [this, rank = place.rank](int code) { on_ended(rank, code); });
  if (!pid.ok()) return pid.status();
  entry.pid = *pid;
  entry.host = host.name;
  ++running_;
  return {};
}

// With `label` all output of a rank goes through one pipe, which keeps its order; else only
// standard error does, where there are several ranks.
Status RankProcesses::connect_output(int rank, SpawnOptions& options, Fd& write_end) {
  if (!has_prefixes()) return {};
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return errno_status("cannot make a pipe");
  Fd& pipe = ranks_[static_cast<size_t>(rank)].pipe;
  pipe.reset(ends[0]);
  write_end.reset(ends[1]);
  options.err = write_end.get();
  if (options_.label) options.out = write_end.get();
  fcntl(pipe.get(), F_SETFL, O_NONBLOCK);
  return loop_.watch(pipe.get(), EPOLLIN, [this, rank](uint32_t) { read_output(rank); });
}

void RankProcesses::on_ended(int rank, int code) {
  Rank& entry = ranks_[static_cast<size_t>(rank)];
  --running_;
  read_output(rank);  // Its pipe stays open: its children may still write there.
  if (ending_) return;
  entry.code = code;
  if (failure_ != 0) return;
  if (code != 0 && failed_.empty()) failed_at_ = Clock::now();
  if (code != 0) failed_.push_back(rank);
  if (!failed_.empty()) determine_first_failure(false);
}

void RankProcesses::determine_first_failure(bool must_decide) {
  loop_.cancel(record_timer_);
  if (failure_ != 0) return;
  std::vector<std::optional<int>> codes;
  for (const Rank& rank : ranks_) codes.push_back(rank.code);
  JobRecord record = mesh_.record_of(options_.job, ranks_.size());
  const bool has_news = !record.departed.empty() || record.is_aborted;
  // A record that became empty is that of a worker that has ended: keep the last one.
  if (has_news || record_.departed.empty()) record_ = std::move(record);
  must_decide |= Clock::now() >= failed_at_ + kFirstGrace;
  if (const std::optional<int> rank = first_failure(codes, failed_, record_, must_decide))
    return report_first_failure(*rank);
  record_timer_ =
      loop_.at(Clock::now() + kRecordInterval, [this] { determine_first_failure(false); });
}

void RankProcesses::report_first_failure(int rank) {
  failure_ = *ranks_[static_cast<size_t>(rank)].code;
  culprit_ = rank;
  if (!options_.keep_going)
    loop_.at(failed_at_ + kGrace, [this] { terminate_others(); });
  else if (running_ > 0)
    std::fprintf(stderr, "tutti: the others go on after %s\n", culprit().c_str());
}

std::string RankProcesses::culprit() const {
  if (culprit_ < 0) return "";
  const Rank& entry = ranks_[static_cast<size_t>(culprit_)];
  return "rank " + std::to_string(culprit_) + " (host " + entry.host + ", pid " +
         std::to_string(entry.pid) + ") " + describe_exit(failure_);
}

void RankProcesses::terminate_others() {
  if (running_ == 0) return;
  warnings_ = mesh_.log_tails(true);
  ending_ = true;
  const std::string who = running_ == 1 ? "other rank" : std::to_string(running_) + " other ranks";
  std::fprintf(stderr, "tutti: %s; ending the %s still running: %s\n", culprit().c_str(),
               who.c_str(), running_ranks().c_str());
  signal_all(SIGTERM);
  loop_.at(Clock::now() + kGrace, [this] { signal_all(SIGKILL); });
}

std::string RankProcesses::running_ranks() const {
  std::string out;
  size_t listed = 0;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (!children_.is_running(ranks_[rank].pid)) continue;
    if (++listed > kListedMax) return out + ", ...";
    out += (out.empty() ? "" : ", ") + std::to_string(rank);
  }
  return out;
}

void RankProcesses::interrupt(int signal) {
  if (!failed_.empty()) determine_first_failure(true);
  ending_ = true;
  if (failure_ == 0) failure_ = 128 + signal;
  signal_all(signal);
  loop_.at(Clock::now() + kGrace, [this] { signal_all(SIGKILL); });
}

void RankProcesses::signal_all(int signal) {
  for (const Rank& rank : ranks_)
    if (rank.pid != 0) children_.signal(rank.pid, signal);
}

void RankProcesses::read_output(int rank) {
  Rank& entry = ranks_[static_cast<size_t>(rank)];
  if (!entry.pipe.valid()) return;
  std::array<char, 65536> bytes{};
  ssize_t got = 1;
  for (int reads = 0; reads < kReadsMax && got > 0; ++reads) {
    got = read(entry.pipe.get(), bytes.data(), bytes.size());
    if (got > 0 && !print(entry.prefixer.add({bytes.data(), static_cast<size_t>(got)}))) got = 0;
  }
  if (got != 0) return;
  loop_.unwatch(entry.pipe.get());
  entry.pipe.reset();
}

bool RankProcesses::print(const std::string& lines) const {
  FILE* const to = options_.label ? stdout : stderr;
  errno = 0;
  std::fwrite(lines.data(), 1, lines.size(), to);
  std::fflush(to);
  return errno != EPIPE;
}

}  // namespace tutti
