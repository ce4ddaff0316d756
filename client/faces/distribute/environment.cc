#include "client/faces/distribute/environment.h"

#include <charconv>
#include <filesystem>
#include <sstream>
#include <system_error>
#include <utility>

#include "daemon/base/program.h"

namespace tutti::distribute {

Environment process_environment() { return find_variable; }

Environment environment_of(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

Result<std::string> read_variable(const Environment& environment, const std::string& name,
                                  const std::string& launcher) {
  std::optional<std::string> value = environment(name);
  if (!value)
    return failed_precondition(name + " is not set; start this process within " + launcher);
  return *std::move(value);
}

Result<int> parse_number(const std::string& text, const std::string& what) {
  int number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc() && stop == end && number >= 0 && text[0] != '-') return number;
  return invalid_argument(what + "='" + text + "' is not a decimal number of 0 to 2147483647");
}

Result<int> read_number(const Environment& environment, const std::string& name,
                        const std::string& launcher) {
  const Result<std::string> value = read_variable(environment, name, launcher);
  if (!value.ok()) return value.status();
  return parse_number(*value, name);
}

std::optional<std::vector<std::string>> visible_gpus(const Environment& environment) {
  const std::optional<std::string> list = environment("CUDA_VISIBLE_DEVICES");
  if (!list) return std::nullopt;
  std::vector<std::string> gpus;
  std::istringstream entries(*list);
  for (std::string entry; std::getline(entries, entry, ',') && !entry.empty() && entry[0] != '-';)
    gpus.push_back(entry);
  return gpus;
}

int count_gpus(const Environment& environment, const std::string& driver_folder) {
  if (const auto visible = visible_gpus(environment)) return static_cast<int>(visible->size());
  namespace fs = std::filesystem;
  int gpus = 0;
  std::error_code none;  // No folder: no driver, no GPUs.
  for (fs::directory_iterator entry(driver_folder, none), end; !none && entry != end;
       entry.increment(none))
    ++gpus;
  return gpus;
}

}  // namespace tutti::distribute
