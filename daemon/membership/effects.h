// What a rule of membership decides, as a value: the control plane saves the states, then sends the
// messages.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "daemon/membership/values.h"
#include "proto/mesh.pb.h"

namespace tutti {

using WorkerStream = uint64_t;  // Identifies one stream of a worker; never 0, never reused.

struct Effects {
  struct Message {
    WorkerStream to;
    v1::CoordinatorMessage body;
  };

  void save_state(const v1::JobState& state) { save[key_of(state.owner(), state.job())] = state; }
  void send_to(const std::set<WorkerStream>& workers, const v1::CoordinatorMessage& message) {
    for (const WorkerStream worker : workers) send.push_back({worker, message});
  }

  // By owner and job. The epoch of one that is to be forgotten is 0.
  std::map<std::string, v1::JobState> save;
  std::vector<Message> send;
  std::vector<v1::RefusedJoin> refused;  // As the messages say it, with whose joins they were.
};

}  // namespace tutti
