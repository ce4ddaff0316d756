// Figures in words. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tutti {

// "rank 2", "ranks 1-3, 5".
std::string describe_ranks(const std::vector<uint32_t>& ranks);
std::string describe_seconds(double seconds);  // "200 ms", "14 s", "3 min".

}  // namespace tutti
