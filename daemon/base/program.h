// What surrounds the running program: its file, its host, its environment, texts of files.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace tutti {

// Its path; without /proc, the one by which it was started.
std::filesystem::path program_path();
std::string hostname();                                             // As the kernel knows it.
std::optional<std::string> find_variable(const std::string& name);  // Of the environment.
std::string variable(const std::string& name);                      // Empty: it is not set.
std::string text_of_file(const std::filesystem::path& file);        // Empty: it cannot be read.

}  // namespace tutti
