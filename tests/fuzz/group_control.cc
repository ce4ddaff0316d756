// A control frame from a peer. What is read means something here, is read again as the same once
// written, and can be put into words.
#include "daemon/group/control.h"
#include "proto/board.h"
#include "tests/fuzz/input.h"

namespace tutti {
namespace {

void check_strategy(const Strategy& strategy, uint32_t from) {
  require(packed(strategy) == from, "a strategy is what was packed");
  require(strategy.kind <= StrategyKind::ring, "a strategy is one of ours");
  require((strategy.kind == StrategyKind::tree) == (strategy.arity >= 1), "trees have an arity");
}

void check_signature(const v1::Signature& from) {
  const Result<Signature> read = read_signature(from);
  if (!read.ok()) return require(read.status().code() == Code::invalid_argument, "refused");
  require(static_cast<int>(read->collective) < kCollectives, "a collective is one of ours");
  require(static_cast<int>(read->dtype) < kDtypes, "a dtype is one of ours");
  require(static_cast<int>(read->op) < kOps, "an op is one of ours");
  check_strategy(read->strategies.local, from.local_strategy());
  check_strategy(read->strategies.global, from.global_strategy());
  v1::Signature written;
  write_signature(*read, written);
  require(written.SerializeAsString().size() <= from.SerializeAsString().size(), "nothing added");
  const Result<Signature> again = read_signature(written);
  require(again.ok() && *again == *read, "what is written is read");
  require(canonical(canonical(*read)) == canonical(*read), "canonical once is canonical");
  require(!to_string(*read).empty(), "a signature has words");
}

void check_status(const v1::StatusMessage& from) {
  const Status read = read_status(from);
  require(read.ok() == (from.code() == 0), "no error becomes none");
  require(code_of(static_cast<int>(read.code())) == read.code(), "a code is one of ours");
  v1::StatusMessage written;
  write_status(read, written);
  require(read_status(written) == read, "what is written is read");
}

// ---- Messages ----

bool is_strategy(uint32_t packed) {
  const bool tree = (packed & 0xff) == TUTTI_TREE;
  return (packed & 0xff) <= TUTTI_RING && tree == (packed > 0xff);
}

bool is_sound(const v1::Signature& from) {
  return from.collective() < kCollectives && from.dtype() < kDtypes && from.op() < kOps &&
         is_strategy(from.local_strategy()) && is_strategy(from.global_strategy());
}

bool is_sound(const v1::Propose& from) {
  bool sound = is_strategy(from.local_strategy()) && is_strategy(from.global_strategy());
  for (const v1::Measured& one : from.measured())
    sound &= one.collective() < kCollectives && one.size_class() <= 64 &&
             is_strategy(one.strategy()) && one.strategy() != TUTTI_AUTO;
  return sound;
}

// By proto/group.proto and daemon/group/messages.h.
bool is_sound(const v1::Control& from) {
  switch (from.kind_case()) {
    case v1::Control::KIND_NOT_SET:
    case v1::Control::kProbe:
    case v1::Control::kRates:
    case v1::Control::kNccl:  // GpuLink reads it.
      return false;
    case v1::Control::kReport:
      return from.report().reason() <= 4 && from.report().phase() <= 3 &&
             is_sound(from.report().signature());
    case v1::Control::kPropose:
      return is_sound(from.propose());
    case v1::Control::kGone:
      return from.gone().rank() <= INT32_MAX;
    default:
      return true;
  }
}

void normalise(v1::StatusMessage& status) {
  const int code = static_cast<int>(code_of(status.code()));
  if (code == 0) write_status({}, status);
  status.set_code(code);
}

// If something is said twice, the last counts.
void normalise(v1::Gone& gone) {
  normalise(*gone.mutable_cause());
  std::map<uint32_t, v1::Bound> bounds;
  for (const v1::Bound& one : gone.bounds()) bounds[one.group()] = one;
  gone.clear_bounds();
  for (const auto& [group, bound] : bounds) *gone.add_bounds() = bound;
}

void normalise(v1::Propose& propose) {
  std::map<std::pair<uint32_t, uint32_t>, v1::Measured> measured;
  for (const v1::Measured& one : propose.measured())
    measured[{one.collective(), one.size_class()}] = one;
  propose.clear_measured();
  for (const auto& [size, strategy] : measured) *propose.add_measured() = strategy;
}

// What the message that was read says, without what it does not use.
v1::Control normal(v1::Control control) {
  control.DiscardUnknownFields();
  const auto kind = control.kind_case();
  const bool of_epoch = kind == v1::Control::kGone || kind == v1::Control::kAbort;
  const bool of_group = kind == v1::Control::kAnnounce || kind == v1::Control::kPropose;
  const bool short_one = kind == v1::Control::kFence || kind == v1::Control::kAdopt ||
                         kind == v1::Control::kWant || kind == v1::Control::kStarted;
  if (of_epoch) control.clear_group();
  if (of_epoch || of_group) control.clear_number();
  if (of_epoch || short_one) control.clear_members();
  if (control.has_report()) (void)control.mutable_report()->mutable_signature();
  if (control.has_report()) normalise(*control.mutable_report()->mutable_status());
  if (control.has_fail()) normalise(*control.mutable_fail());
  if (control.has_abort()) normalise(*control.mutable_abort());
  if (control.has_gone()) normalise(*control.mutable_gone());
  if (control.has_propose()) normalise(*control.mutable_propose());
  return control;
}

void check_message(const v1::Control& control) {
  const Result<Message> read = read_message(control);
  require(read.ok() == is_sound(control), "sound messages are read, and no others");
  if (!read.ok()) return require(read.status().code() == Code::data_loss, "a code that fits");
  const std::string written = to_control(*read).SerializeAsString();
  require(written == normal(control).SerializeAsString(), "what is read is what was said");
  const Result<Message> again = read_message(to_control(*read));
  require(again.ok() && again->index() == read->index(), "what is written is read");
  require(to_control(*again).SerializeAsString() == written, "as the same");
}

void check_control(const v1::Control& control) {
  if (control.has_report()) {
    check_signature(control.report().signature());
    check_status(control.report().status());
  }
  if (control.has_fail()) check_status(control.fail());
  if (control.has_abort()) check_status(control.abort());
  if (control.has_gone()) check_status(control.gone().cause());
  if (control.has_nccl()) {
    check_status(control.nccl().offer().status());
    check_status(control.nccl().made());
    check_status(control.nccl().refused());
  }
  check_message(control);
}

Frame frame_of(std::span<const std::byte> bytes, size_t cut) {
  cut = std::min(cut, bytes.size());
  return {{.kind = FrameKind::control}, {{bytes.first(cut), bytes.subspan(cut)}, nullptr}};
}

}  // namespace
}  // namespace tutti

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti;
  fuzz::Input input(data, size);
  const size_t cut = input.take<uint8_t>();
  const Result<v1::ControlBatch> batch =
      read_controls(frame_of(std::as_bytes(std::span(input.rest())), cut));
  if (!batch.ok()) {
    require(batch.status().code() == Code::data_loss, "what cannot be read is data loss");
    return 0;
  }
  for (const v1::Control& control : batch->controls()) check_control(control);
  const Outgoing out = control_frame(7, *batch);
  require(out.header.kind == FrameKind::control && out.header.epoch == 7, "a control frame");
  const Result<v1::ControlBatch> again = read_controls(frame_of(out.bytes, cut));
  require(again.ok(), "what is written is read");
  require(again->SerializeAsString() == batch->SerializeAsString(), "as the same");
  return 0;
}
