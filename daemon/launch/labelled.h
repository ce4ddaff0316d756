// What a rank writes, line by line, each with the rank before it. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tutti {

// A longer line is broken.
inline constexpr size_t kLabelledLineMax = size_t{1} << 20;

// A line ends with \n, \r\n, or, as progress bars write it, \r.
class Labelled {
 public:
  explicit Labelled(int rank) : label_("[" + std::to_string(rank) + "] ") {}

  // The lines that `bytes` complete.
  std::string add(std::string_view bytes);
  // What is left at the end, as a line; "" where nothing is.
  std::string finish();

 private:
  std::string label_;
  std::string pending_;  // Of an unfinished line.
};

}  // namespace tutti
