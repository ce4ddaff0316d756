// The part of Worker that ends it after a fault of a GPU, which the driver tells it, or the agent.
// By the driver's documentation only a new process can use CUDA then; the agent starts one when a
// rank joins.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "daemon/worker/worker.h"

namespace tutti {
namespace {

// How often the driver is asked while operations are under way on GPUs, of which it may never tell
// the end, and the engine whether those that failed are settled.
constexpr Millis kGpuLookInterval{100};

}  // namespace

void Worker::watch_gpus() {
  if (gpu_timer_ != 0) return;
  gpu_timer_ = loop_.at(Clock::now() + kGpuLookInterval, [this] {
    gpu_timer_ = 0;
    if (GpuSet* gpus = gpu_memory_.gpus(); gpus != nullptr) gpus->look_for_faults();
    const bool any_unsettled = engine_->settle();
    const bool any_call = std::ranges::any_of(
        epochs_, [](const auto& epoch) { return epoch.second->has_gpu_calls(); });
    if (any_unsettled || any_call) watch_gpus();
  });
}

void Worker::on_failed_gpus(const v1::AgentToWorker::FailedGpus& failed) {
  std::map<std::string, std::string> gpus;
  for (const auto& gpu : failed.gpus()) gpus.emplace(gpu.uuid(), gpu.what());
  gpu_memory_.set_failed(std::move(gpus));
}

// Epochs that ended before may have operations left that are settled only now.
void Worker::on_gpu_fault() {
  stopping_ = true;
  loop_.cancel(std::exchange(idle_timer_, 0));
  const Status fault = gpu_fault_->status();
  const Status cause(fault.code(), fault.message(), {-1, settings_.host});
  spdlog::error("{}", cause.message());
  for (auto& [number, epoch] : epochs_) {
    epoch->group().abort(cause);
    engine_->abort(number, cause);
  }
  refuse_joining(aborted("the worker of job " + job_ + " is ending; join again"));
  for (const auto& [number, served] : trainers_)
    if (!served.ended) coordinator_->report_gone(served.epoch, served.rank, cause);
  loop_.at(Clock::now() + kShutdownGrace, [this] {
    agent_->close();
    loop_.stop();
  });
}

void Worker::refuse_joining(const Status& why) {
  for (auto& [number, served] : trainers_) {
    if (served.epoch != 0 || served.ended) continue;
    coordinator_->report_gone(0, served.rank, {});
    refuse_join(number, served, why);
  }
}

}  // namespace tutti
