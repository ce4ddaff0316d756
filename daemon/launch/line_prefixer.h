// Puts "[rank] " before every line that a rank writes. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tutti {

// Longer lines are broken.
inline constexpr size_t kLineBytesMax = size_t{1} << 20;

// A line ends with \n, \r\n or, as progress bars write it, \r.
class LinePrefixer {
 public:
  explicit LinePrefixer(int rank) : prefix_("[" + std::to_string(rank) + "] ") {}

  // Returns the lines that `bytes` complete, prefixed.
  std::string add(std::string_view bytes);
  // Returns the unfinished line, prefixed and with a \n; "" where there is none.
  std::string finish();

 private:
  std::string prefix_;
  std::string pending_;  // The unfinished line.
};

}  // namespace tutti
