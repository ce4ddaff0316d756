// Checks of the kernel, memory, limits and GPUs.
#include <map>

#include "daemon/base/text.h"
#include "daemon/diagnosis/checks.h"

namespace tutti {
namespace {

constexpr uint64_t kMebibyte = uint64_t{1} << 20;
constexpr uint64_t kGibibyte = uint64_t{1} << 30;
constexpr uint64_t kMemoryWarnBytes = kGibibyte;
constexpr uint64_t kMemoryFailBytes = 64 * kMebibyte;
constexpr uint64_t kDescriptorsWarn = 4'096;
constexpr uint64_t kDescriptorsFail = 256;
constexpr int kNeverOvercommit = 2;

std::string limits_owner(const LimitsView& limits) {
  return limits.of_agent ? "tuttid (pid " + std::to_string(limits.pid) + ")"
                         : "this process (no agent runs)";
}

std::string size_or_unlimited(uint64_t bytes) {
  return bytes == UINT64_MAX ? "unlimited" : format_byte_size(bytes);
}

Check grade_memory(const char* what, uint64_t bytes, const char* remedy) {
  const std::string finding = format_byte_size(bytes) + " of memory are left" + what;
  if (bytes < kMemoryFailBytes) return failure("memory", finding, remedy);
  return bytes < kMemoryWarnBytes ? warning("memory", finding, remedy) : good("memory", finding);
}

}  // namespace

Check check_kernel(const NodeView& node) {
  constexpr const char* kSubject = "kernel";
  if (node.pidfd.ok()) return good(kSubject, "Linux " + node.kernel);
  return failure(kSubject, "Linux " + node.kernel + " has no pidfd: " + node.pidfd.message(),
                 "use Linux 5.3 or later; in a container let seccomp pass pidfd_open");
}

Check check_shared_memory(const NodeView& node) {
  constexpr const char* kSubject = "shared_memory";
  if (node.sealed_memory.ok()) return good(kSubject, "sealed memfds work");
  return failure(kSubject, node.sealed_memory.message(),
                 "in a container let seccomp pass memfd_create, and give it memory");
}

Check check_memory(const NodeView& node) {
  const LimitsView& limits = node.limits;
  const uint64_t used = std::min(limits.cgroup_bytes, limits.cgroup_bytes_max);
  const uint64_t of_cgroup = limits.cgroup_bytes_max - used;
  if (limits.cgroup_bytes_max != 0 && of_cgroup < node.available_bytes)
    return grade_memory(" by the limit of the agent's cgroup", of_cgroup,
                        "raise MemoryMax of tuttid.service, or the container's limit: it holds "
                        "the trainers' segments, too");
  return grade_memory("", node.available_bytes, "end other programs, or add memory");
}

Check check_overcommit(const NodeView& node) {
  constexpr const char* kSubject = "overcommit";
  if (node.overcommit != kNeverOvercommit)
    return good(kSubject, "vm.overcommit_memory = " + std::to_string(node.overcommit));
  return warning(kSubject, "vm.overcommit_memory = 2: memory may be refused while there is some",
                 "sysctl -w vm.overcommit_memory=0");
}

// CUDA pins staging memory; nothing else locks memory.
Check check_locked_memory(const NodeView& node) {
  constexpr const char* kSubject = "locked_memory";
  const std::string finding = "RLIMIT_MEMLOCK of " + limits_owner(node.limits) + " is " +
                              size_or_unlimited(node.limits.locked_bytes);
  const auto wanted = static_cast<uint64_t>(node.settings.gpu_staging_bytes);
  if (node.gpus.empty() || node.limits.locked_bytes >= wanted) return good(kSubject, finding);
  return warning(kSubject, finding + ", less than gpu_staging_bytes",
                 "LimitMEMLOCK=infinity in tuttid.service, or ulimit -l unlimited");
}

Check check_descriptors(const NodeView& node) {
  constexpr const char* kSubject = "descriptors";
  const uint64_t most = node.limits.descriptors;
  const std::string finding = "RLIMIT_NOFILE of " + limits_owner(node.limits) + " is " +
                              (most == UINT64_MAX ? "unlimited" : std::to_string(most));
  const std::string remedy = "LimitNOFILE=16384 in tuttid.service, or ulimit -n 16384";
  if (most < kDescriptorsFail) return failure(kSubject, finding, remedy);
  return most < kDescriptorsWarn ? warning(kSubject, finding, remedy) : good(kSubject, finding);
}

// NVML reports the GPUs now; what their drivers have reported, the agent knows.
Check check_gpus(const NodeView& node) {
  constexpr const char* kSubject = "gpus";
  std::map<uint32_t, std::string> failed;
  for (const GpuInfo& gpu : node.gpus)
    if (!gpu.fault.empty()) failed[static_cast<uint32_t>(gpu.index)] = gpu.state();
  for (const v1::Gpu& gpu : node.own.gpus())
    if (gpu.failed()) failed[gpu.index()] = gpu.state();
  std::string list;
  for (const auto& [index, state] : failed)
    list += (list.empty() ? "GPU " : "; GPU ") + std::to_string(index) + " " + state;
  if (!list.empty())
    return failure(kSubject, list,
                   "nvidia-smi --gpu-reset -i INDEX, or restart the node; then restart tuttid");
  if (node.nvml.ok()) return good(kSubject, "GPUs that work: " + std::to_string(node.gpus.size()));
  if (!node.has_nvidia_driver) return good(kSubject, "this machine has no NVIDIA driver");
  return failure(kSubject, node.nvml.message(),
                 "install libnvidia-ml of the driver's version, or set nvml_library");
}

}  // namespace tutti
