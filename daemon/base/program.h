// Where the running program is, and on which host.
#pragma once

#include <filesystem>
#include <string>

namespace tutti {

// Its path; without /proc, the one by which it was started.
std::filesystem::path program_path();
std::string hostname();  // As the kernel knows it.

}  // namespace tutti
