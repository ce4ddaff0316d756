#include "daemon/group/data_path.h"

#include "daemon/group/control.h"
#include "daemon/group/failures.h"

namespace tutti {
namespace {

constexpr Millis kFullLinkRetry{1};

uint64_t wire_bytes(const Frame& frame) { return frame.payload.bytes() + sizeof(FrameHeader); }

}  // namespace

DataPath::DataPath(Loop& loop, Engine& engine, Links& links, const Follower& follower,
                   const Roster& roster, const std::vector<Host>& hosts, uint64_t early_bytes)
    : loop_(loop),
      engine_(engine),
      links_(links),
      follower_(follower),
      roster_(roster),
      hosts_(hosts),
      early_bytes_(early_bytes),
      early_(hosts.size(), early_bytes),
      rates_(hosts.size()) {}

// ---- Out ----

Status DataPath::send(const OpId& id, int place, Outgoing frame) {
  const EpochOp operation = id.in_epoch();
  const Communicator& group = *follower_.find(id.group);
  const int host = group.hosts()[static_cast<size_t>(place)];
  const uint64_t bytes = frame.bytes.size() + sizeof(FrameHeader);
  const EarlyBudget::Admission admission = early_.admit(host, operation, bytes);
  if (admission == EarlyBudget::Admission::wait_and_ask) send_message(host, WantStarted{operation});
  if (admission != EarlyBudget::Admission::granted)
    return resource_exhausted("early_bytes is used up: a host has not started the operation");
  Status status = links_.send_data(host, std::move(frame));
  if (status.ok()) return status;
  early_.refund(host, operation, bytes);
  if (status.code() == Code::resource_exhausted) return status;
  return unavailable(failures::lost(hosts_[static_cast<size_t>(host)], status).message(),
                     {group.topology()[static_cast<size_t>(place)].front(), name_of(host)});
}

// Uses the data link, because followers have no control link with each other. Retries if the link
// is full; a broken link is reported by on_lost().
void DataPath::send_message(int host, const Message& message) {
  v1::ControlBatch batch;
  *batch.add_controls() = to_control(message);
  const Status sent = links_.send_data(host, control_frame(roster_.epoch, batch));
  if (sent.code() != Code::resource_exhausted) return;
  loop_.at(Clock::now() + kFullLinkRetry, lifetime_.guard([this, host, message] {
    if (follower_.cause().ok()) send_message(host, message);
  }));
}

void DataPath::notify_waiters(const EpochOp& op) {
  for (const int host : early_.take_waiters(op)) send_message(host, Started{op});
}

void DataPath::on_cancelled(const EpochOp& op) {
  notify_waiters(op);
  early_.on_ended(op);
}

Status DataPath::on_message(int host, const WantStarted& want) {
  if (early_.size() > kFailuresMax) return data_loss("too many open WantStarted requests");
  early_.add_waiter(host, want.op);
  if (accepts_data(follower_, want.op)) notify_waiters(want.op);
  return {};
}

Status DataPath::on_message(int host, const Started& started) {
  if (follower_.is_running(started.op)) early_.on_peer_started(host, started.op);
  return {};
}

void DataPath::retry_sends() {
  if (early_.take_unblocked()) engine_.retry_sends();
}

// ---- In ----

// The engine relies on headers that name the sender and hosts of the group.
Status DataPath::check(int host, const FrameHeader& header) const {
  const Communicator* const group = follower_.find(header.group);
  if (header.epoch != roster_.epoch || group == nullptr)
    return data_loss("a frame of another epoch or group");
  const std::vector<int>& hosts = group->hosts();
  if (header.from >= hosts.size() || hosts[header.from] != host)
    return data_loss("a frame that says it is from another host");
  return {};
}

Status DataPath::on_frame(int host, Frame frame) {
  const EpochOp op{frame.header.group, frame.header.op_seq};
  if (frame.header.epoch == roster_.epoch && follower_.find(op.group) == nullptr)
    return keep(host, std::move(frame));
  if (Status good = check(host, frame.header); !good.ok()) return good;
  if (follower_.is_over(op)) return {};
  rates_.frame(host, op_id(op), frame.payload.bytes(), Clock::now());
  early_.on_peer_started(host, op);
  return engine_.on_frame(std::move(frame));
}

// Keeps at most what the budgets of all other hosts allow them to send.
Status DataPath::keep(int host, Frame frame) {
  unknown_bytes_ += wire_bytes(frame);
  if (unknown_bytes_ > early_bytes_ * hosts_.size())
    return data_loss("too many frames of groups that nobody here has made");
  unknown_[frame.header.group].emplace_back(host, std::move(frame));
  return {};
}

Status DataPath::on_group_made(uint32_t group) {
  auto kept = unknown_.extract(group);
  if (kept.empty()) return {};
  for (auto& [host, frame] : kept.mapped()) {
    unknown_bytes_ -= wire_bytes(frame);
    if (const Status status = on_frame(host, std::move(frame)); !status.ok())
      return failures::lost(hosts_[static_cast<size_t>(host)], status);
  }
  return {};
}

std::shared_ptr<RecvBuffer> DataPath::recv_buffer_for(int host, const FrameHeader& header) {
  const bool expected = follower_.cause().ok() && check(host, header).ok();
  return expected ? engine_.recv_buffer_for(header) : nullptr;
}

}  // namespace tutti
