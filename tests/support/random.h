// Random numbers of simulations: small, fast, and the same everywhere.
#pragma once

#include <cstdint>

namespace tutti::simulated {

class Random {  // splitmix64
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  int below(int end) { return static_cast<int>(next() % static_cast<uint64_t>(end)); }
  int between(int first, int last) { return first + below(last - first + 1); }
  bool chance(int percent) { return below(100) < percent; }

 private:
  uint64_t state_;
};

}  // namespace tutti::simulated
