// Parsing and formatting for the command line: sizes, rates, lists, tables and JSON lines. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/status.h"

namespace tutti {

// "4", "64K", "1MiB", "2g": powers of 1024. INVALID_ARGUMENT naming the text otherwise.
Result<uint64_t> parse_byte_size(std::string_view text);
std::string format_byte_size(uint64_t bytes);  // "64 KiB", "1.5 GiB".

// "1gbit", "250mbit", "9600kbit", as tc writes them: bits per second, powers of 1000.
Result<uint64_t> parse_rate(std::string_view text);

std::vector<std::string> split(std::string_view text, char separator);

// "3" for each of `hosts`, or one number a host: "3,1". INVALID_ARGUMENT where the counts differ,
// a number is not 1..1024, or `text` is no such list.
Result<std::vector<int>> parse_per_host(std::string_view text, int hosts);

// a, b, ... z, aa, ab, ...: the names of an ephemeral mesh's hosts.
std::string host_name(int index);

// Four significant digits at most where they fit, never an exponent: "12.34", "1234", "0.05".
std::string format_number(double value);

// Columns are as wide as their widest cell; numbers are aligned right, words left.
class Table {
 public:
  explicit Table(std::vector<std::string> header);
  void add(std::vector<std::string> row);  // As many cells as the header has.
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// Builds one JSON value on one line. Calls nest; keys come first within an object:
//   json.open('{').key("host").text("a").key("pid").number(7).close();
class Json {
 public:
  Json& open(char bracket);  // '{' or '['.
  Json& close();
  Json& key(std::string_view name);
  Json& text(std::string_view value);
  Json& number(uint64_t value);
  Json& number(double value);
  Json& boolean(bool value);
  const std::string& line() const { return out_; }

 private:
  void separate();
  std::string out_;
  std::string open_;  // Brackets still to close.
};

}  // namespace tutti
