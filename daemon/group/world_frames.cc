// The frames of a World: data to and from the engine, and messages to and from the core. What a
// peer says is believed in nothing: what makes no sense ends the epoch, in the peer's name.
#include "daemon/group/verdicts.h"
#include "daemon/group/world.h"

namespace tutti {
namespace {

constexpr Millis kFullLinkPause{1};  // Before a message is offered to it again.

}  // namespace

void PlainWorld::adopt(const std::string& host, std::shared_ptr<Link> link,
                       std::shared_ptr<LoopHandler> handler) {
  for (int index = 0; index < static_cast<int>(hosts_.size()); ++index)
    if (name_of_host(index) == host && index != self_)
      return links_->adopt(index, std::move(link), std::move(handler));
  link->close(unauthenticated("host " + host + " is not in this job's roster"));
}

void PlainWorld::on_frame(int host, Frame frame) {
  if (!cause().ok()) return;
  stats_.received_bytes += frame.payload.bytes() + sizeof(FrameHeader);
  const Status status = frame.header.kind == FrameKind::control ? on_controls(host, frame)
                                                                : on_data(host, std::move(frame));
  if (!status.ok()) member_.abort(verdicts::lost(hosts_[static_cast<size_t>(host)], status));
  pump();
}

void PlainWorld::on_lost(int host, Status cause) {
  if (member_.lost(host, cause) && leader_) leader_->departed(host);
  pump();
}

// ---- Data out ----

Status PlainWorld::send(const OpKey& key, int place, Outgoing frame) {
  const Key operation{key.group, key.seq};
  const Communicator& group = *member_.find(key.group);
  const int host = group.places()[static_cast<size_t>(place)];
  const uint64_t bytes = frame.bytes.size() + sizeof(FrameHeader);
  const Early::Way way = early_.admit(host, operation, bytes);
  if (way == Early::Way::ask) tell_host(host, Want{operation});
  if (way != Early::Way::go)
    return resource_exhausted("enough was sent to a host that has not started");
  Status status = links_->send_data(host, std::move(frame));
  if (status.ok()) return status;
  early_.take_back(host, operation, bytes);
  if (status.code() == Code::resource_exhausted) return status;
  return unavailable(verdicts::lost(hosts_[static_cast<size_t>(host)], status).message(),
                     {group.topology()[static_cast<size_t>(place)].front(), name_of_host(host)});
}

// Over the link of data, since members have no other. Where that is full, soon again; where it is
// broken, its loss tells.
void PlainWorld::tell_host(int host, const Message& message) {
  v1::ControlBatch batch;
  *batch.add_controls() = to_control(message);
  const Status sent = links_->send_data(host, control_frame(roster_.epoch, batch));
  if (sent.code() != Code::resource_exhausted) return;
  parts_.loop.at(Clock::now() + kFullLinkPause, [this, alive = alive_, host, message] {
    if (*alive && cause().ok()) tell_host(host, message);
  });
}

// To those who asked, when it has started or is over.
void PlainWorld::tell_started(const Key& key) {
  for (const int host : early_.take_wanting(key)) tell_host(host, Started{key});
}

// ---- Data in ----

// The engine trusts headers to name hosts of the group, and senders to be who they say.
Status PlainWorld::check_data(int host, const FrameHeader& header) const {
  const Communicator* const group = member_.find(header.group);
  if (header.epoch != roster_.epoch || group == nullptr)
    return data_loss("a frame of another epoch or group");
  const std::vector<int>& places = group->places();
  if (header.from >= places.size() || places[header.from] != host)
    return data_loss("a frame that says it is from another host");
  return {};
}

Status PlainWorld::on_data(int host, Frame frame) {
  const Key key{frame.header.group, frame.header.op_seq};
  if (frame.header.epoch == roster_.epoch && member_.find(key.group) == nullptr)
    return keep_unmade(host, std::move(frame));
  if (Status good = check_data(host, frame.header); !good.ok()) return good;
  if (member_.is_over(key)) return {};
  rates_.frame(host, engine_key(key), frame.payload.bytes(), Clock::now());
  early_.known(host, key);
  return parts_.engine.on_frame(std::move(frame));
}

// No more than the budgets of all others allow.
Status PlainWorld::keep_unmade(int host, Frame frame) {
  unmade_bytes_ += frame.payload.bytes() + sizeof(FrameHeader);
  if (unmade_bytes_ > options_.early_bytes * hosts_.size())
    return data_loss("too many frames of groups that nobody here has made");
  unmade_[frame.header.group].emplace_back(host, std::move(frame));
  return {};
}

void PlainWorld::take_unmade(uint32_t group) {
  auto kept = unmade_.extract(group);
  if (kept.empty()) return;
  for (auto& [host, frame] : kept.mapped()) {
    unmade_bytes_ -= frame.payload.bytes() + sizeof(FrameHeader);
    if (const Status status = on_data(host, std::move(frame)); !status.ok())
      return member_.abort(verdicts::lost(hosts_[static_cast<size_t>(host)], status));
  }
}

std::shared_ptr<Landing> PlainWorld::place(int host, const FrameHeader& header) {
  const bool expected = cause().ok() && check_data(host, header).ok();
  return expected ? parts_.engine.place(header) : nullptr;
}

// ---- Messages ----

Status PlainWorld::on_controls(int host, const Frame& frame) {
  const Result<v1::ControlBatch> read = read_controls(frame);
  if (!read.ok()) return read.status();
  for (const v1::Control& control : read->controls()) {
    if (!cause().ok()) return {};
    if (Status status = on_control(host, control); !status.ok()) return status;
    pump();
  }
  return {};
}

Status PlainWorld::on_control(int host, const v1::Control& control) {
  if (control.has_probe()) return on_probe(host, control.probe());
  if (control.has_rates()) {
    const bool taken = adviser_ && adviser_->learn(host, control.rates());
    return taken ? Status() : data_loss("rates that make no sense here");
  }
  const Result<Message> message = read_message(control);
  return message.ok() ? on_message(host, *message) : message.status();
}

Status PlainWorld::on_message(int host, const Message& message) {
  if (const Want* const want = std::get_if<Want>(&message)) {
    if (early_.size() > kFailedMost) return data_loss("it wants to know too much");
    early_.want(host, want->key);
    if (member_.can_take(want->key)) tell_started(want->key);
    return {};
  }
  if (const Started* const started = std::get_if<Started>(&message)) {
    if (calls_.contains(started->key) && !member_.is_over(started->key))
      early_.known(host, started->key);
    return {};
  }
  if (leader_) return leader_->take(host, message, Clock::now());
  if (host != 0) return data_loss("a message that only the leader sends");
  take_down(message);
  return {};
}

}  // namespace tutti
