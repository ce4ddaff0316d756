// The framing of a Welcome, shared by the refusal and the session.
#pragma once

#include <string>

#include "proto/segment.h"

namespace tutti {
namespace v1 {
class Welcome;
}

// The message behind its length, as session.proto defines it.
std::string framed(const v1::Welcome& welcome);

}  // namespace tutti
