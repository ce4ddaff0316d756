#include "client/faces/distribute/slurm_grammar.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

namespace tutti::distribute {
namespace {

constexpr size_t kEntriesMax = kTasksMax;

// Digits only.
std::optional<int> number_of(std::string_view digits) {
  int number = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, number);
  const bool whole = error == std::errc() && stop == end && digits[0] != '-';
  return whole ? std::optional(number) : std::nullopt;
}

std::string padded(int number, size_t width) {
  std::string digits = std::to_string(number);
  return std::string(digits.size() < width ? width - digits.size() : 0, '0') + digits;
}

// The pieces between commas that no bracket encloses. A comma at the end has nothing behind it.
std::vector<std::string_view> split_hosts(std::string_view list) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  bool bracketed = false;
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i] == '[') bracketed = true;
    if (list[i] == ']') bracketed = false;
    if (list[i] != ',' || bracketed) continue;
    parts.push_back(list.substr(begin, i - begin));
    begin = i + 1;
  }
  if (begin < list.size()) parts.push_back(list.substr(begin));
  return parts;
}

std::vector<std::string_view> split_commas(std::string_view list) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  for (size_t comma; (comma = list.find(',', begin)) != std::string_view::npos; begin = comma + 1)
    parts.push_back(list.substr(begin, comma - begin));
  parts.push_back(list.substr(begin));
  return parts;
}

// Appends "3-5" or "7" behind `prefix`. False: not of this form, or too many hosts.
bool append_range(std::string_view prefix, std::string_view range,
                  std::vector<std::string>& hosts) {
  const size_t dash = range.find('-');
  const std::string_view low = range.substr(0, dash);
  const std::string_view high = dash == std::string_view::npos ? low : range.substr(dash + 1);
  const std::optional<int> first = number_of(low);
  const std::optional<int> last = number_of(high);
  if (!first || !last || *first > *last) return false;
  if (static_cast<size_t>(*last - *first) >= kEntriesMax - hosts.size()) return false;
  for (int i = 0; i <= *last - *first; ++i)
    hosts.push_back(std::string(prefix) + padded(*first + i, low.size()));
  return true;
}

// Appends what "o[3-4,6]" or "m5" stands for. False: not of this form, or too many hosts.
bool append_hosts(std::string_view part, std::vector<std::string>& hosts) {
  const size_t open = part.find('[');
  const std::string_view prefix = part.substr(0, open);
  if (prefix.find(']') != std::string_view::npos) return false;
  if (open == std::string_view::npos) {
    hosts.emplace_back(prefix);
    return !prefix.empty() && hosts.size() <= kEntriesMax;
  }
  const std::string_view rest = part.substr(open + 1);
  if (rest.find_first_of("[]") != rest.size() - 1 || rest.back() != ']') return false;
  const auto append = [&](std::string_view range) { return append_range(prefix, range, hosts); };
  return std::ranges::all_of(split_commas(rest.substr(0, rest.size() - 1)), append);
}

// Appends what "3(x2)" or "3" stands for. False: not of this form, or too many entries.
bool append_tasks(std::string_view part, std::vector<int>& tasks) {
  const size_t open = part.find("(x");
  const std::optional<int> number = number_of(part.substr(0, open));
  std::optional<int> times = 1;
  if (open != std::string_view::npos) {
    if (!part.ends_with(')')) return false;
    times = number_of(part.substr(open + 2, part.size() - open - 3));
  }
  if (!number || !times || static_cast<size_t>(*times) > kEntriesMax - tasks.size()) return false;
  tasks.insert(tasks.end(), static_cast<size_t>(*times), *number);
  return true;
}

}  // namespace

Result<std::vector<std::string>> expand_hostlist(const std::string& hostlist) {
  std::vector<std::string> hosts;
  for (const std::string_view part : split_hosts(hostlist))
    if (!append_hosts(part, hosts))
      return invalid_argument("host list '" + hostlist + "': '" + std::string(part) +
                              "' is not of the form n5 or n[1-3,7]");
  return hosts;
}

Result<std::vector<int>> expand_tasks_per_node(const std::string& tasks_per_node) {
  std::vector<int> tasks;
  for (const std::string_view part : split_commas(tasks_per_node))
    if (!append_tasks(part, tasks))
      return invalid_argument("tasks per node '" + tasks_per_node + "': '" + std::string(part) +
                              "' is not of the form 3 or 3(x2)");
  return tasks;
}

}  // namespace tutti::distribute
