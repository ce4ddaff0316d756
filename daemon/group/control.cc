#include "daemon/group/control.h"

#include "proto/board.h"

namespace tutti {

void write_status(const Status& status, v1::StatusMessage& to) {
  to.set_code(static_cast<int>(status.code()));
  to.set_message(status.message());
  to.set_culprit_rank(status.culprit().rank);
  to.set_culprit_host(status.culprit().host);
}

Status read_status(const v1::StatusMessage& from) {
  if (from.code() == 0) return {};
  return {code_of(from.code()), from.message(), {from.culprit_rank(), from.culprit_host()}};
}

uint32_t packed(const Strategy& strategy) {
  return pack_strategy(static_cast<uint32_t>(strategy.kind), strategy.arity);
}

Result<Strategy> unpacked(uint32_t packed) {
  const uint32_t kind = packed & 0xff;
  const uint32_t arity = packed >> 8;
  const bool tree = kind == TUTTI_TREE;
  if (kind > TUTTI_RING || tree != (arity >= 1))
    return invalid_argument("there is no strategy of number " + std::to_string(packed));
  return Strategy{static_cast<StrategyKind>(kind), arity};
}

void write_signature(const Signature& signature, v1::Signature& to) {
  to.set_collective(static_cast<uint32_t>(signature.collective));
  to.set_dtype(static_cast<uint32_t>(signature.dtype));
  to.set_op(static_cast<uint32_t>(signature.op));
  to.set_count(signature.count);
  to.set_root(signature.root);
  to.set_local_strategy(packed(signature.strategies.local));
  to.set_global_strategy(packed(signature.strategies.global));
  to.set_layout(signature.layout);
}

Result<Signature> read_signature(const v1::Signature& from) {
  const Result<Strategy> local = unpacked(from.local_strategy());
  const Result<Strategy> global = unpacked(from.global_strategy());
  if (!local.ok()) return local.status();
  if (!global.ok()) return global.status();
  if (from.collective() >= kCollectives || from.dtype() >= kDtypes || from.op() >= kOps)
    return invalid_argument("a signature holds numbers that are none of ours");
  return Signature{static_cast<Collective>(from.collective()),
                   static_cast<Dtype>(from.dtype()),
                   static_cast<Op>(from.op()),
                   from.count(),
                   from.root(),
                   {*local, *global},
                   from.layout()};
}

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
