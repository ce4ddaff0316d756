// What a worker measures while operations run, pure: how long they took, how fast bytes came in,
// how soon a message was answered. Times come in; nothing here asks for them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/base/loop.h"
#include "daemon/base/op_key.h"

namespace tutti {

// How long operations ran on this host. Only those that ran alone count.
class OpClock {
 public:
  using Key = std::pair<uint32_t, uint64_t>;  // Group, seq.
  void started(const Key& key, TimePoint now);
  void ended(const Key& key, TimePoint now);
  // Of the last operation of a group, if it was this one and ran alone; once. 0: not known.
  uint32_t take_us(const Key& key);

 private:
  struct Run {
    TimePoint from;
    bool alone = true;
  };
  struct Last {
    uint64_t seq = 0;
    uint32_t us = 0;
  };
  std::map<Key, Run> running_;
  std::map<uint32_t, Last> last_;  // By group.
};

// How fast data comes in from each host: the time a byte takes while one operation's frames come
// one after the other. Quick to believe that a link is faster, slow to believe that it is slower,
// since a sender that has to wait looks like a slow link.
class RateMeter {
 public:
  explicit RateMeter(size_t hosts) : hosts_(hosts) {}
  void frame(int host, const OpKey& key, uint64_t bytes, TimePoint now);
  double byte_us(int host) const {
    return hosts_[static_cast<size_t>(host)].byte_us;
  }  // 0: unknown.
  // The hosts whose figure has moved enough to tell; each is told once, and all no oftener than
  // kNewsEvery.
  std::vector<int> take_news(TimePoint now);

  static constexpr uint64_t kWindowBytes = uint64_t{1} << 20;
  static constexpr Millis kNewsEvery{250};

 private:
  struct Host {
    OpKey key;
    TimePoint first{};
    uint64_t bytes = 0;  // Since `first`.
    double byte_us = 0;
    double told = 0;
  };
  std::vector<Host> hosts_;
  bool any_news_ = false;
  TimePoint last_news_{};
};

// Small questions to other hosts, one after the other: kSmall empty ones, then, where asked,
// kLarge of `padding` bytes. The least of each kind counts: what took longer met other work.
class Prober {
 public:
  static constexpr int kSmall = 8;
  static constexpr int kLarge = 6;
  static constexpr Millis kAgainAfter{60'000};

  struct Question {
    uint32_t number = 0;
    uint64_t padding = 0;
  };
  struct Findings {
    double message_us = 0;
    double byte_us = 0;  // 0: not asked for.
  };

  explicit Prober(size_t hosts) : hosts_(hosts) {}
  // The first question to a host; nothing while others are open.
  std::optional<Question> begin(int host, uint64_t padding, TimePoint now);
  // An answer. What comes next: a question, or the findings; neither where none was awaited.
  struct Next {
    std::optional<Question> question;
    std::optional<Findings> findings;
  };
  Next answered(int host, uint32_t number, TimePoint now);
  // Never asked, or long ago.
  bool is_due(int host, TimePoint now) const;

 private:
  struct Host {
    uint32_t number = 0;  // Of the last question.
    bool open = false;
    bool asked = false;
    int step = 0;
    uint64_t padding = 0;
    TimePoint sent;
    double small_us = 0;
    double large_us = 0;
  };
  static Question ask(Host& host, TimePoint now);
  static Findings findings_of(const Host& host);

  std::vector<Host> hosts_;
};

}  // namespace tutti
