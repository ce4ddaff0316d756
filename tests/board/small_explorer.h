// Explores every interleaving of a small model, breadth first. A model's Actors have: moves(), how
// many moves there are; move(), which makes one, or returns false; may_never_come(), of moves on
// which nobody may depend; and are_finished(), whether nobody has to go on.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <unordered_set>

namespace tutti::board {

template <class Setup, class State, class Actors>
class SmallExplorer {
 public:
  explicit SmallExplorer(const Setup& setup) : setup_(setup) {}

  // The first violation; "": none in any interleaving.
  std::string explore() {
    State state;
    Actors::begin(state);
    enter(state);
    while (!frontier_.empty() && wrong_.empty()) {
      std::memcpy(static_cast<void*>(&state), &frontier_.front(), sizeof state);
      frontier_.pop_front();
      expand(state);
    }
    return wrong_;
  }
  size_t states() const { return seen_.size(); }

 private:
  // A hash of all of a state's bytes. A collision would hide a fault, not invent one.
  struct Key {
    uint64_t low;
    uint64_t high;
    bool operator==(const Key&) const = default;
  };
  struct Low {
    size_t operator()(const Key& key) const { return key.low; }
  };

  // Progress must not depend on what may never come: all must end without it, too.
  void expand(const State& state) {
    bool any = false;
    for (uint32_t move = 0; move < Actors::moves(setup_); ++move)
      any |= advance(state, move) && !Actors::may_never_come(setup_, move);
    std::string unused;
    State same;
    std::memcpy(static_cast<void*>(&same), &state, sizeof same);
    if (!any && !Actors(setup_, same, unused).are_finished() && wrong_.empty())
      wrong_ = "nobody goes on";
  }
  bool advance(const State& from, uint32_t move) {
    State next;
    std::memcpy(static_cast<void*>(&next), &from, sizeof next);
    Actors actors(setup_, next, wrong_);
    if (!actors.move(move)) return false;
    enter(next);
    return true;
  }
  void enter(const State& state) {
    if (!seen_.insert(hash(state)).second) return;
    frontier_.emplace_back();
    std::memcpy(static_cast<void*>(&frontier_.back()), &state, sizeof state);
  }
  static Key hash(const State& state) {
    Key key{0x9e3779b97f4a7c15, 0xd1b54a32d192ed03};
    for (size_t at = 0; at < sizeof state; at += 8) {
      uint64_t bits;
      std::memcpy(&bits, reinterpret_cast<const unsigned char*>(&state) + at, 8);
      key.low = (key.low ^ bits) * 0xff51afd7ed558ccd;
      key.low ^= key.low >> 29;
      key.high = (key.high + bits) * 0xc4ceb9fe1a85ec53;
      key.high ^= key.high >> 31;
    }
    return key;
  }

  const Setup setup_;
  std::unordered_set<Key, Low> seen_;
  std::deque<State> frontier_;
  std::string wrong_;
};

}  // namespace tutti::board
