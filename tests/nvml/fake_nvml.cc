// A library with the names of libnvidia-ml.so.1, for tests on machines without GPUs: H100s of
// 80 GiB. GPU N uses N+1 GiB. GPUs 2K and 2K+1 are joined by four NVLinks; a fifth is inactive.
// Other pairs are on one node (0 to 3, 4 to 7) or on two.
//
// In the environment:
// - FAKE_NVML_GPUS: how many there are (2).
// - FAKE_NVML_SWITCH: if set, all GPUs are joined by 18 NVLinks and a switch.
// - FAKE_NVML_MIG, FAKE_NVML_LOST: the GPU that is divided, and the one that cannot be opened.
// - FAKE_NVML_REFUSES: one function that is not supported, such as "nvmlEventSetWait_v2".
// - FAKE_NVML_EVENTS: path of a file with a line "GPU XID" for each event; it may grow. "lost GPU"
//   is the loss of a GPU that its driver does not say by an XID.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

#include "daemon/nvml/library.h"

namespace tutti::nvml {

struct DeviceTag {};
struct EventSetTag {
  int lines_read = 0;
  Count types = 0;
};

}  // namespace tutti::nvml

namespace tutti::nvml::fake {
namespace {

constexpr Count kGib = Count{1} << 30;
constexpr int kGpusMax = 8;
constexpr Return kUninitialized = 1;
constexpr Return kInsufficientSize = 7;

std::array<DeviceTag, kGpusMax> devices;
int users = 0;
int lost = -1;  // By an event.

int number_of(const char* variable, int otherwise) {
  const char* given = std::getenv(variable);
  return given != nullptr ? std::atoi(given) : otherwise;
}
bool is_switched() { return std::getenv("FAKE_NVML_SWITCH") != nullptr; }
int index_of(Device device) { return static_cast<int>(device - devices.data()); }

// Whether a function can be used, as what it returns.
Return check(std::string_view function) {
  const char* refused = std::getenv("FAKE_NVML_REFUSES");
  if (users == 0) return kUninitialized;
  return refused != nullptr && function == refused ? kNotSupported : kSuccess;
}

Return put(const std::string& text, char* out, unsigned bytes) {
  if (text.size() >= bytes) return kInsufficientSize;
  std::memcpy(out, text.c_str(), text.size() + 1);
  return kSuccess;
}

std::string bus_id_of(int gpu) {
  std::array<char, 32> text{};
  (void)std::snprintf(text.data(), text.size(), "00000000:%02X:00.0", 0x1B + 0x10 * gpu);
  return text.data();
}

bool read_event(EventSet set, EventData* data) {
  const char* path = std::getenv("FAKE_NVML_EVENTS");
  if (path == nullptr) return false;
  std::ifstream file(path);
  std::string line;
  for (int read = 0; read <= set->lines_read; ++read)
    if (!std::getline(file, line) || file.eof()) return false;  // None, or not yet complete.
  ++set->lines_read;
  if (line.starts_with("lost ")) {
    lost = std::stoi(line.substr(5));
    return true;
  }
  std::istringstream words(line);
  size_t gpu = 0;
  words >> gpu >> data->event_data;
  data->device = &devices.at(gpu);
  data->event_type = kXidCriticalError;
  return true;
}

}  // namespace
}  // namespace tutti::nvml::fake

// NOLINTBEGIN(readability-identifier-naming): NVML's names.
#pragma GCC visibility push(default)
extern "C" {

using namespace tutti::nvml;        // NOLINT
using namespace tutti::nvml::fake;  // NOLINT

Return nvmlInit_v2() {
  if (const char* refused = std::getenv("FAKE_NVML_REFUSES"))
    if (std::string_view(refused) == "nvmlInit_v2") return kNotSupported;
  ++users;
  return kSuccess;
}

Return nvmlShutdown() {
  if (users == 0) return kUninitialized;
  --users;
  lost = -1;
  return kSuccess;
}

const char* nvmlErrorString(Return result) {
  switch (result) {
    case kSuccess:
      return "Success";
    case kUninitialized:
      return "Uninitialized";
    case kNotSupported:
      return "Not Supported";
    case kGpuIsLost:
      return "GPU is lost";
    default:
      return "Unknown Error";
  }
}

Return nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(number_of("FAKE_NVML_GPUS", 2));
  return check("nvmlDeviceGetCount_v2");
}

