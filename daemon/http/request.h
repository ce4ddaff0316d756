// Reads the head of an HTTP/1 request. Pure; its bytes are a stranger's.
#pragma once

#include <cstddef>
#include <string_view>

#include "daemon/base/status.h"
#include "daemon/http/routes.h"

namespace tutti {

inline constexpr size_t kHeadBytesMax = 16'384;
inline constexpr std::string_view kEndOfHead = "\r\n\r\n";

// `head` goes up to kEndOfHead, or further. INVALID_ARGUMENT: it is no HTTP/1, its target is no
// path, or a header that counts here stands there twice.
Result<HttpRequest> parse_request(std::string_view head);

}  // namespace tutti
