// Where the running program is.
#pragma once

#include <filesystem>

namespace tutti {

// Its path; without /proc, the one by which it was started.
std::filesystem::path program_path();

}  // namespace tutti
