// The process's environment as a function, so that whatever reads it can be tested with another
// one.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/status.h"

namespace tutti::distribute {

// The value of a variable, or nothing where it is not set. A set variable may be empty.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

// Reads the process's own environment at every call. Not to be called while another thread changes
// the environment: getenv() is not safe then.
Environment process_environment();
// An environment of exactly these variables.
Environment environment_of(std::map<std::string, std::string> variables);

// The variable's value. FAILED_PRECONDITION where it is not set: `launcher` names the program that
// sets it, as "a Slurm step".
Result<std::string> read_variable(const Environment& environment, const std::string& name,
                                  const std::string& launcher);
// The same, as a number. INVALID_ARGUMENT where the value is not a decimal number of 0 to 2^31 - 1.
Result<int> read_number(const Environment& environment, const std::string& name,
                        const std::string& launcher);
// A decimal number of 0 to 2^31 - 1 without sign and blanks. INVALID_ARGUMENT names `what`.
Result<int> parse_number(const std::string& text, const std::string& what);

// The entries of CUDA_VISIBLE_DEVICES, as CUDA reads it: an empty entry, and a negative one such as
// "-1", ends the list. Nothing where the variable is not set.
std::optional<std::vector<std::string>> visible_gpus(const Environment& environment);

// How many GPUs this process may use: visible_gpus(), else those that the NVIDIA driver lists in
// `driver_folder`.
int count_gpus(const Environment& environment,
               const std::string& driver_folder = "/proc/driver/nvidia/gpus");

}  // namespace tutti::distribute
