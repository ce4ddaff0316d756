#include <algorithm>
#include <array>

#include "daemon/base/foreign_text.h"
#include "daemon/nvml/library.h"
#include "daemon/nvml/nvml.h"

namespace tutti {
namespace {

using nvml::call;
using nvml::kSuccess;

constexpr int kEventsMax = 64;  // Of one poll.

struct Path {
  int distance = 0;  // Less is nearer.
  GpuPeer peer;
};

std::string topology_name(int level) {
  switch (level) {
    case nvml::kTopologyInternal:
    case nvml::kTopologySingle:
      return "PIX";
    case nvml::kTopologyMultiple:
      return "PXB";
    case nvml::kTopologyHostBridge:
      return "PHB";
    case nvml::kTopologyNode:
      return "NODE";
    default:
      return "SYS";
  }
}

class NvmlInventory final : public GpuInventory {
 public:
  explicit NvmlInventory(const nvml::Library& library) : nvml_(library) {}
  NvmlInventory(const NvmlInventory&) = delete;
  NvmlInventory& operator=(const NvmlInventory&) = delete;
  ~NvmlInventory() override;

  Status start();
  const std::vector<GpuInfo>& gpus() const override { return gpus_; }
  void refresh() override;
  void watch() override;
  std::vector<int> poll() override;

 private:
  bool works(size_t gpu) const { return devices_[gpu] != nullptr && gpus_[gpu].fault.empty(); }
  void find(unsigned index);
  void identify(size_t gpu);
  void measure(size_t gpu);
  int count_nvlinks(size_t gpu, const std::string& to) const;
  int nvlinks_between(size_t from, size_t to) const;
  Path path_between(size_t from, size_t to) const;
  void find_peers(size_t gpu);
  void note_event(const nvml::EventData& event, std::vector<int>& changed);
  void note_xid(size_t gpu, uint64_t xid, std::vector<int>& changed);
  void find_lost(std::vector<int>& changed);

