// NCCL between the workers of a job: one communicator, of which each host is one rank with one GPU.
//
// Calls of NCCL may block, for ever if a peer is gone. So each communicator has a thread that makes
// all of them, and that the loop's thread never waits for. What NCCL does not do, `supports` says.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "daemon/base/loop.h"
#include "daemon/base/status.h"
#include "daemon/cuda/cuda.h"
#include "daemon/nccl/launch_order.h"
#include "proto/types.h"

namespace tutti::nccl {

// Identifies a communicator that hosts are about to make: NCCL's unique id.
using UniqueId = std::array<char, 128>;

// "2.18.3" of 21803.
std::string version_text(int version);

// Whether NCCL does this collective on values of this type, with the meaning that it has elsewhere.
bool supports(Collective collective, Dtype dtype, Op op);

// A collective among all hosts: tensors of `count` values in the memory of the communicator's GPU,
// which no other work uses before the stream has passed it. `from` may be `to`.
struct Work {
  Collective collective = Collective::all_reduce;  // One that `supports` allows, or broadcast.
  Dtype dtype = Dtype::f32;
  Op op = Op::sum;  // A mean, or a sum of what was multiplied, is a sum here.
  int root = 0;     // A host.
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  uint64_t count = 0;
  cuda::Stream stream = nullptr;
};

struct CommunicatorParts {
  Loop& loop;
  std::string library;
  // How long NCCL may take to make a communicator, or to end one.
  Millis timeout{30'000};
  // Ended communicators count here until NCCL has ended them: the process must not end its normal
  // way before.
  std::shared_ptr<std::atomic<int>> running = std::make_shared<std::atomic<int>>(0);
  // The thread does not come back: this process must end. Called on the loop, at most once.
  std::function<void(const std::string& what)> on_hang;
};

// The loop's thread alone. Functions that are passed in are called on it, later, each once; none
// after the communicator was destroyed.
class Communicator {
 public:
  explicit Communicator(const CommunicatorParts& parts);
  // As finish(), unless it was aborted.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Loads the library, and returns its version. UNAVAILABLE: there is none that can be used.
  void load(std::function<void(Result<int>)> then);
  // After load(): makes an id, which all hosts then begin with.
  void make_id(std::function<void(Result<UniqueId>)> then);
  // After load(): makes the communicator, on the GPU of this context, once all hosts have begun
  // with the same id. `on_failed`: it has met an error later, which ends it; called at most once.
  struct Place {
    const cuda::Driver* driver = nullptr;
    cuda::Context context = nullptr;
    int hosts = 0;
    int self = 0;
  };
  void begin(const UniqueId& id, const Place& place, std::function<void(Status)> then,
             std::function<void(Status)> on_failed);

  // Queues the work on its stream; `launched`: it is queued, or failed. All hosts launch the same
  // work in the same order. A launch counts as under way until settled().
  void launch(const Work& work, std::function<void(Status)> launched);
  // A launched work has left its stream.
  void settled();

  // Ends the communicator, and all its work, wherever it is. Work that has not started does
  // nothing. Does not wait.
  void abort();
  // Ends the communicator once all of its work has ended; what peers still need of it is sent.
  // Does not wait; aborts it where that takes longer than the timeout.
  void finish();
  // NCCL has ended it: its work does nothing any more.
  bool is_ended() const;
  // NCCL was asked to abort it, or has ended it.
  bool is_aborting() const;

 private:
  class Thread;

  static void watch_end(const CommunicatorParts& parts, const std::shared_ptr<Thread>& thread,
                        Millis within);

  const CommunicatorParts parts_;
  const std::shared_ptr<Thread> thread_;
  Lifetime lifetime_;
  bool is_finishing_ = false;
  bool is_aborted_ = false;
};

}  // namespace tutti::nccl
