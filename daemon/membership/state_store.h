// Where states of jobs outlive the coordinator that hands them out.
#pragma once

#include <string>
#include <vector>

#include "proto/mesh.pb.h"

namespace tutti {

// Called by one thread at a time, and may write a file meanwhile.
class StateStore {
 public:
  virtual ~StateStore() = default;
  // What is saved. Where that cannot be read it is nothing, and the log says why. A state that its
  // reader refuses stays until the job has a new one: a newer version may have written it, which
  // reads it again.
  virtual std::vector<v1::JobState> load() = 0;
  // Saves the states; one of epoch 0 says that the job is to be forgotten. True: saved.
  // False: saved later, in the order of these calls, or never; the store's maker learns when.
  virtual bool save(const std::vector<v1::JobState>& states) = 0;
  // What prevents it from saving states; empty: nothing.
  virtual std::string obstacle() const = 0;
};

}  // namespace tutti
