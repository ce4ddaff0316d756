// A queue of things that wait, each from a source. Where there are too many, the oldest of the
// source that has most makes room, so that one source cannot drive out the others.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace tutti {

// Not thread-safe.
template <class T>
class FairQueue {
 public:
  void push(std::string source, T item) {
    ++counts_[source];
    entries_.push_back({std::move(source), std::move(item)});
  }
  // Removes what makes room if there are more than `most`. For sources that have equally many, that
  // of the oldest.
  std::optional<T> pop_beyond(size_t most) {
    if (entries_.size() <= most) return std::nullopt;
    size_t largest = 0;
    for (const auto& [source, count] : counts_) largest = std::max(largest, count);
    return take(std::ranges::find_if(
        entries_, [&](const Entry& entry) { return counts_.at(entry.source) == largest; }));
  }
  // Removes and returns the oldest for which `is_it` holds.
  template <class IsIt>
  std::optional<T> remove_if(IsIt is_it) {
    const auto found =
        std::ranges::find_if(entries_, [&](const Entry& entry) { return is_it(entry.item); });
    return found == entries_.end() ? std::nullopt : take(found);
  }
  std::optional<T> pop() { return entries_.empty() ? std::nullopt : take(entries_.begin()); }
  // Null if there is none.
  const T* oldest() const { return entries_.empty() ? nullptr : &entries_.front().item; }
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::string source;
    T item;
  };

  std::optional<T> take(typename std::list<Entry>::iterator entry) {
    const auto count = counts_.find(entry->source);
    if (--count->second == 0) counts_.erase(count);
    std::optional<T> taken(std::move(entry->item));
    entries_.erase(entry);
    return taken;
  }

  std::list<Entry> entries_;  // Oldest first.
  std::map<std::string, size_t> counts_;
};

}  // namespace tutti
