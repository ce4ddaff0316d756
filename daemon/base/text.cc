#include "daemon/base/text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <span>
#include <utility>

#include "daemon/base/status_message.h"

namespace tutti {
namespace {

constexpr int kPerHostMax = 1024;

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

struct Unit {
  std::string_view name;
  uint64_t factor;
};

// Reads a whole number and one of the units, in any case.
Result<uint64_t> parse_quantity(std::string_view text, std::span<const Unit> units,
                                std::string_view expected) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string name = lower(text.substr(static_cast<size_t>(end - text.data())));
  const auto unit = std::ranges::find(units, name, &Unit::name);
  uint64_t value = 0;
  if (error != std::errc() || unit == units.end() ||
      __builtin_mul_overflow(number, unit->factor, &value))
    return invalid_argument("'" + std::string(text) + "': expected " + std::string(expected));
  return value;
}

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789.-+") == std::string_view::npos;
}

std::string padded(const std::string& cell, size_t width, bool right) {
  const std::string fill(width - std::min(width, cell.size()), ' ');
  return right ? fill + cell : cell + fill;
}

// For a well-formed character of this size.
uint32_t code_at(const std::string& text, size_t at, size_t size) {
  uint32_t code = static_cast<uint8_t>(text[at]);
  if (size > 1) code &= 0xffu >> (size + 1);
  for (size_t i = at + 1; i < at + size; ++i)
    code = code << 6 | (static_cast<uint8_t>(text[i]) & 0x3fu);
  return code;
}

// Not the controls C0 and C1, which terminals obey; nor what ends lines or turns the direction of
// text (UAX 9), so that one text looks like another.
bool may_be_shown(uint32_t code) {
  const auto within = [code](uint32_t first, uint32_t last) {
    return first <= code && code <= last;
  };
  const bool control = within(0, 0x1f) || within(0x7f, 0x9f);
  const bool turns =
      code == 0x61c || within(0x200e, 0x200f) || within(0x202a, 0x202e) || within(0x2066, 0x2069);
  return !control && !turns && !within(0x2028, 0x2029);
}

