// How fast a link to another host moves bytes while it has some to move, by what the kernel counts
// of its connections, and how fast it used to. Pure: time is given.
//
// Like is compared with like. A link is judged by the time in which it had bytes to move, and not
// by the pauses between operations. A window of time is compared with earlier ones in which at
// least about as much was moved: a few bytes may pass through buffers that many would fill. And the
// time that round trips take is known apart, so that small frames do not look slow.
#pragma once

#include <array>
#include <deque>

#include "daemon/base/loop.h"
#include "daemon/group/links.h"
#include "proto/session.pb.h"

namespace tutti {

class LinkPaceMeter {
 public:
  static constexpr Millis kWindow{5'000};
  static constexpr Millis kWindowMin{900};  // Less says nothing.

  // To be called about once a second. `waited`: how long the threads of this process have waited
  // for a processor since it began.
  void sample(TimePoint now, const LinkCounts& counts, Micros waited);
  // The link is gone, or nobody looks: what is usual for it stays known.
  void pause() { samples_.clear(); }
  // Without `to`; window_us is 0 where the last window is too short.
  v1::LinkPace pace() const;

 private:
  struct Sample {
    TimePoint at;
    LinkCounts counts;
    Micros waited;
  };
  struct Window {
    Micros length{0};
    Micros busy{0};
    Micros latency{0};
    uint64_t acked_bytes = 0;
    uint64_t retransmits = 0;
    Micros round_trip{0};
    Micros waited{0};
    size_t load() const;  // The class of its bytes a second.
  };
  static constexpr size_t kLoadsADoubling = 4;
  static constexpr size_t kLoads = 40 * kLoadsADoubling;  // To a terabyte a second.

  static bool continues(const LinkCounts& counts, const LinkCounts& before);
  Window window() const;
  void learn(const Window& window, Micros passed);
  double usual_rate(const Window& window) const;

  std::deque<Sample> samples_;
  std::array<double, kLoads> usual_{};  // Bytes a second of busy time by load(); 0: not known.
};

}  // namespace tutti
