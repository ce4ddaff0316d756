// Streams of workers to agents in simulated time: messages arrive in order, and each end notices
// later than the other that a stream has broken.
#pragma once

#include <functional>
#include <map>

#include "daemon/membership/effects.h"
#include "proto/mesh.pb.h"
#include "tests/membership/simulated_time.h"

namespace tutti::simulated {

// A fault that a test injects to see that it is found. False: the message is dropped.
struct MessageTampering {
  std::function<bool(v1::WorkerMessage&)> to_agent;
  std::function<bool(v1::CoordinatorMessage&)> to_worker;
};

class Network {
 public:
  static constexpr Ms kNoticed = 1'500;  // A peer that is silent for so long is given up.

  // What the ends do. A stream is named by its id.
  struct Ends {
    std::function<bool(int agent, WorkerStream id)> accept;
    std::function<void(int agent, WorkerStream id, const v1::WorkerMessage&)> at_agent;
    std::function<void(int agent, WorkerStream id)> detached;
    std::function<void(int worker)> opened;
    std::function<void(int worker, const v1::CoordinatorMessage&)> at_worker;
    std::function<void(int worker)> broken;
    std::function<const Process&(int)> agent;
    std::function<const Process&(int)> worker;
  };

  Network(Timeline& timeline, const MessageTampering& tampering)
      : timeline_(timeline), tampering_(tampering) {}
  void set_ends(Ends ends) { ends_ = std::move(ends); }

  WorkerStream dial(int worker, int agent);
  // Only while the sender takes it for open.
  void to_agent(WorkerStream id, v1::WorkerMessage message);
  void to_worker(WorkerStream id, v1::CoordinatorMessage message);
  // The worker drops the stream; broken() does not follow.
  void drop(WorkerStream id);
  void cut(WorkerStream id);             // Both ends notice.
  void close_at_agent(WorkerStream id);  // The worker notices.
  // It is dead, or is taken for dead: the workers notice within the time.
  void break_all_of_agent(int agent, bool dies, Ms noticed_within);
  void break_all_of_worker(int worker, bool dies, Ms noticed_within);
  // Both ends take it for open, and nothing is on the way in either direction.
  bool is_quiet(WorkerStream id) const;
  int worker_of(WorkerStream id) const { return streams_.at(id).worker; }

 private:
  struct Stream {
    int worker = 0;
    int agent = 0;
    bool at_worker = true;  // The worker takes it for open, or about to be.
    bool at_agent = false;
    bool opened = false;  // The worker knows that it is accepted.
    Ms agent_has_all = 0;
    Ms worker_has_all = 0;
  };

  Ms latency() { return timeline_.random.between(1, 30); }
  void on_dialled(WorkerStream id);
  void on_accepted(WorkerStream id);
  void break_at_worker(WorkerStream id);
  void break_at_agent(WorkerStream id);

  Timeline& timeline_;
  const MessageTampering& tampering_;
  Ends ends_;
  std::map<WorkerStream, Stream> streams_;
  WorkerStream last_ = 0;
};

}  // namespace tutti::simulated
