// What sockets carry: the framing of a Welcome, which answers or refuses a hello, and descriptors.
#pragma once

#include <string>
#include <vector>

#include "daemon/base/fd.h"
#include "proto/segment.h"

struct msghdr;

namespace tutti {
namespace v1 {
class Welcome;
}

// The message behind its length, as session.proto defines it.
std::string framed(const v1::Welcome& welcome);

// The descriptors that came with a message, which the caller owns from now on.
std::vector<Fd> descriptors_of(msghdr& message);

}  // namespace tutti
