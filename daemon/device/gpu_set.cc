#include <algorithm>
#include <bit>
#include <cstring>

#include "daemon/device/device.h"

namespace tutti {

Status GpuFault::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

void GpuFault::set(const std::string& what) {
  {
    const std::lock_guard lock(mutex_);
    if (!status_.ok()) return;
    status_ = unavailable(who_ + " can do no more work on GPUs and ends: " + what);
  }
  is_set_ = true;
  if (on_set_) on_set_();
}

// Lanes first: their streams belong to the GPUs.
GpuSet::~GpuSet() {
  freed_later_.clear();
  spare_lanes_.clear();
  pinned_.clear();
}

Result<int> GpuSet::open(const cuda::Uuid& uuid) {
  if (fault_->is_set()) return fault_->status();
  const Result<std::vector<GpuName>> names = list_gpus(driver_);
  if (!names.ok()) return names.status();
  const auto same = [&](const GpuName& name) {
    return std::memcmp(name.uuid.bytes, uuid.bytes, sizeof(uuid.bytes)) == 0;
  };
  const auto found = std::ranges::find_if(*names, same);
  if (found == names->end())
    return not_found(
        "the worker does not see this GPU; give tuttid the GPUs that trainers use, for example "
        "with NVIDIA_VISIBLE_DEVICES=all");
  const auto number = static_cast<int>(found - names->begin());
  if (gpus_.contains(number)) return number;
  Result<std::unique_ptr<Gpu>> made = make_gpu(driver_, number, fault_);
  if (!made.ok()) return made.status();
  for (const auto& [other, gpu] : gpus_) {
    Status reached = (*made)->reach(*gpu);
    if (reached.ok()) reached = gpu->reach(**made);
    if (!reached.ok()) return reached;
  }
  gpus_.emplace(number, *std::move(made));
  numbers_.emplace(cuda::text_of(uuid), number);
  if (Status lanes = make_lanes(number); !lanes.ok()) return lanes;
  return number;
}

Status GpuSet::make_lanes(int gpu) {
  std::vector<std::unique_ptr<Lane>>& spare = spare_lanes_[gpu];
  while (spare.size() < kFirstLanes) {
    Result<std::unique_ptr<Lane>> lane = make_lane(gpu);
    if (!lane.ok()) return lane.status();
    spare.push_back(*std::move(lane));
  }
  return {};
}

Result<std::unique_ptr<GpuSet::Lane>> GpuSet::take_lane(int gpu) {
  std::vector<std::unique_ptr<Lane>>& spare = spare_lanes_[gpu];
  if (!spare.empty()) {
    std::unique_ptr<Lane> lane = std::move(spare.back());
    spare.pop_back();
    lanes_in_use_.insert(lane.get());
    return lane;
  }
  Result<std::unique_ptr<Lane>> made = make_lane(gpu);
  if (made.ok()) lanes_in_use_.insert(made->get());
  return made;
}

Result<std::unique_ptr<GpuSet::Lane>> GpuSet::make_lane(int gpu) {
  Gpu& device = this->gpu(gpu);
  auto lane = std::make_unique<Lane>();
  lane->gpu = gpu;
  Result<std::unique_ptr<Stream>> stream = device.make_stream();
  if (!stream.ok()) return stream.status();
  Result<std::unique_ptr<Stream>> control = device.make_stream();
  if (!control.ok()) return control.status();
  Result<std::unique_ptr<Buffer>> word = device.allocate(sizeof(uint64_t));
  if (!word.ok()) return word.status();
  lane->stream = *std::move(stream);
  lane->control = *std::move(control);
  lane->cancel_word = *std::move(word);
  Status cleared = device.store(*lane->control, lane->cancel_word->data(), 0);
  if (cleared.ok()) cleared = device.wait(*lane->control);
  if (!cleared.ok()) return cleared;
  device.set_cancel_word(*lane->stream, lane->cancel_word->data());
  return lane;
}

void GpuSet::give_up(const std::string& uuid, const std::string& what) {
  const auto found = numbers_.find(uuid);
  if (found != numbers_.end()) gpu(found->second).give_up(what);
}

void GpuSet::look_for_faults() {
  for (const Lane* lane : lanes_in_use_)
    if (!fault_->is_set()) static_cast<void>(gpu(lane->gpu).is_done(*lane->stream));
}

Status GpuSet::cancel(Lane& lane) {
  lane.is_cancelled = true;
  Status stored = gpu(lane.gpu).store(*lane.control, lane.cancel_word->data(), 1);
  if (fault_->is_set()) return fault_->status();
  return stored.ok() ? gpu(lane.gpu).wait(*lane.control) : stored;
}

// A lane that was cancelled is not used again: that is rare, and its word need not be cleared.
void GpuSet::give_back(std::unique_ptr<Lane> lane) {
  lanes_in_use_.erase(lane.get());
  if (!lane->is_cancelled)
    spare_lanes_[lane->gpu].push_back(std::move(lane));
  else
    free_later(std::move(lane));
  if (lanes_in_use_.empty()) freed_later_.clear();
}

Result<std::byte*> GpuSet::scratch(Lane& lane, size_t bytes) {
  if (lane.scratch == nullptr || lane.scratch->bytes() < bytes) {
    Result<std::unique_ptr<Buffer>> made = gpu(lane.gpu).allocate(bytes);
    if (!made.ok()) return made.status();
    if (lane.scratch != nullptr) free_later(std::move(lane.scratch));
    lane.scratch = *std::move(made);
  }
  return lane.scratch->data();
}

void GpuSet::free_later(std::shared_ptr<const void> resource) {
  if (!lanes_in_use_.empty()) freed_later_.push_back(std::move(resource));
}

Result<GpuSet::Pinned> GpuSet::take_pinned(size_t bytes) {
  const size_t size = std::bit_ceil(std::max(bytes, kLeastPinnedBytes));
  std::vector<std::byte*>& spare = spare_pinned_[size];
  if (!spare.empty()) {
    std::byte* data = spare.back();
    spare.pop_back();
    return Pinned{data, size};
  }
  require(!gpus_.empty(), "pinned memory is for GPUs that are open");
  Result<std::unique_ptr<Buffer>> made = gpus_.begin()->second->allocate_pinned(size);
  if (!made.ok()) return made.status();
  pinned_.push_back(*std::move(made));
  return Pinned{pinned_.back()->data(), size};
}

}  // namespace tutti
