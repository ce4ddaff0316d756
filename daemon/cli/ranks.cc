#include "daemon/cli/ranks.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <numeric>

namespace tutti {
namespace {

namespace fs = std::filesystem;

constexpr Millis kGrace{2'000};  // To end by itself; then again, to heed SIGTERM.

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

Environment rank_environment(const LocalMesh::Host& host, const RanksOptions& options, int rank,
                             int local_rank, int local_world_size, int world_size) {
  Environment out;
  for (const char* prefix : {"TUTTI_", ""}) {
    out.set(std::string(prefix) + "RANK", std::to_string(rank));
    out.set(std::string(prefix) + "WORLD_SIZE", std::to_string(world_size));
  }
  out.set("LOCAL_RANK", std::to_string(local_rank));
  out.set("LOCAL_WORLD_SIZE", std::to_string(local_world_size));
  out.set("TUTTI_SOCKET", host.socket);
  out.set("TUTTI_JOB", options.job);
  out.set("TUTTI_HOST", host.name);
  out.set("TUTTI_ADDRESS", host.address);
  set_where_found(out, "TUTTI_LIBRARY", library_path());
  if (const std::string python = python_directory(); !python.empty()) {
    const std::string before = out.get("PYTHONPATH");
    out.set("PYTHONPATH", before.empty() ? python : python + ":" + before);
  }
  return out;
}

Ranks::Ranks(Loop& loop, Nursery& nursery, const LocalMesh& mesh, RanksOptions options)
    : loop_(loop), nursery_(nursery), mesh_(mesh), options_(std::move(options)) {
  const auto world_size = std::reduce(options_.per_host.begin(), options_.per_host.end());
  ranks_.resize(static_cast<size_t>(world_size));
}

Result<int> Ranks::run() {
  Status status = start_all();
  if (!status.ok()) {
    signal_all(SIGKILL);
    return status;
  }
  while (running_ > 0) loop_.turn(Clock::now() + Millis(1'000));
  for (size_t rank = 0; rank < ranks_.size(); ++rank) print_lines(static_cast<int>(rank), true);
  return failure_;
}

Status Ranks::start_all() {
  int rank = 0;
  for (size_t h = 0; h < options_.per_host.size(); ++h)
    for (int local = 0; local < options_.per_host[h]; ++local, ++rank) {
      Status status = start(rank, mesh_.hosts()[h], local, options_.per_host[h]);
      if (!status.ok()) return status;
    }
  return {};
}

Status Ranks::start(int rank, const LocalMesh::Host& host, int local_rank, int local_world_size) {
  Rank& entry = ranks_[static_cast<size_t>(rank)];
  const Fd nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  SpawnOptions options{.command = options_.command, .network = host.network};
  options.environment = rank_environment(host, options_, rank, local_rank, local_world_size,
                                         static_cast<int>(ranks_.size()));
  options.in = input_of(rank, nothing.get());
  Fd write_end;
  if (options_.label) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) return errno_status("cannot make a pipe");
    entry.output.reset(ends[0]);
    write_end.reset(ends[1]);
    options.out = options.err = write_end.get();
    fcntl(entry.output.get(), F_SETFL, O_NONBLOCK);
    Status status =
        loop_.watch(entry.output.get(), EPOLLIN, [this, rank](uint32_t) { read_output(rank); });
    if (!status.ok()) return status;
  }
  const Result<pid_t> pid =
      nursery_.spawn(options, [this, rank](int code) { on_ended(rank, code); });
  if (!pid.ok()) return pid.status();
  entry.pid = *pid;
  entry.host = host.name;
  ++running_;
  return {};
}

void Ranks::on_ended(int rank, int code) {
  Rank& entry = ranks_[static_cast<size_t>(rank)];
  --running_;
  if (entry.output.valid()) {
    read_output(rank);
    loop_.unwatch(entry.output.get());
    entry.output.reset();
  }
  if (code == 0 || failure_ != 0 || ending_) return;
  failure_ = code;
  std::fprintf(stderr, "tutti: rank %d (host %s, pid %d) %s\n", rank, entry.host.c_str(), entry.pid,
               describe_exit(code).c_str());
  if (!options_.keep_going) loop_.at(Clock::now() + kGrace, [this] { end_others(); });
}

void Ranks::end_others() {
  ending_ = true;
  if (running_ == 0) return;
  std::fprintf(stderr, "tutti: ending the %zu other ranks still running\n", running_);
  signal_all(SIGTERM);
  loop_.at(Clock::now() + kGrace, [this] { signal_all(SIGKILL); });
}

void Ranks::interrupt(int signal) {
  ending_ = true;
  if (failure_ == 0) failure_ = 128 + signal;
  signal_all(signal);
  loop_.at(Clock::now() + kGrace, [this] { signal_all(SIGKILL); });
}

void Ranks::signal_all(int signal) {
  for (const Rank& rank : ranks_)
    if (rank.pid != 0) nursery_.signal(rank.pid, signal);
}

void Ranks::read_output(int rank) {
  Rank& entry = ranks_[static_cast<size_t>(rank)];
  std::array<char, 65536> bytes{};
  ssize_t got = 0;
  while ((got = read(entry.output.get(), bytes.data(), bytes.size())) > 0)
    entry.pending.append(bytes.data(), static_cast<size_t>(got));
  if (got == 0) loop_.unwatch(entry.output.get());
  print_lines(rank, false);
}

void Ranks::print_lines(int rank, bool all) {
  std::string& pending = ranks_[static_cast<size_t>(rank)].pending;
  if (all && !pending.empty()) pending += '\n';
  std::string out;
  for (size_t end = 0; (end = pending.find('\n')) != std::string::npos; pending.erase(0, end + 1))
    out += "[" + std::to_string(rank) + "] " + pending.substr(0, end + 1);
  std::fwrite(out.data(), 1, out.size(), stdout);
  std::fflush(stdout);
}

}  // namespace tutti
