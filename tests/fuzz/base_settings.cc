// The lines of a settings file: accepted values are in range and stay the same on their way to a
// worker as text; errors name the line.
#include <sstream>

#include "daemon/base/settings.h"
#include "tests/fuzz/input.h"

namespace tutti {
namespace {

void check_row(const Settings& settings, const SettingRow& row) {
  if (row.number == nullptr) return;
  const int64_t value = settings.*row.number;
  require(value >= row.min && value <= row.max, "a number lies in its range");
}

void check_flags(const Settings& settings) {
  Settings child;
  for (const SettingRow& row : setting_rows()) {
    check_row(settings, row);
    const std::string text = setting_text(settings, row);
    require(set_setting(child, row.name, text).ok(), "what is shown can be set");
    require(setting_text(child, row) == text, "what is set is what is shown");
  }
}

}  // namespace
}  // namespace tutti

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti;
  std::istringstream lines{std::string(fuzz::Input(data, size).rest())};
  Settings settings;
  const Status read = read_settings_lines(settings, lines, "file");
  check_flags(settings);  // Lines before a wrong one count.
  const bool named = read.ok() || read.message().starts_with("file:");
  require(named, "an error names file and line");
  require(read.ok() || read.code() == Code::invalid_argument, "an error is the file's");
  return 0;
}
