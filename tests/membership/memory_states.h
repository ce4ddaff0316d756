// A store of states in the memory of one process, for tests.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "daemon/membership/effects.h"
#include "daemon/membership/state_store.h"

namespace tutti {

class MemoryStates final : public StateStore {
 public:
  std::vector<v1::JobState> load() override {
    std::vector<v1::JobState> states;
    for (const auto& [key, state] : kept_) states.push_back(state);
    return states;
  }
  bool save(const std::vector<v1::JobState>& states) override {
    for (const v1::JobState& state : states) {
      const std::string key = key_of(state.owner(), state.job());
      changed_[key] = state;
      kept_[key] = state;
      if (state.epoch() == 0) kept_.erase(key);
    }
    return confirms_;
  }
  std::string obstacle() const override { return {}; }

  // Whether states are saved at once; later otherwise, as the test says.
  void set_confirms(bool confirms) { confirms_ = confirms; }
  // The newest states of what has changed since the last call.
  std::vector<v1::JobState> take_changed() {
    std::vector<v1::JobState> states;
    for (const auto& [key, state] : std::exchange(changed_, {})) states.push_back(state);
    return states;
  }

 private:
  std::map<std::string, v1::JobState> kept_;
  std::map<std::string, v1::JobState> changed_;
  bool confirms_ = true;
};

}  // namespace tutti
