#include "daemon/group/link_pace.h"

#include <algorithm>
#include <cmath>

namespace tutti {
namespace {

// The kernel counts busy time in steps, and misses as much in the worst case.
constexpr Micros kUnmeasured{20'000};
// What a frame costs beside its bytes: the time of the processors, and a congestion window that
// grows again.
constexpr Micros kFrameTime{50};
constexpr int kRoundTripsAFrame = 4;
// A rate that is higher than the usual one counts for so much; it may be chance.
constexpr double kRise = 0.25;
constexpr double kForgottenAfterS = 86'400;  // To a third, if the link has been slower since.
// A link that was busy for less may be as fast as ever.
constexpr Micros kTelling{250'000};
constexpr double kMicrosASecond = 1e6;

double seconds(Micros time) { return static_cast<double>(time.count()) / kMicrosASecond; }

}  // namespace

size_t LinkPaceMeter::Window::load() const {
  if (length.count() <= 0) return 0;
  const double rate = static_cast<double>(acked_bytes) / seconds(length);
  return std::min(kLoads - 1, static_cast<size_t>(kLoadsADoubling * std::log2(1 + rate)));
}

// Whether both are of the same connections. A stream that opened since began at 0.
bool LinkPaceMeter::continues(const LinkCounts& counts, const LinkCounts& before) {
  if (counts.frames < before.frames || counts.connections.size() < before.connections.size())
    return false;
  for (size_t i = 0; i < before.connections.size(); ++i)
    if (counts.connections[i].acked_bytes < before.connections[i].acked_bytes) return false;
  return true;
}

void LinkPaceMeter::sample(TimePoint now, const LinkCounts& counts, Micros waited) {
  if (!samples_.empty() && !continues(counts, samples_.back().counts)) samples_.clear();
  samples_.push_back({now, counts, waited});
  while (samples_.size() > 2 && now - samples_[1].at >= kWindow) samples_.pop_front();
  if (samples_.size() < 2) return;
  const TimePoint before = samples_[samples_.size() - 2].at;
  learn(window(), std::chrono::duration_cast<Micros>(now - before));
}

LinkPaceMeter::Window LinkPaceMeter::window() const {
  if (samples_.size() < 2) return {};
  const Sample& first = samples_.front();
  const Sample& last = samples_.back();
  Window window{.length = std::chrono::duration_cast<Micros>(last.at - first.at),
                .waited = std::max(Micros(0), last.waited - first.waited)};
  Micros least = Micros::max();
  for (size_t i = 0; i < last.counts.connections.size(); ++i) {
    const ConnectionCounts& now = last.counts.connections[i];
    const bool is_new = i >= first.counts.connections.size();
    const ConnectionCounts before = is_new ? ConnectionCounts() : first.counts.connections[i];
    window.acked_bytes += now.acked_bytes - before.acked_bytes;
    window.retransmits += now.retransmits - std::min(now.retransmits, before.retransmits);
    // Connections of one link are busy at the same time.
    window.busy = std::max(window.busy, now.busy - before.busy);
    window.round_trip = std::max(window.round_trip, now.round_trip);
    if (now.acked_bytes != 0) least = std::min(least, now.least_round_trip);
  }
  window.busy = std::min(window.busy, window.length);
  if (least == Micros::max()) least = Micros(0);
  const auto frames = static_cast<int64_t>(last.counts.frames - first.counts.frames);
  window.latency = std::min(window.busy, frames * (kFrameTime + kRoundTripsAFrame * least));
  return window;
}

// A rate is a lower bound: a link that had little to do may be faster.
void LinkPaceMeter::learn(const Window& window, Micros passed) {
  if (window.length < kWindowMin || window.acked_bytes == 0) return;
  const double rate = static_cast<double>(window.acked_bytes) / seconds(window.busy + kUnmeasured);
  double& usual = usual_.at(window.load());
  if (rate > usual) usual += usual == 0 ? rate : kRise * (rate - usual);
  if (window.busy - window.latency < kTelling) return;
  // It could have moved more, had it been as fast as it was when it did.
  for (size_t load = window.load(); load < kLoads; ++load)
    if (double& faster = usual_.at(load); faster > rate)
      faster = std::max(rate, faster * std::exp(-seconds(passed) / kForgottenAfterS));
}

double LinkPaceMeter::usual_rate(const Window& window) const {
  const size_t load = window.load();  // The class below may be the same load by chance.
  return *std::max_element(usual_.begin() + static_cast<std::ptrdiff_t>(load == 0 ? 0 : load - 1),
                           usual_.end());
}

v1::LinkPace LinkPaceMeter::pace() const {
  v1::LinkPace pace;
  const Window now = window();
  if (now.length < kWindowMin) return pace;
  pace.set_window_us(static_cast<uint64_t>(now.length.count()));
  pace.set_busy_us(static_cast<uint64_t>(std::max<int64_t>(now.busy.count(), 0)));
  pace.set_latency_us(static_cast<uint64_t>(std::max<int64_t>(now.latency.count(), 0)));
  pace.set_acked_bytes(now.acked_bytes);
  pace.set_retransmits(now.retransmits);
  pace.set_round_trip_us(static_cast<uint64_t>(now.round_trip.count()));
  pace.set_usual_bytes_per_second(static_cast<uint64_t>(usual_rate(now)));
  pace.set_waited_us(static_cast<uint64_t>(now.waited.count()));
  return pace;
}

}  // namespace tutti