  const nvml::Library nvml_;
  bool is_started_ = false;
  nvml::EventSet events_ = nullptr;
  std::vector<nvml::Device> devices_;  // By index; null: NVML cannot use it.
  std::vector<GpuInfo> gpus_;
};

NvmlInventory::~NvmlInventory() {
  if (events_ != nullptr) call(nvml_.event_set_free, events_);
  if (is_started_) nvml_.shutdown();
}

Status NvmlInventory::start() {
  nvml::Return result = nvml_.init();
  is_started_ = result == kSuccess;
  unsigned count = 0;
  if (is_started_) result = nvml_.device_get_count(&count);
  if (result != kSuccess)
    return unavailable("NVML does not start: " + std::string(nvml_.error_string(result)) +
                       "; nvidia-smi shows what is wrong with the driver");
  for (unsigned index = 0; index < count; ++index) find(index);
  for (size_t gpu = 0; gpu < gpus_.size(); ++gpu)
    if (works(gpu)) find_peers(gpu);
  return {};
}

void NvmlInventory::find(unsigned index) {
  nvml::Device device = nullptr;
  const nvml::Return result = nvml_.device_get_handle_by_index(index, &device);
  devices_.push_back(result == kSuccess ? device : nullptr);
  GpuInfo& info = gpus_.emplace_back();
  info.index = static_cast<int>(index);
  if (result != kSuccess) {
    info.fault = nvml_.error_string(result);
    return;
  }
  identify(index);
  measure(index);
}

void NvmlInventory::identify(size_t gpu) {
  GpuInfo& info = gpus_[gpu];
  std::array<char, nvml::kNameBytes> name{};
  if (nvml_.device_get_name(devices_[gpu], name.data(), name.size()) == kSuccess)
    info.name = clean_text(name.data());
  std::array<char, nvml::kUuidBytes> uuid{};
  if (nvml_.device_get_uuid(devices_[gpu], uuid.data(), uuid.size()) == kSuccess)
    info.uuid = uuid.data();
  nvml::PciInfo pci{};
  if (nvml_.device_get_pci_info(devices_[gpu], &pci) == kSuccess) info.pci_bus_id = pci.bus_id;
  unsigned mig = 0;
  unsigned pending = 0;
  info.mig = call(nvml_.device_get_mig_mode, devices_[gpu], &mig, &pending) == kSuccess &&
             mig == nvml::kFeatureEnabled;
}

void NvmlInventory::measure(size_t gpu) {
  GpuInfo& info = gpus_[gpu];
  nvml::Memory memory{};
  if (nvml_.device_get_memory_info(devices_[gpu], &memory) == kSuccess) {
    info.memory_bytes = memory.total;
    info.used_bytes = memory.used;
  }
  nvml::Count errors = 0;
  if (call(nvml_.device_get_total_ecc_errors, devices_[gpu], nvml::kUncorrectedError,
           nvml::kVolatileEcc, &errors) == kSuccess)
    info.ecc_errors = errors;
  info.nvlinks = count_nvlinks(gpu, "");
}

// Counts the active NVLinks to the device with this bus id, or to any for "".
int NvmlInventory::count_nvlinks(size_t gpu, const std::string& to) const {
  int links = 0;
  for (unsigned link = 0; link < nvml::kNvLinksMax; ++link) {
    unsigned is_active = 0;
    const nvml::Return result =
        call(nvml_.device_get_nvlink_state, devices_[gpu], link, &is_active);
    if (result != kSuccess) break;  // It has no more, or none.
    if (is_active != nvml::kFeatureEnabled) continue;
    nvml::PciInfo remote{};
    links += to.empty() || (call(nvml_.device_get_nvlink_remote_pci_info, devices_[gpu], link,
                                 &remote) == kSuccess &&
                            to == remote.bus_id);
  }
  return links;
}

// The NVLinks between two GPUs; 0 where there are none. Those that end in a switch reach all GPUs
// behind it.
int NvmlInventory::nvlinks_between(size_t from, size_t to) const {
  int status = -1;
  const nvml::Return result =
      call(nvml_.device_get_p2p_status, devices_[from], devices_[to], nvml::kP2pNvLink, &status);
  if (result != kSuccess || status != nvml::kP2pOk) return 0;
  const int direct = count_nvlinks(from, gpus_[to].pci_bus_id);
  return direct > 0 ? direct : gpus_[from].nvlinks;
}

// A way that the driver does not know counts as the longest.
Path NvmlInventory::path_between(size_t from, size_t to) const {
  const int links = nvlinks_between(from, to);
  if (links > 0) return {-links, {gpus_[to].index, "NV" + std::to_string(links)}};
  int level = 0;
  if (call(nvml_.device_get_topology_common_ancestor, devices_[from], devices_[to], &level) !=
      kSuccess)
    level = nvml::kTopologySystem;
  return {level, {gpus_[to].index, topology_name(level)}};
}

void NvmlInventory::find_peers(size_t gpu) {
  std::vector<Path> paths;
  for (size_t other = 0; other < gpus_.size(); ++other)
    if (other != gpu && works(other)) paths.push_back(path_between(gpu, other));
  std::ranges::stable_sort(paths, {}, &Path::distance);
  for (Path& path : paths) gpus_[gpu].peers.push_back(std::move(path.peer));
}

void NvmlInventory::refresh() {
  for (size_t gpu = 0; gpu < gpus_.size(); ++gpu)
    if (works(gpu)) measure(gpu);
}

void NvmlInventory::watch() {
  nvml::EventSet events = nullptr;
  if (events_ != nullptr || call(nvml_.event_set_create, &events) != kSuccess) return;
  events_ = events;
  for (size_t gpu = 0; gpu < gpus_.size(); ++gpu)
    gpus_[gpu].is_watched = works(gpu) && call(nvml_.device_register_events, devices_[gpu],
                                               nvml::kXidCriticalError, events_) == kSuccess;
}

std::vector<int> NvmlInventory::poll() {
  std::vector<int> changed;
  if (events_ == nullptr) return changed;
  for (int events = 0; events < kEventsMax; ++events) {
    nvml::EventData event{};
    const nvml::Return result = call(nvml_.event_set_wait, events_, &event, 0U);
    if (result == nvml::kGpuIsLost) find_lost(changed);
    if (result != kSuccess) break;
    note_event(event, changed);
  }
  return changed;
}

void NvmlInventory::note_event(const nvml::EventData& event, std::vector<int>& changed) {
  if (event.event_type != nvml::kXidCriticalError || event.device == nullptr) return;
  const auto device = std::ranges::find(devices_, event.device);
  if (device == devices_.end()) return;
  note_xid(static_cast<size_t>(device - devices_.begin()), event.event_data, changed);
}

// After a fatal XID those of applications follow from it.
void NvmlInventory::note_xid(size_t gpu, uint64_t xid, std::vector<int>& changed) {
  GpuInfo& info = gpus_[gpu];
  const bool is_fatal = is_fatal_xid(xid);
  if (info.xid == xid || (!is_fatal && !info.fault.empty())) return;
  info.xid = xid;
  if (is_fatal) info.fault = describe_xid(xid);
  if (std::ranges::find(changed, info.index) == changed.end()) changed.push_back(info.index);
}

// The driver says that some GPU is gone, not which.
void NvmlInventory::find_lost(std::vector<int>& changed) {
  for (size_t gpu = 0; gpu < gpus_.size(); ++gpu) {
    nvml::Memory memory{};
    if (!works(gpu) || nvml_.device_get_memory_info(devices_[gpu], &memory) != nvml::kGpuIsLost)
      continue;
    gpus_[gpu].fault = nvml_.error_string(nvml::kGpuIsLost);
    changed.push_back(gpus_[gpu].index);
  }
}

}  // namespace

Result<std::unique_ptr<GpuInventory>> GpuInventory::open(const std::string& library) {
  const Result<nvml::Library> table = nvml::load_library(library);
  if (!table.ok()) return table.status();
  auto inventory = std::make_unique<NvmlInventory>(*table);
  if (Status status = inventory->start(); !status.ok()) return status;
  return std::unique_ptr<GpuInventory>(std::move(inventory));
}

}  // namespace tutti
