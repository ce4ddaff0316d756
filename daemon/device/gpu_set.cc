#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <utility>

#include "daemon/device/device.h"
#include "daemon/device/freeing_thread.h"

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

GpuSet::GpuSet(const cuda::Driver& driver, std::shared_ptr<GpuFault> fault)
    : driver_(driver), fault_(std::move(fault)), freeing_(std::make_unique<FreeingThread>()) {}

GpuSet::~GpuSet() { close(); }

bool GpuSet::close() {
  struct All {  // Destroyed from the last to the first: streams belong to GPUs.
    decltype(gpus_) gpus;
    decltype(pinned_) pinned;
    decltype(spare_lanes_) lanes;
    decltype(freed_later_) freed_later;
  };
  auto all =
      std::make_shared<All>(All{std::exchange(gpus_, {}), std::exchange(pinned_, {}),
                                std::exchange(spare_lanes_, {}), std::exchange(freed_later_, {})});
  if (fault_->is_set() || has_abandoned_) {
    keep_until_exit(std::move(all));
    return false;
  }
  freeing_->free(std::move(all));
  return freeing_->end();
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
  (*made)->discard_by([this](auto refused) { free_later(std::move(refused)); });
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
  const Result<std::atomic<uint64_t>*> word = take_cancel_word();
  if (!word.ok()) return word.status();
  lane->stream = *std::move(stream);
  lane->cancel_word = *word;
  device.set_cancel_word(*lane->stream, lane->cancel_word);
  return lane;
}

Result<std::atomic<uint64_t>*> GpuSet::take_cancel_word() {
  if (spare_cancel_words_.empty()) {
    const Result<Pinned> page = take_pinned(kLeastPinnedBytes);
    if (!page.ok()) return page.status();
    for (size_t at = 0; at < page->bytes; at += kCancelWordBytes)
      spare_cancel_words_.push_back(new (page->data + at) std::atomic<uint64_t>(0));
  }
  std::atomic<uint64_t>* word = spare_cancel_words_.back();
  spare_cancel_words_.pop_back();
  return word;
}

void GpuSet::give_up(const std::string& uuid, const std::string& what) {
  const auto found = numbers_.find(uuid);
  if (found != numbers_.end()) gpu(found->second).give_up(what);
}

void GpuSet::look_for_faults() {
  for (const Lane* lane : lanes_in_use_)
    if (!fault_->is_set()) static_cast<void>(gpu(lane->gpu).is_done(*lane->stream));
}

// After a fault a lane's work may not be done: then it stays cancelled, and what was freed is kept.
void GpuSet::give_back(std::unique_ptr<Lane> lane) {
  lanes_in_use_.erase(lane.get());
  if (!fault_->is_set()) lane->cancel_word->store(0);
  spare_lanes_[lane->gpu].push_back(std::move(lane));
  if (!lanes_in_use_.empty()) return;
  for (std::shared_ptr<const void>& resource : std::exchange(freed_later_, {}))
    free_later(std::move(resource));
}

void GpuSet::abandon(std::unique_ptr<Lane> lane, std::vector<std::shared_ptr<const void>> used) {
  has_abandoned_ = true;
  keep_until_exit(std::move(lane));
  for (std::shared_ptr<const void>& resource : used) keep_until_exit(std::move(resource));
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
  if (fault_->is_set())
    keep_until_exit(std::move(resource));
  else if (!lanes_in_use_.empty())
    freed_later_.push_back(std::move(resource));
  else
    freeing_->free(std::move(resource));
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
