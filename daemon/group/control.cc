#include "daemon/group/control.h"

namespace tutti {

void write_signature(const Signature& signature, v1::Signature& to) {
  to.set_collective(static_cast<uint32_t>(signature.collective));
  to.set_dtype(static_cast<uint32_t>(signature.dtype));
  to.set_op(static_cast<uint32_t>(signature.op));
  to.set_count(signature.count);
  to.set_root(signature.root);
  to.set_local_strategy(packed(signature.strategies.local));
  to.set_global_strategy(packed(signature.strategies.global));
  to.set_layout(signature.layout);
  to.set_on_device(signature.on_device);
}

Result<Signature> read_signature(const v1::Signature& from) {
  const auto strategies = unpacked(from.local_strategy(), from.global_strategy());
  if (!strategies.ok()) return strategies.status();
  if (from.collective() >= kCollectives || from.dtype() >= kDtypes || from.op() >= kOps)
    return invalid_argument("a signature with an unknown collective, dtype or op");
  return Signature{static_cast<Collective>(from.collective()),
                   static_cast<Dtype>(from.dtype()),
                   static_cast<Op>(from.op()),
                   from.count(),
                   from.root(),
                   *strategies,
                   from.layout(),
                   from.on_device()};
}

// ---- Messages ----

namespace {

struct Writer {
  v1::Control& to;

