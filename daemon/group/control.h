// Control frames as protobuf: messages in and out of their bytes, which are believed in nothing.
#pragma once

#include <string>

#include "daemon/base/status_message.h"
#include "daemon/group/messages.h"
#include "daemon/transport/transport.h"
#include "proto/group.pb.h"

namespace tutti {

v1::Control to_control(const Message& message);
// DATA_LOSS where it is none (probes and rates are not), or a number is none of ours. Whether it
// makes sense is for its receiver to say.
Result<Message> read_message(const v1::Control& from);

void write_signature(const Signature& signature, v1::Signature& to);
// INVALID_ARGUMENT where a number is none of ours.
Result<Signature> read_signature(const v1::Signature& from);

// A frame that owns its bytes until released.
Outgoing control_frame(uint32_t epoch, const v1::ControlBatch& batch);
// DATA_LOSS where the payload is not a ControlBatch.
Result<v1::ControlBatch> read_controls(const Frame& frame);

}  // namespace tutti
