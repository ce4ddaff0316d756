#include "daemon/launch/ranks.h"

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

constexpr Millis kGrace{2'000};  // To end by itself; then again, to heed SIGTERM.
// For ranks that left the job before the failed ones: they may be failing, too, and slow to end.
constexpr Millis kFirstGrace{10'000};
constexpr Millis kRecordRest{50};
constexpr size_t kListedMost = 16;
constexpr int kReadsMost =
    16;  // At a time: all that a pipe holds, but not all that will ever come.

// The Python package: of an installed prefix, or of the source tree this was built in.
std::string python_directory() {
  const fs::path bin = program_directory();
  for (const fs::path& path : {bin / TUTTI_PYTHON_FROM_BIN, fs::path(TUTTI_PYTHON_SOURCE)})
    if (fs::exists(path / "tutti" / "__init__.py")) return fs::weakly_canonical(path);
  return "";
}

std::string library_path() {
  for (const char* folder : {"../" TUTTI_LIBDIR, "../lib"}) {
    const fs::path path = program_directory() / folder / "libtutti.so";
    if (fs::exists(path)) return fs::weakly_canonical(path);
  }
  return "";
}

void set_where_found(Environment& environment, const std::string& name, const std::string& value) {
  if (!value.empty() && environment.get(name).empty()) environment.set(name, value);
}

// Standard input belongs to rank 0, unless it is a terminal: ranks are not its foreground.
int input_of(int rank, int nothing) { return rank == 0 && !isatty(0) ? -1 : nothing; }

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
  set_where_found(out, "TUTTI_LIBRARY", library_path());
  if (const std::string python = python_directory(); !python.empty()) {
    const std::string before = out.get("PYTHONPATH");
    out.set("PYTHONPATH", before.empty() ? python : python + ":" + before);
  }
  return out;
}

Ranks::Ranks(Loop& loop, ChildProcesses& nursery, const LocalMesh& mesh, RanksOptions options)
    : loop_(loop), children_(nursery), mesh_(mesh), options_(std::move(options)) {
  const int world_size = std::reduce(options_.per_host.begin(), options_.per_host.end());
  for (int rank = 0; rank < world_size; ++rank) ranks_.emplace_back(rank);
}

Ranks::~Ranks() {
  for (const Rank& rank : ranks_)
    if (rank.pipe.valid()) loop_.unwatch(rank.pipe.get());
}

Result<int> Ranks::run() {
  Status status = start_all();
  if (!status.ok()) {
    signal_all(SIGKILL);
    return status;
  }
  const auto is_undecided = [this] { return !failed_.empty() && failure_ == 0; };
  while (running_ > 0 || is_undecided()) loop_.run_once(Clock::now() + Millis(1'000));
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    read_output(static_cast<int>(rank));
    (void)print(ranks_[rank].labelled.finish());
  }
  return failure_;
}

Status Ranks::start_all() {
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

Status Ranks::start(const LocalMesh::Host& host, const RankPlace& place) {
  Rank& entry = ranks_[static_cast<size_t>(place.rank)];
  const Fd nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  SpawnOptions options{.command = options_.command, .network = host.network};
  options.environment = rank_environment(host, options_.job, place, mesh_.rendezvous());
  options.in = input_of(place.rank, nothing.get());
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

// Asked for labels, all that a rank writes goes through one pipe, in its order; else what it says
// on standard error, where there are others it could be taken for.
Status Ranks::connect_output(int rank, SpawnOptions& options, Fd& write_end) {
  if (!has_labels()) return {};
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

void Ranks::on_ended(int rank, int code) {
  Rank& entry = ranks_[static_cast<size_t>(rank)];
  --running_;
  read_output(rank);  // Its pipe stays: it may have left children that write there.
  if (ending_) return;
  entry.code = code;
  if (failure_ != 0) return;
  if (code != 0 && failed_.empty()) failed_at_ = Clock::now();
  if (code != 0) failed_.push_back(rank);
  if (!failed_.empty()) find_first_failure(false);
}

void Ranks::find_first_failure(bool now) {
  loop_.cancel(next_question_);
  if (failure_ != 0) return;
  std::vector<std::optional<int>> codes;
  for (const Rank& rank : ranks_) codes.push_back(rank.code);
  JobRecord record = mesh_.record_of(options_.job, ranks_.size());
  const bool tells = !record.gone.empty() || record.is_aborted;
  if (tells || record_.gone.empty()) record_ = std::move(record);  // Else its keeper has ended.
  now |= Clock::now() >= failed_at_ + kFirstGrace;
  if (const std::optional<int> rank = first_failure(codes, failed_, record_, now))
    return name_failed(*rank);
  next_question_ = loop_.at(Clock::now() + kRecordRest, [this] { find_first_failure(false); });
}

void Ranks::name_failed(int rank) {
  const Rank& entry = ranks_[static_cast<size_t>(rank)];
  failure_ = *entry.code;
  std::fprintf(stderr, "tutti: rank %d (host %s, pid %d) %s\n", rank, entry.host.c_str(), entry.pid,
               describe_exit(failure_).c_str());
  if (!options_.keep_going) loop_.at(failed_at_ + kGrace, [this] { end_others(); });
}

void Ranks::end_others() {
  ending_ = true;
  if (running_ == 0) return;
  const std::string who = running_ == 1 ? "other rank" : std::to_string(running_) + " other ranks";
  std::fprintf(stderr, "tutti: ending the %s still running: %s\n", who.c_str(),
               running_ranks().c_str());
  signal_all(SIGTERM);
  loop_.at(Clock::now() + kGrace, [this] { signal_all(SIGKILL); });
}

std::string Ranks::running_ranks() const {
  std::string out;
  size_t listed = 0;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (!children_.runs(ranks_[rank].pid)) continue;
    if (++listed > kListedMost) return out + ", ...";
    out += (out.empty() ? "" : ", ") + std::to_string(rank);
  }
  return out;
}

void Ranks::interrupt(int signal) {
  if (!failed_.empty()) find_first_failure(true);
  ending_ = true;
  if (failure_ == 0) failure_ = 128 + signal;
  signal_all(signal);
  loop_.at(Clock::now() + kGrace, [this] { signal_all(SIGKILL); });
}

void Ranks::signal_all(int signal) {
  for (const Rank& rank : ranks_)
    if (rank.pid != 0) children_.signal(rank.pid, signal);
}

void Ranks::read_output(int rank) {
  Rank& entry = ranks_[static_cast<size_t>(rank)];
  if (!entry.pipe.valid()) return;
  std::array<char, 65536> bytes{};
  ssize_t got = 1;
  for (int reads = 0; reads < kReadsMost && got > 0; ++reads) {
    got = read(entry.pipe.get(), bytes.data(), bytes.size());
    if (got > 0 && !print(entry.labelled.add({bytes.data(), static_cast<size_t>(got)}))) got = 0;
  }
  if (got != 0) return;
  loop_.unwatch(entry.pipe.get());
  entry.pipe.reset();
}

bool Ranks::print(const std::string& lines) const {
  FILE* const to = options_.label ? stdout : stderr;
  errno = 0;
  std::fwrite(lines.data(), 1, lines.size(), to);
  std::fflush(to);
  return errno != EPIPE;
}

}  // namespace tutti
