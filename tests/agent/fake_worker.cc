// Replaces tutti-worker in the agent's tests: serves descriptor 3, welcomes trainers at once, and
// describes itself in the welcome. It exits when a trainer arrives if the job's name starts with
// "die", never reports if it starts with "mute", reports a pass that was changed if it starts with
// "forge", another job and user if it starts with "lie", and sends a flight recorder if it starts
// with "record", or something else in its place. In reports of jobs that start with "terminal" each
// text has what a terminal obeys, and lines of other formats. For jobs that start with "write" it
// writes to its standard error, as write_lines() says, and "flood" without end. Jobs that
// start with "again" have a next epoch with each trainer, and those before failed.
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "daemon/base/framing.h"
#include "daemon/session/session.h"
#include "daemon/trace/trace.h"
#include "proto/session.pb.h"

namespace {

using tutti::Fd;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "-" : value;
}

std::string oom_score_adjustment() {
  std::string score;
  std::ifstream("/proc/self/oom_score_adj") >> score;
  return score;
}

// Counts the inherited descriptors above the control socket.
int inherited() {
  DIR* directory = opendir("/proc/self/fd");
  int count = 0;
  while (const dirent* entry = readdir(directory)) {
    const int fd = std::atoi(entry->d_name);
    if (fd > 3 && fd != dirfd(directory)) ++count;
  }
  closedir(directory);
  return count;
}

