// What a worker measures while operations run: their durations, the rate of incoming bytes, and the
// delay of answers to probes. Pure: the caller passes all times.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/base/loop.h"
#include "daemon/base/op_id.h"

namespace tutti {

// What was measured of the way from one host to another; 0: not yet.
struct LinkFigures {
  double message_us = 0;
  double byte_us = 0;
  bool of_data = false;  // byte_us is of data frames, which is more accurate than of probes.
  bool operator==(const LinkFigures&) const = default;
};

// Durations of operations on this host. Only operations that ran alone are measured.
class OpClock {
 public:
  // `op`: of the epoch that is measured.
  void started(const EpochOp& op, TimePoint now);
  // The operation's duration in microseconds; 0: it did not run alone, or was not started.
  uint32_t ended(const EpochOp& op, TimePoint now);

 private:
  struct Run {
    TimePoint from;
    bool alone = true;
  };
  std::map<EpochOp, Run> running_;
};

// The rate of incoming data from each host: the time per byte between consecutive frames of one
// operation. It follows a faster rate quickly and a slower one slowly, because a sender that has to
// wait looks like a slow link.
class RateMeter {
 public:
  explicit RateMeter(size_t hosts) : hosts_(hosts) {}
  void frame(int host, const OpId& key, uint64_t bytes, TimePoint now);
  // 0: unknown.
  double byte_us(int host) const { return hosts_[static_cast<size_t>(host)].byte_us; }
  // The hosts whose figure changed since the last call that returned them; empty unless one changed
  // by a fifth and kReportEvery has passed.
  std::vector<int> take_changed(TimePoint now);

  // Least bytes and time of a sample. Frames that came by several data streams are delivered
  // together, which says nothing of their rate.
  static constexpr uint64_t kWindowBytes = uint64_t{1} << 20;
  static constexpr Micros kWindow{100};
  static constexpr Millis kReportEvery{250};

 private:
  struct Host {
    OpId key;
    TimePoint first{};
    uint64_t bytes = 0;  // Since `first`.
    double byte_us = 0;
    double reported = 0;
  };
  std::vector<Host> hosts_;
  bool any_changed_ = false;
  TimePoint last_report_{};
};

// Measures links by probes: for each host a series of kSmall empty questions, then, if `padding` is
// not 0, kLarge questions of `padding` bytes, each sent when the one before is answered. The least
// delay of each kind counts, because longer ones include other work.
class Prober {
 public:
  static constexpr int kSmall = 8;
  static constexpr int kLarge = 6;
  static constexpr Millis kAgainAfter{60'000};
  static constexpr Millis kVagueAgainAfter{100};

  struct Question {
    uint32_t number = 0;
    uint64_t padding = 0;
  };
  explicit Prober(size_t hosts) : hosts_(hosts) {}
  // Starts a series; returns its first question, or nothing while one is open.
  std::optional<Question> begin(int host, uint64_t padding, TimePoint now);
  // Handles an answer. Returns the next question, or the figures at the end of the series, or
  // neither if the answer was not awaited.
  struct Next {
    std::optional<Question> question;
    std::optional<LinkFigures> figures;
  };
  Next answered(int host, uint32_t number, TimePoint now);
  // No series is open, and the last question is older than kAgainAfter; or kVagueAgainAfter where
  // large ones took no longer than empty ones, because others used the cores.
  bool is_due(int host, TimePoint now) const;

 private:
  struct Host {
    uint32_t number = 0;  // The last question's.
    bool open = false;
    bool asked = false;
    bool is_vague = false;  // The last series has not told what a byte takes.
    int step = 0;
    uint64_t padding = 0;
    TimePoint sent;
    double small_us = 0;
    double large_us = 0;
  };
  static Question ask(Host& host, TimePoint now);
  static LinkFigures figures_of(const Host& host);

  std::vector<Host> hosts_;
};

}  // namespace tutti
