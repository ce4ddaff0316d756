// Tutti, through its C ABI, under `tutti run`: tensors in memory shared with the daemon, or
// ordinary ones (--staged).
#include <dirent.h>
#include <unistd.h>

#include <ctime>
#include <fstream>

#include "client/tutti.h"
#include "tests/bench/drivers/race.h"

namespace tutti::race {
namespace {

void check(tutti_code code) {
  if (code != TUTTI_OK) fail(tutti_last_error()->message);
}

struct Process {
  pid_t pid;
  pid_t parent;
  std::string name;
};

// Field 2 of /proc/PID/stat is the name, in brackets; field 4 the parent.
Process read_process(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::string line;
  std::getline(file, line);
  const size_t open = line.find('(');
  const size_t close = line.rfind(')');
  if (open == std::string::npos || close == std::string::npos) return {};
  char state = 0;
  pid_t parent = 0;
  if (std::sscanf(line.c_str() + close + 1, " %c %d", &state, &parent) != 2) return {};
  return {std::stoi(pid), parent, line.substr(open + 1, close - open - 1)};
}

std::vector<Process> children_of(const std::vector<pid_t>& parents, const std::string& name) {
  std::vector<Process> found;
  DIR* folder = opendir("/proc");
  while (const dirent* entry = folder == nullptr ? nullptr : readdir(folder)) {
    const std::string pid = entry->d_name;
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    const Process process = read_process(pid);
    for (const pid_t parent : parents)
      if (process.parent == parent && process.name == name) found.push_back(process);
  }
  if (folder != nullptr) closedir(folder);
  return found;
}

// The agents that `tutti run`, this rank's parent, started, and their workers.
std::vector<pid_t> find_daemons() {
  std::vector<pid_t> daemons;
  for (const Process& agent : children_of({getppid()}, "tuttid")) daemons.push_back(agent.pid);
  if (daemons.empty()) return {};
  for (const Process& worker : children_of(daemons, "tutti-worker")) daemons.push_back(worker.pid);
  return daemons;
}

double cpu_s_of(pid_t pid) {
  clockid_t clock = 0;
  timespec used{};
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &used) != 0)
    fail("a daemon has ended");
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9;
}

class Tutti : public Contestant {
 public:
  explicit Tutti(bool staged) : staged_(staged) {
    check(tutti_join(nullptr, &group_));
    if (rank() == 0) daemons_ = find_daemons();
    if (rank() == 0 && daemons_.empty()) fail("no daemons found: run this under `tutti run`");
  }
  ~Tutti() override { tutti_group_free(group_); }

  int rank() const override { return tutti_rank(group_); }
  int world_size() const override { return tutti_world_size(group_); }

  float* allocate(size_t bytes) override {
    if (staged_) return Contestant::allocate(bytes);
    auto* memory = static_cast<float*>(tutti_alloc(group_, bytes));
    if (memory == nullptr) fail(tutti_last_error()->message);
    return memory;
  }

  void run(Collective collective, float* in, float* out, size_t count) override {
    switch (collective) {
      case Collective::all_reduce:
        return check(
            tutti_all_reduce(group_, in, out, count, TUTTI_F32, TUTTI_SUM, nullptr, nullptr));
      case Collective::reduce:
        return check(
            tutti_reduce(group_, in, out, count, TUTTI_F32, TUTTI_SUM, kRoot, nullptr, nullptr));
      case Collective::broadcast:
        return check(tutti_broadcast(group_, out, count, TUTTI_F32, kRoot, nullptr, nullptr));
      case Collective::all_gather:
        return check(tutti_all_gather(group_, in, out, count, TUTTI_F32, nullptr, nullptr));
      case Collective::reduce_scatter:
        return check(
            tutti_reduce_scatter(group_, in, out, count, TUTTI_F32, TUTTI_SUM, nullptr, nullptr));
      case Collective::stream:
        fail("Tutti is not measured so");
    }
  }

  double helpers_cpu_s() const override {
    double seconds = 0;
    for (const pid_t pid : daemons_) seconds += cpu_s_of(pid);
    return seconds;
  }

 private:
  bool staged_;
  tutti_group* group_ = nullptr;
  std::vector<pid_t> daemons_;
};

}  // namespace
}  // namespace tutti::race

int main(int argc, char** argv) {
  const tutti::race::Arguments arguments(argc, argv);
  tutti::race::Tutti tutti(arguments.has("staged"));
  return run_race(tutti, arguments.options());
}