  void set_operation(const Key& key, const Members& members) const {
    to.set_group(key.group);
    to.set_number(key.number);
    to.mutable_members()->Assign(members.begin(), members.end());
  }
  void operator()(const Announce& message) const {
    set_operation({message.group, 0}, message.members);
    to.mutable_announce();
  }
  void operator()(const Report& message) const {
    set_operation(message.key, message.members);
    v1::Report& report = *to.mutable_report();
    report.set_reason(static_cast<uint32_t>(message.reason));
    report.set_phase(static_cast<uint32_t>(message.phase));
    report.mutable_missing()->Assign(message.missing.begin(), message.missing.end());
    report.set_rank(message.rank);
    write_signature(message.signature, *report.mutable_signature());
    report.set_agreement(message.agreement);
    report.set_timeout_ms(message.timeout_ms);
    report.set_waiting(message.waiting);
    report.set_waiting_for(message.waiting_for);
    report.set_peer(message.peer);
    write_status(message.status, *report.mutable_status());
  }
  void operator()(const Fence& message) const {
    set_operation({message.group, message.number}, {});
    to.mutable_fence()->set_version(message.version);
  }
  void operator()(const Query& message) const {
    set_operation(message.key, message.members);
    to.mutable_query();
  }
  void operator()(const Fail& message) const {
    set_operation(message.key, message.members);
    write_status(message.status, *to.mutable_fail());
  }
  void operator()(const Propose& message) const {
    set_operation({message.group, 0}, message.members);
    v1::Propose& propose = *to.mutable_propose();
    propose.set_version(message.version);
    propose.set_local_strategy(packed(message.table.job.local));
    propose.set_global_strategy(packed(message.table.job.global));
    for (const auto& [size, strategy] : message.table.measured) {
      v1::Measured& measured = *propose.add_measured();
      measured.set_collective(static_cast<uint32_t>(size.first));
      measured.set_size_class(static_cast<uint32_t>(size.second));
      measured.set_strategy(packed(strategy));
    }
    propose.set_nccl(message.table.nccl);
  }
  void operator()(const Adopt& message) const {
    set_operation({message.group, message.from}, {});
    to.mutable_adopt()->set_version(message.version);
  }
  void operator()(const RankGone& message) const {
    v1::Gone& gone = *to.mutable_gone();
    gone.set_rank(static_cast<uint32_t>(message.rank));
    write_status(message.cause, *gone.mutable_cause());
    for (const auto& [group, number] : message.calls) {
      v1::Bound& bound = *gone.add_bounds();
      bound.set_group(group);
      bound.set_number(number);
    }
  }
  void operator()(const Abort& message) const { write_status(message.cause, *to.mutable_abort()); }
  void operator()(const WantStarted& message) const {
    set_operation(message.key, {});
    to.mutable_want();
  }
  void operator()(const Started& message) const {
    set_operation(message.key, {});
    to.mutable_started();
  }
};

Status out_of_range() { return data_loss("a control frame with a field out of range"); }

Result<Message> read_report(const v1::Report& from, const Key& key, const Members& members) {
  const Result<Signature> signature = read_signature(from.signature());
  const bool known = from.reason() <= static_cast<uint32_t>(Report::Reason::refusal) &&
                     from.phase() <= static_cast<uint32_t>(Report::Phase::gathering);
  if (!known || !signature.ok()) return out_of_range();
  Report report;
  report.key = key;
  report.members = members;
  report.reason = static_cast<Report::Reason>(from.reason());
  report.phase = static_cast<Report::Phase>(from.phase());
  report.missing.assign(from.missing().begin(), from.missing().end());
  report.rank = from.rank();
  report.signature = *signature;
  report.agreement = from.agreement();
  report.timeout_ms = from.timeout_ms();
  report.waiting = from.waiting();
  report.waiting_for = from.waiting_for();
  report.peer = from.peer();
  report.status = read_status(from.status());
  return Message(report);
}

bool is_decided(const Result<Strategy>& strategy) {
  return strategy.ok() && strategy->kind != StrategyKind::automatic;
}

Result<Message> read_propose(const v1::Propose& from, uint32_t group, const Members& members) {
  const auto job = unpacked(from.local_strategy(), from.global_strategy());
  if (!job.ok()) return out_of_range();
  Propose propose{group, members, from.version(), {*job, {}, from.nccl()}};
  for (const v1::Measured& measured : from.measured()) {
    const Result<Strategy> strategy = unpacked(measured.strategy());
    if (measured.collective() >= kCollectives || measured.size_class() > 64 ||
        !is_decided(strategy))
      return out_of_range();
    propose.table.measured[{static_cast<Collective>(measured.collective()),
                            static_cast<int>(measured.size_class())}] = *strategy;
  }
  return Message(propose);
}

Result<Message> read_gone(const v1::Gone& from) {
  if (from.rank() > INT32_MAX) return out_of_range();
  RankGone gone{static_cast<int>(from.rank()), read_status(from.cause()), {}};
  for (const v1::Bound& bound : from.bounds()) gone.calls[bound.group()] = bound.number();
  return Message(gone);
}

}  // namespace

v1::Control to_control(const Message& message) {
  v1::Control control;
  std::visit(Writer{control}, message);
  return control;
}

Result<Message> read_message(const v1::Control& from) {
  const Key key{from.group(), from.number()};
  const Members members(from.members().begin(), from.members().end());
  switch (from.kind_case()) {
    case v1::Control::kAnnounce:
      return Message(Announce{key.group, members});
    case v1::Control::kReport:
      return read_report(from.report(), key, members);
    case v1::Control::kFence:
      return Message(Fence{key.group, from.fence().version(), key.number});
    case v1::Control::kQuery:
      return Message(Query{key, members});
    case v1::Control::kFail:
      return Message(Fail{key, members, read_status(from.fail())});
    case v1::Control::kPropose:
      return read_propose(from.propose(), key.group, members);
    case v1::Control::kAdopt:
      return Message(Adopt{key.group, from.adopt().version(), key.number});
    case v1::Control::kGone:
      return read_gone(from.gone());
    case v1::Control::kAbort:
      return Message(Abort{read_status(from.abort())});
    case v1::Control::kWant:
      return Message(WantStarted{key});
    case v1::Control::kStarted:
      return Message(Started{key});
    default:
      return out_of_range();
  }
}

// ---- Frames ----

Outgoing control_frame(uint32_t epoch, const v1::ControlBatch& batch) {
  const auto bytes = std::make_shared<std::string>(batch.SerializeAsString());
  Outgoing frame;
  frame.header.kind = FrameKind::control;
  frame.header.epoch = epoch;
  frame.bytes = std::as_bytes(std::span(*bytes));
  frame.released = [bytes] {};
  return frame;
}

Result<v1::ControlBatch> read_controls(const Frame& frame) {
  std::string bytes(frame.payload.bytes(), '\0');
  frame.payload.copy_to(reinterpret_cast<std::byte*>(bytes.data()));
  v1::ControlBatch batch;
  if (!batch.ParseFromString(bytes)) return data_loss("a control frame cannot be read");
  return batch;
}

}  // namespace tutti