// A recorder of rank 0 of 1, with one operation, in epoch 5.
Fd make_recorder() {
  using namespace tutti;
  Fd memory(open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (ftruncate(memory.get(), static_cast<off_t>(recorder_bytes(1))) != 0) std::abort();
  const auto write_at = [&](uint64_t offset, const auto& value) {
    if (pwrite(memory.get(), &value, sizeof(value), static_cast<off_t>(offset)) != sizeof(value))
      std::abort();
  };
  write_at(0, RecorderHeader{kRecorderMagic, kProtocolVersion, 5, 1, 1, 0, 0});
  write_at(kGroupsOffset, uint32_t{1});
  write_at(kGroupsOffset + offsetof(RecordedGroup, local_ranks), uint64_t{1});
  const trace::RecordFields fields = {0, 123, 492, 1, 0, 0};
  const uint64_t ring = rank_recorder_offset(0) + offsetof(RankRecorder, ring);
  write_at(ring, uint64_t{1});
  write_at(ring + offsetof(RecordRing, records),
           pack_checked_index(0, trace::checksum_of(0, fields)));
  write_at(ring + offsetof(RecordRing, records) + offsetof(Record, fields), fields);
  return memory;
}

Fd recorder_for(const std::string& job) {
  int ends[2];
  if (job == "record-program") return Fd(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  if (job == "record-garbage") return Fd(open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (job != "record-pipe") return make_recorder();
  if (pipe2(ends, O_CLOEXEC) != 0) std::abort();
  close(ends[1]);
  return Fd(ends[0]);
}

void forge_texts(tutti::v1::WorkerReport& report) {
  const std::string text = "x\"} 1\ntutti_jobs{host=\"a\"} 666\n\x1b[31m\xc2\x9b\xe2\x80\xae<b>";
  report.set_state("failed: " + text);
  report.set_strategy(text);
  report.set_gpu_link("host");
  report.set_gpu_link_why(text);
  report.mutable_departures()->set_epoch(1);
  report.mutable_departures()->mutable_cause()->set_code(14);
  report.mutable_departures()->mutable_cause()->set_message(text);
  report.mutable_departures()->mutable_cause()->set_culprit_host(text);
  tutti::v1::StrategyTime& time = *report.mutable_tuning()->add_times();
  time.set_bytes(1024);
  time.set_hosts(2);
  time.set_ranks(4);
  time.set_strategy(text);
  report.mutable_tuning()->add_links()->set_from(text);
  report.mutable_tuning()->mutable_links(0)->set_to(text + std::string(30'000, 'y'));
}

// As a user may who wants to be taken for the agent, empty its log, or give orders to a terminal.
void write_lines() {
  if (ftruncate(STDERR_FILENO, 0) == 0) std::abort();
  const std::string text =
      "2026-01-02T03:04:05.678 error worker[7] in words of its own\n"
      "2026-01-02T03:04:05.678 info tuttid[1] audit: root: stop: OK\n"
      "no level \x1b[2J\r2026-01-02T03:04:05.678 info tuttid[1] forged \xc2\x9b\n" +
      std::string(20'000, 'y') + "\nlast without an end";
  for (size_t at = 0; at < text.size();) {
    const ssize_t count = write(STDERR_FILENO, text.data() + at, text.size() - at);
    if (count > 0) at += static_cast<size_t>(count);
  }
}

// Until its output takes no more.
void flood() {
  const std::string lines(4'096, '\n');
  size_t written = 0;
  for (int full = 0; full < 3;) {
    pollfd room{STDERR_FILENO, POLLOUT, 0};
    const ssize_t count = write(STDERR_FILENO, lines.data(), lines.size());
    if (count < 0) full += poll(&room, 1, 10) == 0;
    if (count > 0 && (written += static_cast<size_t>(count)) > (64 << 20)) std::abort();
  }
}

struct FakeWorker {
  std::string job;
  int inherited_fds = 0;
  tutti::v1::WorkerReport report;
  std::vector<Fd> trainers;

  void welcome(const Fd& trainer) const {
    tutti::v1::Welcome welcome;
    welcome.set_message(
        "pid=" + std::to_string(getpid()) + " uid=" + std::to_string(getuid()) +
        " gid=" + std::to_string(getgid()) + " leads=" + std::to_string(getsid(0) == getpid()) +
        " inherited=" + std::to_string(inherited_fds) +
        " coordinator=" + variable("TUTTI_COORDINATOR") + " host=" + variable("TUTTI_HOST") +
        " data=" + variable("TUTTI_DATA_ADDRESS") + " notify=" + variable("NOTIFY_SOCKET") +
        " owner=" + variable("TUTTI_WORKER_UID") + " slice=" + variable("TUTTI_SLICE_BYTES") +
        " token=" + variable("TUTTI_TOKEN") + " secret=" + variable("CLOUD_SECRET") +
        " locale=" + variable("LC_TIME") +
        " no_new_privileges=" + std::to_string(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)) +
        " oom=" + oom_score_adjustment() + " ");
    const std::string frame = tutti::framed(welcome.SerializeAsString());
    (void)send(trainer.get(), frame.data(), frame.size(), MSG_NOSIGNAL);
  }

  void handle(int agent, tutti::Packet& packet) {
    tutti::v1::AgentToWorker message;
    if (!message.ParseFromString(packet.bytes)) std::abort();
    if (message.stop()) std::exit(0);
    if (message.report() && !job.starts_with("mute")) send_report(agent);
    if (!message.has_hand_over()) return;
    if (job.starts_with("die")) std::_Exit(3);
    *report.mutable_pass() = message.hand_over().pass();
    if (job.starts_with("forge")) report.mutable_pass()->set_uid(42);
    if (job.starts_with("lie")) {
      report.set_uid(0);
      report.set_job("another");
    }
    if (job.starts_with("terminal")) forge_texts(report);
    if (job.starts_with("again")) begin_epoch(agent);
    report.add_ranks()->set_rank(message.hand_over().hello().rank());
    report.mutable_ranks()->rbegin()->set_pid(message.hand_over().pid());
    report.set_handed_over(static_cast<uint64_t>(report.ranks_size()));
    trainers.push_back(std::move(packet.descriptors.at(0)));
    if (job.starts_with("write")) write_lines();
    if (job.starts_with("flood")) flood();
    if (job.starts_with("record")) send_report(agent);
    welcome(trainers.back());
  }

  void begin_epoch(int agent) {
    report.set_world_size(1);
    report.set_epoch(report.epoch() + 1);
    report.set_state("running");
    send_report(agent);
    report.set_state("failed: rank 3 died");
    send_report(agent);
  }

  void send_report(int agent) {
    if (job.starts_with("record") && report.has_pass()) {
      const Fd recorder = recorder_for(job);
      report.set_recorder_epoch(5);
      const int descriptor = recorder.get();
      (void)tutti::send_packet(agent, report.SerializeAsString(), {&descriptor, 1});
      report.clear_recorder_epoch();
      return;
    }
    (void)tutti::send_packet(agent, report.SerializeAsString(), {});
  }
};

}  // namespace

int main(int argc, char** argv) {
  alarm(300);  // Ends it if its test was killed.
  FakeWorker worker{.inherited_fds = inherited()};
  for (int i = 1; i < argc; ++i)
    if (std::strncmp(argv[i], "--job=", 6) == 0) worker.job = argv[i] + 6;
  worker.report.set_job(worker.job);
  worker.report.set_pid(static_cast<uint32_t>(getpid()));
  worker.report.set_uid(static_cast<uint32_t>(std::atoi(variable("TUTTI_WORKER_UID").c_str())));
  Fd agent;
  while (true) {
    pollfd watched[2] = {{3, POLLIN, 0}, {agent.get(), POLLIN, 0}};
    poll(watched, 2, -1);
    if (watched[0].revents != 0) agent.reset(accept4(3, nullptr, nullptr, SOCK_CLOEXEC));
    if (watched[1].revents == 0) continue;
    auto packet = tutti::receive_packet(agent.get());
    if (!packet.ok()) {
      agent.reset();
      if (worker.job.starts_with("write")) (void)!write(STDERR_FILENO, "\nbetween agents\n", 16);
    }
    if (packet.ok() && packet->has_value()) worker.handle(agent.get(), **packet);
  }
}
