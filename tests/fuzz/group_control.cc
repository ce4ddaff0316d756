// A control frame from a peer. What is read means something here, is read again as the same once
// written, and can be put into words.
#include "daemon/group/control.h"
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

void check_control(const v1::Control& control) {
  if (control.has_report()) {
    check_signature(control.report().signature());
    check_status(control.report().status());
  }
  if (control.has_fail()) check_status(control.fail());
  if (control.has_abort()) check_status(control.abort());
  if (control.has_gone()) check_status(control.gone().cause());
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
