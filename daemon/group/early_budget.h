// How much may be sent to hosts that have not started an operation. Pure; one host's side.
//
// A host keeps the data of operations that it has yet to start, so its memory must be guarded: to
// each host no more than a budget is sent of operations that it is not known to have started. It is
// known by any data of the operation that comes from there, or by its answer to a Want, which is
// sent when the budget is spent, and answered as soon as the operation has started or is over. What
// is known to have started needs no budget: so an operation that all its hosts have started never
// waits for another, in whatever order the hosts start them.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "daemon/group/messages.h"

namespace tutti {

class EarlyBudget {
 public:
  EarlyBudget(size_t hosts, uint64_t budget_bytes) : budget_(budget_bytes), spent_(hosts) {}

  enum class Way : uint8_t {
    go,
    ask,   // Not now: send that host a Want.
    wait,  // Not now.
  };
  // Whether so much of an operation that runs here may be sent.
  Way admit(int host, const Key& key, uint64_t bytes) {
    Towards& to = operations_[key][host];
    if (to.known) return Way::go;
    if (spent_[static_cast<size_t>(host)] + bytes <= budget_) {
      spent_[static_cast<size_t>(host)] += bytes;
      to.spent += bytes;
      return Way::go;
    }
    waiting_ = true;
    return std::exchange(to.asked, true) ? Way::wait : Way::ask;
  }
  // What was admitted could not be sent after all.
  void take_back(int host, const Key& key, uint64_t bytes) {
    Towards& to = operations_[key][host];
    if (to.known) return;
    to.spent -= bytes;
    spent_[static_cast<size_t>(host)] -= bytes;
  }
  // The host has started it, or drops what comes of it.
  void known(int host, const Key& key) {
    Towards& to = operations_[key][host];
    to.known = true;
    give_back(host, to);
  }
  // Here. What was sent of it will be used or dropped.
  void over(const Key& key) {
    wanted_.erase(key);
    auto ended = operations_.extract(key);
    if (ended.empty()) return;
    for (auto& [host, to] : ended.mapped()) give_back(host, to);
  }
  // Whether something that had to wait may have to no more. Once.
  bool take_news() { return std::exchange(news_, false); }

  // ---- As the one who is asked ----

  // It has not started here yet.
  void want(int host, const Key& key) { wanted_[key].insert(host); }
  // It has now, or is over: whom to tell.
  std::set<int> take_wanting(const Key& key) {
    const auto found = wanted_.extract(key);
    return found.empty() ? std::set<int>() : found.mapped();
  }
  size_t size() const { return operations_.size() + wanted_.size(); }

 private:
  struct Towards {
    bool known = false;
    bool asked = false;
    uint64_t spent = 0;
  };
  void give_back(int host, Towards& to) {
    spent_[static_cast<size_t>(host)] -= std::exchange(to.spent, 0);
    news_ = std::exchange(waiting_, false) || news_;
  }

  const uint64_t budget_;
  std::vector<uint64_t> spent_;  // By host.
  std::map<Key, std::map<int, Towards>> operations_;
  std::map<Key, std::set<int>> wanted_;
  bool waiting_ = false;
  bool news_ = false;
};

}  // namespace tutti
