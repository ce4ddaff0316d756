// The handles of the C ABI.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "client/operations/awaitable.h"
#include "client/rank/task_thread.h"

namespace tutti::client {
class Messenger;
class StreamFailure;
}  // namespace tutti::client

struct tutti_group {
  std::shared_ptr<tutti::client::Connection> connection;
  std::shared_ptr<tutti::client::OpQueue> queue;
  std::shared_ptr<tutti::client::TaskThread> completer;  // Calls functions after operations.
  std::shared_ptr<tutti::client::TaskThread> passer;     // Passes tensors: see passing.h.
  std::shared_ptr<tutti::client::Messenger> messenger;   // Null where no rank sends messages.
  // For operations on streams.
  std::shared_ptr<tutti::client::StreamFailure> stream_failure;
  bool is_job = false;          // The group of the whole job, not a sub-group.
  uint32_t number = 0;          // The same on all hosts; 0: of the whole job.
  uint32_t rank = 0;            // This rank within the group.
  std::vector<uint32_t> ranks;  // The job's ranks, in the group's order.
  uint32_t hosts = 1;           // Number of hosts of the ranks.
  std::atomic<bool> left = false;
};

struct tutti_work {
  std::shared_ptr<tutti::client::Connection> connection;
  std::shared_ptr<tutti::client::TaskThread> completer;  // Of the group.
  std::shared_ptr<tutti::client::Awaitable> awaited;
  // An eventfd that tutti_work_fd() made. The completer writes to it, perhaps after the handle.
  std::shared_ptr<const tutti::Fd> ended;
  std::mutex ended_mutex{};  // Guards `ended`.
};

namespace tutti::client {

// Completes a group whose connection, rank and ranks are set, without a messenger.
void complete_group(tutti_group& group, const Connection::Subgroup& subgroup);

}  // namespace tutti::client
