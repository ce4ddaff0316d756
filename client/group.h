// What the C ABI's handles hold.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "client/connection.h"
#include "client/strategy.h"

namespace tutti::client {
class Batch;
}

struct tutti_group {
  std::shared_ptr<tutti::client::Connection> connection;
  uint32_t number = 0;          // What requests call it; 0: the whole job.
  uint32_t rank = 0;            // This rank within the group.
  std::vector<uint32_t> ranks;  // The job's ranks, in the group's order.
  std::atomic<bool> left = false;
};

struct tutti_work {
  std::shared_ptr<tutti::client::Connection> connection;
  std::shared_ptr<tutti::client::Ticket> ticket;  // Null: the work is a batch.
  std::shared_ptr<tutti::client::Batch> batch;
};
