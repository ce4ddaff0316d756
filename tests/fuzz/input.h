// A fuzzer's input, taken piece by piece. What is not there any more is zero.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace tutti::fuzz {

class Input {
 public:
  Input(const uint8_t* data, size_t size) : left_(reinterpret_cast<const char*>(data), size) {}

  // For a type that may hold any bytes.
  template <class Plain>
  Plain take() {
    Plain value{};
    const size_t bytes = std::min(sizeof(value), left_.size());
    if (bytes > 0) std::memcpy(&value, left_.data(), bytes);
    left_.remove_prefix(bytes);
    return value;
  }
  std::string_view take_text(size_t most) {
    const std::string_view text = left_.substr(0, most);
    left_.remove_prefix(text.size());
    return text;
  }
  std::string_view rest() const { return left_; }
  bool at_end() const { return left_.empty(); }

 private:
  std::string_view left_;
};

}  // namespace tutti::fuzz
