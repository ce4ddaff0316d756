// Encodes messages as control frames (proto/group.proto) and decodes received ones, which are
// untrusted.
#pragma once

#include <string>

#include "daemon/base/status_message.h"
#include "daemon/group/messages.h"
#include "daemon/transport/transport.h"
#include "proto/group.pb.h"

namespace tutti {

v1::Control to_control(const Message& message);
// DATA_LOSS if it is no Message (such as a probe or rates) or a number is out of range. Its meaning
// is checked by Follower and Leader.
Result<Message> read_message(const v1::Control& from);

void write_signature(const Signature& signature, v1::Signature& to);
// INVALID_ARGUMENT if a number is out of range.
Result<Signature> read_signature(const v1::Signature& from);

// The frame owns its bytes until it is released.
Outgoing control_frame(uint32_t epoch, const v1::ControlBatch& batch);
// DATA_LOSS if the payload is not a ControlBatch.
Result<v1::ControlBatch> read_controls(const Frame& frame);

}  // namespace tutti
