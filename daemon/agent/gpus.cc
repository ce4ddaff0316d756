#include "daemon/agent/gpus.h"

#include <spdlog/spdlog.h>

namespace tutti {
namespace {

constexpr Millis kPollInterval{1'000};

std::string describe(const GpuInfo& gpu) {
  const std::string number = "GPU " + std::to_string(gpu.index);
  if (gpu.uuid.empty()) return number;  // It could not be opened.
  return number + " (" + gpu.name + ", " + gpu.uuid + ", " + gpu.pci_bus_id + ")";
}

std::string describe_failure(const GpuInfo& gpu) {
  return describe(gpu) + " " + gpu.state() + "; reset it or restart the node, then restart tuttid";
}

void log_state(const GpuInfo& gpu) {
  if (gpu.fault.empty())
    spdlog::warn("{}: {}; the GPU itself works", describe(gpu), describe_xid(gpu.xid));
  else
    spdlog::error("{}", describe_failure(gpu));
}

void log_found(const GpuInfo& gpu) {
  if (!gpu.fault.empty()) return log_state(gpu);
  spdlog::debug("found {}", describe(gpu));
  if (!gpu.is_watched) spdlog::warn("{}: its driver reports no XIDs", describe(gpu));
}

void add(const GpuInfo& gpu, v1::AgentReport& report) {
  v1::Gpu& out = *report.add_gpus();
  out.set_index(static_cast<uint32_t>(gpu.index));
  out.set_name(gpu.name);
  out.set_uuid(gpu.uuid);
  out.set_pci_bus_id(gpu.pci_bus_id);
  out.set_memory_bytes(gpu.memory_bytes);
  out.set_used_bytes(gpu.used_bytes);
  out.set_mig(gpu.mig);
  out.set_ecc_errors(gpu.ecc_errors);
  out.set_nvlinks(static_cast<uint32_t>(gpu.nvlinks));
  for (const GpuPeer& peer : gpu.peers) {
    v1::GpuPeer& added = *out.add_peers();
    added.set_index(static_cast<uint32_t>(peer.index));
    added.set_path(peer.path);
  }
  out.set_state(gpu.state());
  out.set_failed(!gpu.fault.empty());
  out.set_xid(gpu.xid);
}

}  // namespace

void Gpus::find(const std::string& library) {
  Result<std::unique_ptr<GpuInventory>> found = GpuInventory::open(library);
  if (!found.ok()) return spdlog::debug("no GPUs: {}", found.status().message());
  if ((*found)->gpus().empty()) return spdlog::debug("no GPUs: NVML finds none");
  inventory_ = *std::move(found);
  inventory_->watch();
  for (const GpuInfo& gpu : inventory_->gpus()) log_found(gpu);
  tell_failed();
  poll();
}

void Gpus::poll() {
  const std::vector<int> changed = inventory_->poll();
  for (const int index : changed) log_state(inventory_->gpus()[static_cast<size_t>(index)]);
  if (!changed.empty()) tell_failed();
  timer_ = loop_.at(Clock::now() + kPollInterval, [this] { poll(); });
}

// One that cannot be opened has no UUID; CUDA does not see it either.
void Gpus::tell_failed() {
  v1::AgentToWorker::FailedGpus failed;
  for (const GpuInfo& gpu : inventory_->gpus()) {
    if (gpu.fault.empty() || gpu.uuid.empty()) continue;
    failed.add_gpus()->set_uuid(gpu.uuid);
    failed.mutable_gpus()->rbegin()->set_what(describe_failure(gpu));
  }
  if (failed.gpus_size() != 0) on_failed_(failed);
}

void Gpus::report(v1::AgentReport& report) {
  if (inventory_ == nullptr) return;
  inventory_->refresh();
  for (const GpuInfo& gpu : inventory_->gpus()) add(gpu, report);
}

}  // namespace tutti
