// The token that trainers, agents and tools show each other.
#pragma once

#include <string>

#include "daemon/base/status.h"

namespace tutti {

// The file's first line. The file must belong to this process's user or to root, and nobody else
// may write it, nor others but its group read it. FAILED_PRECONDITION: it is not so, or holds no
// token; NOT_FOUND: it cannot be read.
Result<std::string> read_token_file(const std::string& path);

// TUTTI_TOKEN, else what the file in TUTTI_TOKEN_FILE holds; empty: neither is set.
Result<std::string> token_of_environment();

}  // namespace tutti
