// The token that trainers, agents and tools show each other, and what nobody guesses.
#pragma once

#include <string>

#include "daemon/base/status.h"

namespace tutti {

inline constexpr size_t kTokenBytesMax = 1024;

// What a file holds that must belong to this process's user or to root, and that nobody else may
// write, nor others but its group read. FAILED_PRECONDITION: it is not so, or longer than 64 KiB;
// NOT_FOUND: it cannot be read. Errors name the file.
Result<std::string> read_secret_file(const std::string& path);
// The same for an open file, so that nobody exchanges it between the look and the read. Errors
// begin with `what` ("the key").
Status check_secret(int file, const std::string& what, const std::string& path);
// The first word of such a file, but for lines that begin with #: what to show where an agent has a
// file of tokens (credentials.h). FAILED_PRECONDITION: there is none, or it is too long.
Result<std::string> read_token_file(const std::string& path);

// TUTTI_TOKEN, else what the file in TUTTI_TOKEN_FILE holds; empty: neither is set.
Result<std::string> token_of_environment();

// So many random bytes of the kernel, two digits each.
std::string random_hex(size_t bytes);

}  // namespace tutti
