#include "daemon/worker/link_watch.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <tuple>

namespace tutti {
namespace {

constexpr Millis kPeriod{1'000};
constexpr size_t kReportedMax = 16;

// How long the threads of this process have waited for a processor, summed up; 0 if the kernel does
// not tell.
Micros processor_wait() {
  uint64_t sum_ns = 0;
  std::error_code error;
  std::filesystem::directory_iterator thread("/proc/self/task", error);
  for (; thread != std::filesystem::directory_iterator(); thread.increment(error)) {
    uint64_t ran_ns = 0;
    uint64_t waited_ns = 0;
    if (std::ifstream(thread->path() / "schedstat") >> ran_ns >> waited_ns) sum_ns += waited_ns;
  }
  return std::chrono::duration_cast<Micros>(std::chrono::nanoseconds(sum_ns));
}

}  // namespace

void LinkWatch::start() {
  if (timer_ == 0) look();
}

void LinkWatch::look() {
  timer_ = 0;
  std::set<std::string> seen;
  const std::vector<LinkCounts> all = counts_();
  const Micros waited = all.empty() ? Micros(0) : processor_wait();
  for (const LinkCounts& counts : all) {
    meters_[counts.host].sample(Clock::now(), counts, waited);
    seen.insert(counts.host);
  }
  for (auto& [host, meter] : meters_)
    if (!seen.contains(host)) meter.pause();
  if (!all.empty()) timer_ = loop_.at(Clock::now() + kPeriod, [this] { look(); });
}

std::vector<v1::LinkPace> LinkWatch::paces() const {
  std::vector<v1::LinkPace> paces;
  for (const auto& [host, meter] : meters_) {
    paces.push_back(meter.pace());
    paces.back().set_to(host);
  }
  const auto weight = [](const v1::LinkPace& pace) {
    return std::tuple(pace.busy_us(), pace.acked_bytes(), pace.window_us());
  };
  std::ranges::sort(paces, std::greater<>(), weight);
  const auto idle = std::ranges::find(paces, 0U, &v1::LinkPace::acked_bytes);
  const auto moving = static_cast<size_t>(idle - paces.begin());
  paces.resize(std::min({paces.size(), std::max<size_t>(moving, 1), kReportedMax}));
  return paces;
}

}  // namespace tutti