Return nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* device) {
  if (static_cast<int>(index) == number_of("FAKE_NVML_LOST", -1)) return kGpuIsLost;
  *device = &devices.at(index);
  return check("nvmlDeviceGetHandleByIndex_v2");
}

Return nvmlDeviceGetName(Device /*device*/, char* name, unsigned bytes) {
  return put("NVIDIA H100", name, bytes);
}

Return nvmlDeviceGetUUID(Device device, char* uuid, unsigned bytes) {
  const std::string digit = std::to_string(index_of(device));
  return put("GPU-" + digit + "0000000-1111-2222-3333-444444444444", uuid, bytes);
}

Return nvmlDeviceGetPciInfo_v3(Device device, PciInfo* info) {
  return put(bus_id_of(index_of(device)), info->bus_id, sizeof info->bus_id);
}

Return nvmlDeviceGetMemoryInfo(Device device, Memory* memory) {
  if (index_of(device) == lost) return kGpuIsLost;
  memory->total = 80 * kGib;
  memory->used = static_cast<Count>(index_of(device) + 1) * kGib;
  memory->free = memory->total - memory->used;
  return check("nvmlDeviceGetMemoryInfo");
}

Return nvmlDeviceGetMigMode(Device device, unsigned* current, unsigned* pending) {
  *current = *pending = index_of(device) == number_of("FAKE_NVML_MIG", -1) ? 1 : 0;
  return check("nvmlDeviceGetMigMode");
}

Return nvmlDeviceGetTotalEccErrors(Device device, int type, int counter, Count* errors) {
  *errors = type == kUncorrectedError && counter == kVolatileEcc && index_of(device) == 1 ? 3 : 0;
  return check("nvmlDeviceGetTotalEccErrors");
}

Return nvmlDeviceGetNvLinkState(Device /*device*/, unsigned link, unsigned* is_active) {
  if (link >= 18) return kInvalidArgument;
  *is_active = is_switched() || link < 4 ? 1 : 0;
  return check("nvmlDeviceGetNvLinkState");
}

Return nvmlDeviceGetNvLinkRemotePciInfo_v2(Device device, unsigned /*link*/, PciInfo* info) {
  const std::string remote = is_switched() ? "00000000:05:00.0" : bus_id_of(index_of(device) ^ 1);
  return put(remote, info->bus_id, sizeof info->bus_id);
}

Return nvmlDeviceGetTopologyCommonAncestor(Device a, Device b, int* level) {
  const bool same_node = index_of(a) / 4 == index_of(b) / 4;
  *level = same_node ? kTopologyNode : kTopologySystem;
  return check("nvmlDeviceGetTopologyCommonAncestor");
}

Return nvmlDeviceGetP2PStatus(Device a, Device b, int capability, int* status) {
  const bool linked = is_switched() || (index_of(a) ^ 1) == index_of(b);
  *status = linked && capability == kP2pNvLink ? kP2pOk : 5;
  return check("nvmlDeviceGetP2PStatus");
}

Return nvmlEventSetCreate(EventSet* set) {
  const Return result = check("nvmlEventSetCreate");
  *set = result == kSuccess ? new EventSetTag() : nullptr;
  return result;
}

Return nvmlEventSetFree(EventSet set) {
  delete set;
  return kSuccess;
}

Return nvmlDeviceRegisterEvents(Device /*device*/, Count types, EventSet set) {
  const Return result = check("nvmlDeviceRegisterEvents");
  if (result == kSuccess) set->types |= types;
  return result;
}

Return nvmlEventSetWait_v2(EventSet set, EventData* data, unsigned timeout_ms) {
  if (set == nullptr || timeout_ms != 0 || (set->types & kXidCriticalError) == 0)
    return kInvalidArgument;
  if (const Return result = check("nvmlEventSetWait_v2"); result != kSuccess) return result;
  if (!read_event(set, data)) return kTimeout;
  return data->device == nullptr ? kGpuIsLost : kSuccess;
}

}  // extern "C"
#pragma GCC visibility pop
// NOLINTEND(readability-identifier-naming)
