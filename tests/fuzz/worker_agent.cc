// What an agent's socket brings a worker: packets of any bytes with any number of descriptors. Only
// a hand-over with its one descriptor counts as one, each report that is asked for is answered, and
// no descriptor stays open.
#include <unistd.h>

#include "daemon/worker/agent_channel.h"
#include "tests/fuzz/sockets.h"

namespace tutti {
namespace {

// What packets ask for.
struct Asked {
  size_t hand_overs = 0;
  size_t reports = 0;
  size_t stops = 0;
  size_t failed_gpus = 0;
  size_t coordinators = 0;
  bool operator==(const Asked&) const = default;
};

class Worker final : public AgentChannel::Events {
 public:
  void on_hand_over(const v1::AgentToWorker::HandOver& handed, Fd socket) override {
    ++asked.hand_overs;
    require(socket.valid(), "a trainer comes with its socket");
    (void)handed.ByteSizeLong();
  }
  v1::WorkerReport on_report() override {
    ++asked.reports;
    return {};
  }
  std::vector<AgentChannel::Recorder> recorders() const override { return {}; }
  void on_stop(const std::string& /*by*/) override { ++asked.stops; }
  void on_failed_gpus(const v1::AgentToWorker::FailedGpus& failed) override {
    ++asked.failed_gpus;
    (void)failed.ByteSizeLong();
  }
  void on_coordinator(const v1::AgentToWorker::Coordinator& coordinator) override {
    ++asked.coordinators;
    (void)coordinator.ByteSizeLong();
  }
  Asked asked;
};

// By proto/session.proto.
void expect(std::string_view bytes, size_t descriptors, Asked& asked) {
  v1::AgentToWorker message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
  switch (message.kind_case()) {
    case v1::AgentToWorker::kHandOver:
      asked.hand_overs += descriptors == 1 ? 1 : 0;
      break;
    case v1::AgentToWorker::kReport:
      asked.reports += message.report() ? 1 : 0;
      break;
    case v1::AgentToWorker::kStop:
      asked.stops += message.stop() ? 1 : 0;
      break;
    case v1::AgentToWorker::kFailedGpus:
      ++asked.failed_gpus;
      break;
    case v1::AgentToWorker::kCoordinator:
      ++asked.coordinators;
      break;
    default:
      break;
  }
}

// A listener that is nowhere any more, and one who had dialled it.
fuzz::SocketPair dialled() {
  const std::string path = "/tmp/tutti-fuzz-agent-" + std::to_string(getpid());
  Result<Fd> listener = listen_unix(path, SOCK_SEQPACKET, 0600);
  Result<Fd> agent = connect_unix(path, SOCK_SEQPACKET);
  unlink(path.c_str());
  require(listener.ok() && agent.ok(), "a machine has sockets");
  return {*std::move(listener), *std::move(agent)};
}

size_t answers(const Fd& socket) {
  size_t count = 0;
  for (char answer[1024]; recv(socket.get(), answer, sizeof(answer), 0) >= 0;) ++count;
  return count;
}

void talk(fuzz::Input& input) {
  fuzz::SocketPair sockets = dialled();
  Loop loop;
  Worker worker;
  AgentChannel channel(loop, std::move(sockets.ours), worker);
  require(channel.start().ok(), "a listener can be watched");
  Asked asked;
  size_t answered = 0;
  while (!input.at_end()) {
    const size_t descriptors = input.take<uint8_t>() % 4;
    const std::string_view bytes = input.take_text(input.take<uint8_t>());
    if (bytes.empty()) break;
    fuzz::send_with(sockets.theirs, bytes, descriptors);
    expect(bytes, descriptors, asked);
    for (int i = 0; i < 2; ++i) loop.run_once(Clock::now());
    answered += answers(sockets.theirs);
    require(worker.asked == asked, "what was asked for, and nothing else, is done");
    require(answered == asked.reports, "a report is an answer");
  }
  channel.close();
}

}  // namespace
}  // namespace tutti

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tutti::fuzz::without_leaks(data, size, tutti::talk);
  return 0;
}
