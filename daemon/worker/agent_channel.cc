#include "daemon/worker/agent_channel.h"

#include <spdlog/spdlog.h>
#include <sys/socket.h>

namespace tutti {

AgentChannel::AgentChannel(Loop& loop, Fd listener, Events& events)
    : loop_(loop), listener_(std::move(listener)), events_(events) {}

AgentChannel::~AgentChannel() {
  drop_agent();
  if (listener_.valid()) loop_.unwatch(listener_.get());
}

Status AgentChannel::start() {
  return loop_.watch(listener_.get(), EPOLLIN, [this](uint32_t) { accept_agent(); });
}

void AgentChannel::accept_agent() {
  Fd agent(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!agent.valid()) return;
  read_packets();  // The last agent may have handed over a trainer before it exited.
  drop_agent();
  agent_ = std::move(agent);
  sent_.clear();
  const Status watched = loop_.watch(agent_.get(), EPOLLIN, [this](uint32_t) { read_packets(); });
  if (!watched.ok()) drop_agent();
}

void AgentChannel::drop_agent() {
  if (!agent_.valid()) return;
  loop_.unwatch(agent_.get());
  agent_.reset();
}

void AgentChannel::read_packets() {
  while (agent_.valid()) {
    Result<std::optional<Packet>> packet = receive_packet(agent_.get());
    if (!packet.ok()) return drop_agent();
    if (!packet->has_value()) return;
    handle(std::move(**packet));
  }
}

void AgentChannel::handle(Packet packet) {
  v1::AgentToWorker message;
  if (!message.ParseFromString(packet.bytes)) {
    spdlog::error("the agent sent a message that cannot be read");
    return;
  }
  if (message.has_hand_over() && packet.descriptors.size() == 1)
    events_.on_hand_over(message.hand_over(), std::move(packet.descriptors[0]));
  else if (message.report())
    send_report();
  else if (message.stop() || !message.stopped_by().empty())
    events_.on_stop(message.stopped_by());
  else if (message.has_failed_gpus())
    events_.on_failed_gpus(message.failed_gpus());
  else if (message.has_coordinator())
    events_.on_coordinator(message.coordinator());
}

// A recorder comes with a report of its own, and the report alone where there is none to send.
void AgentChannel::send_report() {
  if (!agent_.valid()) return;
  v1::WorkerReport report = events_.on_report();
  bool is_sent = false;
  for (const Recorder& recorder : events_.recorders()) {
    if (sent_.contains(recorder.epoch)) continue;
    report.set_recorder_epoch(recorder.epoch);
    is_sent = send_packet(agent_.get(), report.SerializeAsString(), {&recorder.descriptor, 1}).ok();
    if (is_sent) sent_.insert(recorder.epoch);
  }
  report.clear_recorder_epoch();
  if (!is_sent) (void)send_packet(agent_.get(), report.SerializeAsString(), {});
}

void AgentChannel::close() {
  loop_.unwatch(listener_.get());
  listener_.reset();
  if (!agent_.valid()) return;
  shutdown(agent_.get(), SHUT_RD);
  read_packets();
}

}  // namespace tutti
