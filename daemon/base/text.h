// Text that the command line reads and prints: sizes, rates, lists, tables and JSON lines. Pure.
#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "daemon/base/status.h"

namespace tutti {

// Reads "200us", "500ms", "30s", "2m", "1h"; a number needs a unit. INVALID_ARGUMENT names any
// other text.
Result<std::chrono::microseconds> parse_duration(std::string_view text);

// "; did you mean 'status'?" for the word that is spelt most like this one, where one is spelt
// much like it; else empty.
std::string did_you_mean(std::string_view word, std::span<const std::string_view> words);

// Reads "4", "64K", "1MiB", "2g": powers of 1024. INVALID_ARGUMENT names any other text.
Result<uint64_t> parse_byte_size(std::string_view text);
std::string format_byte_size(uint64_t bytes);  // "64 KiB", "1.5 GiB".

// Reads "1gbit", "250mbit", "9600kbit", as tc writes them: bits per second, powers of 1000.
Result<uint64_t> parse_rate(std::string_view text);

std::vector<std::string> split(std::string_view text, char separator);

// Reads the ranks of each host: "3" for all `hosts`, or one number per host: "3,1".
// INVALID_ARGUMENT where there is another number of hosts, or a number is not 1..1024.
Result<std::vector<int>> parse_per_host(std::string_view text, int hosts);

// The names of an ephemeral mesh's hosts: a, b, ... z, aa, ab, ...
std::string host_name(int index);

// At most two decimals, fewer from 100 on, never an exponent: "0.05", "12.34", "1234".
std::string format_number(double value);

// What is no UTF-8, or controls a terminal or the flow of text, becomes '?': see foreign_text.h.
std::string printable(std::string text);

// A table with columns as wide as their widest cell; columns of numbers are aligned right.
class Table {
 public:
  explicit Table(std::vector<std::string> header);
  // As many cells as the header has; they become printable.
  void add(std::vector<std::string> row);
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// Writes one JSON value on one line. Calls nest; within an object each value needs a key:
//   json.open('{').field("host", "a").field("pid", 7).key("ranks").open('[').value(0);
//   json.close().close();
//
// Not protobuf's printer, which quotes 64-bit integers.
class Json {
 public:
  Json& open(char bracket);  // '{' or '['.
  Json& close();
  Json& key(std::string_view name);
  Json& value(std::string_view text);
  Json& value(double number);
  // A number of more digits than a double is printed with.
  Json& digits(std::string_view text) { return append(text); }
  template <std::integral T>
  Json& value(T number) {
    if constexpr (std::is_same_v<T, bool>) return append(number ? "true" : "false");
    return append(std::to_string(number));
  }
  template <class T>
  Json& field(std::string_view name, const T& content) {
    return key(name).value(content);
  }
  const std::string& line() const { return out_; }

 private:
  Json& append(std::string_view token);  // After a comma where one is due.
  std::string out_;
  std::string open_;  // Brackets still to close.
};

}  // namespace tutti
