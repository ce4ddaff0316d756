// A KeyStore in the memory of one process, for tests.
#pragma once

#include <memory>

#include "daemon/control/key_store.h"

namespace tutti {

inline constexpr Millis kTtl{2'000};

// What the stores of several agents have in common. Thread-safe.
class MemoryKeys {
 public:
  MemoryKeys();
  ~MemoryKeys();

  std::unique_ptr<KeyStore> open();  // Another agent's; this must outlive it.
  // While it does not answer, calls fail with UNAVAILABLE and watches break. Leases do not end.
  void set_answers(bool answers);
  // Takes the time for leases from here, not from the clock.
  void advance(Millis time);

  struct State;

 private:
  const std::unique_ptr<State> state_;
};

}  // namespace tutti
