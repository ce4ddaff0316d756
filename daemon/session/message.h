// How a Welcome travels: shared by the refusal and the session.
#pragma once

#include <string>

#include "proto/segment.h"

namespace tutti {
namespace v1 {
class Welcome;
}

// The message with its length in front, as session.proto asks.
std::string framed(const v1::Welcome& welcome);

}  // namespace tutti
