#include "daemon/group/control.h"

#include "daemon/base/foreign_text.h"

namespace tutti {

void write_signature(const Signature& signature, v1::Signature& to) {
  // By name, so that no field can be forgotten.
  const auto& [collective, dtype, op, count, root, strategies, layout, on_device, reproducible,
               verifies] = signature;
  to.set_collective(static_cast<uint32_t>(collective));
  to.set_dtype(static_cast<uint32_t>(dtype));
  to.set_op(static_cast<uint32_t>(op));
  to.set_count(count);
  to.set_root(root);
  to.set_local_strategy(packed(strategies.local));
  to.set_global_strategy(packed(strategies.global));
  to.set_layout(layout);
  to.set_on_device(on_device);
  to.set_reproducible(reproducible);
  to.set_verifies(verifies);
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
                   from.on_device(),
                   from.reproducible(),
                   from.verifies()};
}

// ---- Messages ----

namespace {

struct Writer {
  v1::Control& to;

  void set_operation(const EpochOp& op, const Ranks& members) const {
    to.set_group(op.group);
    to.set_number(op.number);
    to.mutable_members()->Assign(members.begin(), members.end());
  }
  void operator()(const Announce& message) const {
    set_operation({message.group, 0}, message.members);
    to.mutable_announce();
  }
  void operator()(const Report& message) const {
    set_operation(message.op, message.members);
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
    set_operation(message.op, message.members);
    to.mutable_query();
  }
  void operator()(const Fail& message) const {
    set_operation(message.op, message.members);
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
    if (message.because_of >= 0) gone.set_because_of(static_cast<uint32_t>(message.because_of));
    for (const auto& [group, number] : message.calls) {
      v1::Bound& bound = *gone.add_bounds();
      bound.set_group(group);
      bound.set_number(number);
    }
  }
  void operator()(const Abort& message) const { write_status(message.cause, *to.mutable_abort()); }
  void operator()(const WantStarted& message) const {
    set_operation(message.op, {});
    to.mutable_want();
  }
  void operator()(const Started& message) const {
    set_operation(message.op, {});
    to.mutable_started();
  }
};

// Each returns whether all fields are in range. They fill a Message in its place: of copies GCC 14
// warns, wrongly, that what they do not hold is freed.
bool read_report(const v1::Report& from, Report& report) {
  const Result<Signature> signature = read_signature(from.signature());
  const bool known = from.reason() <= static_cast<uint32_t>(Report::Reason::refusal) &&
                     from.phase() <= static_cast<uint32_t>(Report::Phase::gathering);
  if (!known || !signature.ok()) return false;
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
  return true;
}

bool is_decided(const Result<Strategy>& strategy) {
  return strategy.ok() && strategy->kind != StrategyKind::automatic;
}

bool read_propose(const v1::Propose& from, Propose& propose) {
  const auto job = unpacked(from.local_strategy(), from.global_strategy());
  if (!job.ok()) return false;
  propose.version = from.version();
  propose.table.job = *job;
  propose.table.nccl = from.nccl();
  for (const v1::Measured& measured : from.measured()) {
    const Result<Strategy> strategy = unpacked(measured.strategy());
    if (measured.collective() >= kCollectives || measured.size_class() > 64 ||
        !is_decided(strategy))
      return false;
    propose.table.measured[{static_cast<Collective>(measured.collective()),
                            static_cast<int>(measured.size_class())}] = *strategy;
  }
  return true;
}

bool read_gone(const v1::Gone& from, RankGone& gone) {
  if (from.rank() > INT32_MAX || from.because_of() > INT32_MAX) return false;
  if (from.has_because_of() && from.because_of() == from.rank()) return false;
  gone.rank = static_cast<int>(from.rank());
  if (from.has_because_of()) gone.because_of = static_cast<int>(from.because_of());
  gone.cause = read_status(from.cause());
  for (const v1::Bound& bound : from.bounds()) gone.calls[bound.group()] = bound.number();
  return true;
}

bool read_kind(const v1::Control& from, const EpochOp& op, const Ranks& members, Message& message) {
  switch (from.kind_case()) {
    case v1::Control::kAnnounce:
      message = Announce{op.group, members};
      return true;
    case v1::Control::kReport: {
      Report& report = message.emplace<Report>();
      report.op = op;
      report.members = members;
      return read_report(from.report(), report);
    }
    case v1::Control::kFence:
      message = Fence{op.group, from.fence().version(), op.number};
      return true;
    case v1::Control::kQuery:
      message = Query{op, members};
      return true;
    case v1::Control::kFail:
      message = Fail{op, members, read_status(from.fail())};
      return true;
    case v1::Control::kPropose: {
      Propose& propose = message.emplace<Propose>();
      propose.group = op.group;
      propose.members = members;
      return read_propose(from.propose(), propose);
    }
    case v1::Control::kAdopt:
      message = Adopt{op.group, from.adopt().version(), op.number};
      return true;
    case v1::Control::kGone:
      return read_gone(from.gone(), message.emplace<RankGone>());
    case v1::Control::kAbort:
      message = Abort{read_status(from.abort())};
      return true;
    case v1::Control::kWant:
      message = WantStarted{op};
      return true;
    case v1::Control::kStarted:
      message = Started{op};
      return true;
    default:
      return false;
  }
}

}  // namespace

v1::Control to_control(const Message& message) {
  v1::Control control;
  std::visit(Writer{control}, message);
  return control;
}

Result<Message> read_message(const v1::Control& from) {
  Message message;
  const Ranks members(from.members().begin(), from.members().end());
  if (!read_kind(from, {from.group(), from.number()}, members, message))
    return data_loss("a control frame with a field out of range");
  return message;
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
  clean_texts(batch);
  return batch;
}

}  // namespace tutti
