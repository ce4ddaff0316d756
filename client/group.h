// The handles of the C ABI.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "client/completer.h"

struct tutti_group {
  std::shared_ptr<tutti::client::Connection> connection;
  std::shared_ptr<tutti::client::OpQueue> queue;
  std::shared_ptr<tutti::client::Completer> completer;
  bool is_job = false;          // The group of the whole job, not a sub-group.
  uint32_t rank = 0;            // This rank within the group.
  std::vector<uint32_t> ranks;  // The job's ranks, in the group's order.
  uint32_t hosts = 1;           // Number of hosts of the ranks.
  std::atomic<bool> left = false;
};

struct tutti_work {
  std::shared_ptr<tutti::client::Connection> connection;
  std::shared_ptr<tutti::client::OpQueue> queue;
  std::shared_ptr<tutti::client::PendingOp> op;
  std::shared_ptr<tutti::client::Completer> completer;  // Of the group.
  // An eventfd that tutti_work_fd() made. The completer writes to it, perhaps after the handle.
  std::shared_ptr<const tutti::Fd> ended;
  std::mutex ended_mutex{};  // Guards `ended`.
};
