#include "daemon/launch/gpu_shares.h"

#include <algorithm>
#include <charconv>

#include "daemon/base/text.h"

namespace tutti {
namespace {

constexpr int kGpusMax = 1'024;

std::optional<int> number_in(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::string join(const std::vector<std::string>& parts, const std::string& separator) {
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : separator) + part;
  return out;
}

std::string count_of(size_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

// An entry is an index, or a UUID or enough of its beginning.
const GpuInfo* find_gpu(const std::vector<GpuInfo>& gpus, std::string_view entry) {
  const std::optional<int> index = number_in(entry);
  const GpuInfo* found = nullptr;
  for (const GpuInfo& gpu : gpus) {
    const bool is_named =
        index ? gpu.index == *index : entry.starts_with("GPU-") && gpu.uuid.starts_with(entry);
    if (is_named && found != nullptr) return nullptr;
    if (is_named) found = &gpu;
  }
  return found;
}

void add_if_usable(const GpuInfo& gpu, UsableGpus& usable) {
  const std::string name = "GPU " + std::to_string(gpu.index);
  if (!gpu.fault.empty())
    usable.left_out.push_back(name + " " + gpu.state());
  else if (gpu.mig)
    usable.left_out.push_back(name +
                              " is divided by MIG: name its parts, which nvidia-smi -L "
                              "lists, in CUDA_VISIBLE_DEVICES");
  else
    usable.ids.push_back(gpu.uuid);
}

std::string without_blanks(std::string text) {
  std::erase(text, ' ');
  return text;
}

// " (GPU 3 failed: GPU is lost)", or nothing.
std::string reasons(const UsableGpus& gpus) {
  return gpus.left_out.empty() ? "" : " (" + join(gpus.left_out, "; ") + ")";
}

Status too_few(const UsableGpus& gpus, int each, int ranks) {
  const size_t usable = gpus.ids.size();
  if (usable == 0)
    return resource_exhausted("there is no GPU for --gpus" + reasons(gpus) +
                              "; leave out --gpus to run without");
  return resource_exhausted(
      "--gpus " + std::to_string(each) + " needs " +
      count_of(static_cast<size_t>(each) * static_cast<size_t>(ranks), "GPU") + " for " +
      count_of(static_cast<size_t>(ranks), "rank") + ", and there " +
      (usable == 1 ? "is 1" : "are " + std::to_string(usable)) + reasons(gpus) +
      "; start fewer ranks, or let --gpus auto divide what there is");
}

}  // namespace

Result<int> parse_gpus(std::string_view text) {
  if (text == "auto") return kGpusAuto;
  const std::optional<int> number = number_in(text);
  if (number && *number >= 1 && *number <= kGpusMax) return *number;
  return invalid_argument("--gpus '" + std::string(text) +
                          "': expected how many GPUs each rank gets, or auto");
}

Result<UsableGpus> usable_gpus(const std::vector<GpuInfo>& gpus,
                               const std::optional<std::string>& visible) {
  UsableGpus usable;
  if (!visible) {
    for (const GpuInfo& gpu : gpus) add_if_usable(gpu, usable);
    return usable;
  }
  std::vector<std::string> named;
  for (const std::string& part : split(*visible, ',')) {
    const std::string entry = without_blanks(part);
    const GpuInfo* gpu = find_gpu(gpus, entry);
    const bool is_part = entry.starts_with("MIG-");
    if (gpu == nullptr && !is_part) break;
    const std::string name = is_part ? entry : "GPU " + std::to_string(gpu->index);
    if (std::ranges::find(named, name) != named.end())
      return invalid_argument("CUDA_VISIBLE_DEVICES=" + *visible + " names " + name +
                              " twice: CUDA would find no GPU at all");
    named.push_back(name);
    if (is_part)
      usable.ids.push_back(entry);
    else
      add_if_usable(*gpu, usable);
  }
  usable.left_out.push_back("CUDA_VISIBLE_DEVICES=" + *visible + " names " +
                            count_of(named.size(), "GPU") + " of this machine's " +
                            std::to_string(gpus.size()));
  return usable;
}

Result<std::vector<std::string>> share_gpus(const UsableGpus& gpus, int each, int ranks) {
  const size_t usable = gpus.ids.size();
  const auto all = static_cast<size_t>(ranks);
  const size_t wanted =
      each == kGpusAuto ? std::max<size_t>(usable / all, 1) : static_cast<size_t>(each);
  if (usable == 0 || (each != kGpusAuto && wanted * all > usable))
    return too_few(gpus, each, ranks);
  std::vector<std::string> shares;
  for (size_t rank = 0; rank < all; ++rank) {
    std::vector<std::string> share;
    for (size_t i = 0; i < wanted; ++i) share.push_back(gpus.ids[(rank * wanted + i) % usable]);
    shares.push_back(join(share, ","));
  }
  return shares;
}

}  // namespace tutti
