// The node's GPUs as its agent sees them: found at the start, asked once a second whether their
// driver has reported an error. No CUDA context is made. On a node without NVML there is none, and
// nothing is asked.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "daemon/base/loop.h"
#include "daemon/nvml/nvml.h"
#include "proto/mesh.pb.h"
#include "proto/session.pb.h"

namespace tutti {

// Loop thread only.
class Gpus {
 public:
  // `on_failed` is called with all GPUs that have failed when there are some, and when there are
  // more.
  using OnFailed = std::function<void(const v1::AgentToWorker::FailedGpus&)>;
  Gpus(Loop& loop, OnFailed on_failed) : loop_(loop), on_failed_(std::move(on_failed)) {}
  Gpus(const Gpus&) = delete;
  Gpus& operator=(const Gpus&) = delete;
  ~Gpus() { loop_.cancel(timer_); }

  // Finds the GPUs and begins to watch them. `library`: NVML's.
  void find(const std::string& library);
  // Adds the GPUs as they are now.
  void report(v1::AgentReport& report);

 private:
  void poll();
  void tell_failed();

  Loop& loop_;
  const OnFailed on_failed_;
  Loop::TimerId timer_ = 0;
  std::unique_ptr<GpuInventory> inventory_;  // Null where there are no GPUs.
};

}  // namespace tutti
