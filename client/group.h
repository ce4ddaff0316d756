// What the C ABI's handles hold.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "client/calls.h"

struct tutti_group {
  std::shared_ptr<tutti::client::Connection> connection;
  std::shared_ptr<tutti::client::Calls> calls;
  bool is_job = false;          // The whole job, and no sub-group.
  uint32_t rank = 0;            // This rank within the group.
  std::vector<uint32_t> ranks;  // The job's ranks, in the group's order.
  uint32_t hosts = 1;           // That they live on.
  std::atomic<bool> left = false;
};

struct tutti_work {
  std::shared_ptr<tutti::client::Connection> connection;
  std::shared_ptr<tutti::client::Calls> calls;
  std::shared_ptr<tutti::client::Ticket> ticket;
};
