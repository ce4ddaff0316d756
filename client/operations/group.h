// A group of ranks, as the operations and messages of one of them need it.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "client/gpu/device_memory.h"
#include "client/operations/op_queue.h"
#include "client/rank/task_thread.h"

namespace tutti::client {

// Who is in a group, and this rank among them.
struct Members {
  std::shared_ptr<Connection> connection;
  std::shared_ptr<DeviceMemory> device_memory;
  uint32_t number = 0;          // Of the group, the same on all hosts; 0: of the whole job.
  uint32_t rank = 0;            // This rank, within the group.
  std::vector<uint32_t> ranks;  // The job's ranks, in the group's order.

  // "rank 3 (host b)", of the group.
  std::string name_of(uint32_t rank) const;
  // The same, to blame it.
  Culprit culprit(uint32_t rank) const;
};

struct Group : Members {
  std::shared_ptr<OpQueue> queue;
  std::shared_ptr<TaskThread> completer;          // Calls functions after operations.
  std::shared_ptr<TaskThread> passer;             // Passes tensors: see passing.h.
  std::shared_ptr<StreamFailure> stream_failure;  // For operations on streams.
  bool is_channel = false;                        // Of two ranks, for messages: see channel.h.
  uint32_t hosts = 1;                             // Number of hosts of the ranks.
  std::atomic<bool> left = false;
};

// Completes a group whose connection, memory on GPUs, rank and ranks are set.
void complete_group(Group& group, const Connection::Subgroup& subgroup);

}  // namespace tutti::client
