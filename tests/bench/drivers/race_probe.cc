// How much two threads do in the time of one: 2 on two free cores, 1 where they share one.
#include <chrono>
#include <cstdio>
#include <thread>

namespace {

constexpr long kSteps = 20'000'000;

double work() {
  double sums[8] = {};
  for (long step = 0; step < kSteps; ++step)
    for (double& sum : sums) sum = sum * 0.999 + 1;
  return sums[0] + sums[7];
}

double seconds_of(int threads) {
  volatile double kept = 0;
  const auto start = std::chrono::steady_clock::now();
  std::thread other([&] { kept = threads > 1 ? work() : 0; });
  const double mine = work();
  other.join();
  kept = kept + mine;
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

int main() {
  const double one = seconds_of(1);
  std::printf("%.2f\n", 2 * one / seconds_of(2));
}