// Letters that are to be inserted, removed, replaced, or exchanged with the next (counted once).
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before_last(b.size() + 1);
  std::vector<size_t> last(b.size() + 1);
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    before_last.swap(last);
    last.swap(row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (byte < 0x20) {
      std::array<char, 8> code{};
      std::snprintf(code.data(), code.size(), "\\u%04x", byte);
      out += code.data();
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace

Result<std::chrono::microseconds> parse_duration(std::string_view text) {
  constexpr auto kUnits = std::to_array<Unit>(
      {{"us", 1}, {"ms", 1'000}, {"s", 1'000'000}, {"m", 60'000'000}, {"h", 3'600'000'000}});
  const std::string_view expected = "a time such as 500ms, 30s, 2m or 1h";
  const Result<uint64_t> micros = parse_quantity(text, kUnits, expected);
  if (!micros.ok()) return micros.status();
  const bool is_upper = lower(text) != text;  // 2M is a size.
  if (is_upper || !std::in_range<int64_t>(*micros))
    return invalid_argument("'" + std::string(text) + "': expected " + std::string(expected));
  return std::chrono::microseconds(*micros);
}

std::string did_you_mean(std::string_view word, std::span<const std::string_view> words) {
  std::string_view closest;
  size_t least = 1 + (word.size() + 1) / 3;  // One letter in three may be another.
  for (const std::string_view candidate : words) {
    const size_t distance = edit_distance(word, candidate);
    if (distance >= least) continue;
    least = distance;
    closest = candidate;
  }
  return closest.empty() ? "" : "; did you mean '" + std::string(closest) + "'?";
}

Result<uint64_t> parse_byte_size(std::string_view text) {
  constexpr uint64_t kKi = 1024;
  constexpr auto kUnits = std::to_array<Unit>({{"", 1},
                                               {"b", 1},
                                               {"k", kKi},
                                               {"kib", kKi},
                                               {"m", kKi * kKi},
                                               {"mib", kKi * kKi},
                                               {"t", kKi * kKi * kKi * kKi},
                                               {"tib", kKi * kKi * kKi * kKi},
                                               {"g", kKi * kKi * kKi},
                                               {"gib", kKi * kKi * kKi}});
  return parse_quantity(text, kUnits, "a size such as 4, 64K or 16M");
}

std::string format_byte_size(uint64_t bytes) {
  constexpr std::array<std::string_view, 6> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return format_number(value) + " " + std::string(kUnits[unit]);
}

Result<uint64_t> parse_rate(std::string_view text) {
  constexpr auto kUnits = std::to_array<Unit>(
      {{"bit", 1}, {"kbit", 1'000}, {"mbit", 1'000'000}, {"gbit", 1'000'000'000}});
  Result<uint64_t> rate = parse_quantity(text, kUnits, "a rate such as 1gbit or 250mbit");
  if (rate.ok() && *rate == 0) return invalid_argument("a rate of 0 would let nothing through");
  return rate;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (;;) {
    const size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

Result<std::vector<int>> parse_per_host(std::string_view text, int hosts) {
  std::vector<int> counts;
  for (const std::string& part : split(text, ',')) {
    int count = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), count);
    const bool whole = error == std::errc() && end == part.data() + part.size();
    if (!whole || count < 1 || count > kPerHostMax)
      return invalid_argument("--per-host '" + std::string(text) + "': expected 1 to " +
                              std::to_string(kPerHostMax) + " ranks, or one such number a host");
    counts.push_back(count);
  }
  if (counts.size() == 1) counts.resize(static_cast<size_t>(hosts), counts.front());
  if (counts.size() != static_cast<size_t>(hosts))
    return invalid_argument("--per-host '" + std::string(text) + "' names " +
                            std::to_string(counts.size()) + " hosts, --hosts " +
                            std::to_string(hosts));
  return counts;
}

std::string host_name(int index) {
  std::string name;
  for (int rest = index; rest >= 0; rest = rest / 26 - 1)
    name.insert(name.begin(), static_cast<char>('a' + rest % 26));
  return name;
}

std::string format_number(double value) {
  const double size = std::fabs(value);
  const int decimals = size >= 1000 || value == std::floor(value) ? 0 : size >= 100 ? 1 : 2;
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
  return text.data();
}

std::string printable(std::string text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t size = character_at(text, at);
    if (size != 0 && may_be_shown(code_at(text, at, size)))
      out.append(text, at, size);
    else
      out += '?';
    at += std::max<size_t>(size, 1);
  }
  return out;
}

Table::Table(std::vector<std::string> header) : rows_{std::move(header)} {}

void Table::add(std::vector<std::string> row) {
  require(row.size() == rows_.front().size(), "a row has as many cells as the header");
  for (std::string& cell : row) cell = printable(std::move(cell));
  rows_.push_back(std::move(row));
}

std::string Table::text() const {
  std::string out;
  const size_t columns = rows_.front().size();
  std::vector<size_t> widths(columns);
  std::vector<bool> right(columns, rows_.size() > 1);
  for (size_t r = 0; r < rows_.size(); ++r)
    for (size_t c = 0; c < columns; ++c) {
      widths[c] = std::max(widths[c], rows_[r][c].size());
      if (r > 0 && !is_number(rows_[r][c])) right[c] = false;
    }
  for (const auto& row : rows_) {
    std::string line;
    for (size_t c = 0; c < columns; ++c) line += padded(row[c], widths[c], right[c]) + "  ";
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

Json& Json::append(std::string_view token) {
  if (!out_.empty() && out_.back() != '{' && out_.back() != '[' && out_.back() != ':') out_ += ',';
  out_ += token;
  return *this;
}

Json& Json::open(char bracket) {
  open_ += bracket;
  return append({&bracket, 1});
}

Json& Json::close() {
  require(!open_.empty(), "close() without open()");
  out_ += open_.back() == '{' ? '}' : ']';
  open_.pop_back();
  return *this;
}

Json& Json::key(std::string_view name) { return append(quoted(name) + ":"); }

Json& Json::value(std::string_view text) { return append(quoted(text)); }

Json& Json::value(double number) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.6g", std::isfinite(number) ? number : 0.0);
  return append(text.data());
}

}  // namespace tutti
