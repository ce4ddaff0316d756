#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <new>
#include <utility>

#include "daemon/device/device.h"

namespace tutti {
namespace {

// The number of a GPU in the driver's list.
Result<int> number_of(const cuda::Driver& driver, const cuda::Uuid& uuid) {
  const Result<std::vector<GpuName>> names = list_gpus(driver);
  if (!names.ok()) return names.status();
  const auto same = [&](const GpuName& name) {
    return std::memcmp(name.uuid.bytes, uuid.bytes, sizeof(uuid.bytes)) == 0;
  };
  const auto found = std::ranges::find_if(*names, same);
  if (found != names->end()) return static_cast<int>(found - names->begin());
  return not_found(
      "the worker does not see this GPU; give tuttid the GPUs that trainers use, for example "
      "with NVIDIA_VISIBLE_DEVICES=all");
}

}  // namespace

// Divides a page of pinned memory.
void GpuSet::add_cancel_words(std::byte* page, CancelWords& words) {
  for (size_t at = 0; at < kLeastPinnedBytes; at += kCancelWordBytes)
    words.push_back(new (page + at) std::atomic<uint64_t>(0));
}

Status GpuFault::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

void GpuFault::set(const std::string& what) {
  const std::lock_guard lock(mutex_);
  if (!status_.ok()) return;
  status_ = unavailable(who_ + " can do no more work on GPUs and ends: " + what);
  is_set_ = true;
  if (on_set_) on_set_();
}

void GpuFault::tell_nobody() {
  const std::lock_guard lock(mutex_);
  on_set_ = nullptr;
}

GpuSet::GpuSet(const cuda::Driver& driver, std::shared_ptr<GpuFault> fault)
    : driver_(driver), fault_(std::move(fault)), freeing_(std::make_unique<DriverThread>()) {}

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

Result<GpuSet::Opened> GpuSet::prepare(const cuda::Driver& driver, const cuda::Uuid& uuid,
                                       const std::shared_ptr<GpuFault>& fault) {
  const Result<int> number = number_of(driver, uuid);
  if (!number.ok()) return number.status();
  Result<std::unique_ptr<Gpu>> gpu = make_gpu(driver, *number, fault);
  if (!gpu.ok()) return gpu.status();
  Opened opened;
  opened.driver = &driver;
  opened.number = *number;
  opened.uuid = cuda::text_of(uuid);
  opened.gpu = *std::move(gpu);
  if (Status made = make_first_lanes(opened); !made.ok()) return made;
  return opened;
}

Status GpuSet::make_first_lanes(Opened& opened) {
  Result<std::unique_ptr<Buffer>> page = opened.gpu->allocate_pinned(kLeastPinnedBytes);
  if (!page.ok()) return page.status();
  opened.cancel_page = *std::move(page);
  add_cancel_words(opened.cancel_page->data(), opened.cancel_words);
  while (opened.lanes.size() < kFirstLanes) {
    Result<std::unique_ptr<Lane>> lane = make_lane(*opened.gpu, opened.number, opened.cancel_words);
    if (!lane.ok()) return lane.status();
    opened.lanes.push_back(*std::move(lane));
  }
  return {};
}

Result<int> GpuSet::add(Opened opened) {
  const int number = opened.number;
  require(!gpus_.contains(number), "a GPU is opened once");
  if (Status reached = reach_others(*opened.gpu); !reached.ok()) {
    free_later(std::make_shared<const Opened>(std::move(opened)));
    return reached;
  }
  opened.gpu->discard_by([this](auto refused) { free_later(std::move(refused)); });
  gpus_.emplace(number, std::move(opened.gpu));
  numbers_.emplace(opened.uuid, number);
  pinned_.push_back(std::move(opened.cancel_page));
  std::ranges::copy(opened.cancel_words, std::back_inserter(spare_cancel_words_));
  spare_lanes_[number] = std::move(opened.lanes);
  return number;
}

Status GpuSet::reach_others(Gpu& gpu) {
  for (const auto& [number, other] : gpus_) {
    if (Status reached = gpu.reach(*other); !reached.ok()) return reached;
    if (Status reached = other->reach(gpu); !reached.ok()) return reached;
  }
  return fault_->status();
}

Result<int> GpuSet::open(const cuda::Uuid& uuid) {
  if (fault_->is_set()) return fault_->status();
  if (const std::optional<int> number = find(cuda::text_of(uuid))) return *number;
  Result<Opened> opened = prepare(driver_, uuid, fault_);
  return opened.ok() ? add(*std::move(opened)) : opened.status();
}

std::optional<int> GpuSet::find(const std::string& uuid) const {
  const auto found = numbers_.find(uuid);
  return found == numbers_.end() ? std::nullopt : std::optional(found->second);
}

Result<std::unique_ptr<GpuSet::Lane>> GpuSet::take_lane(int gpu) {
  std::vector<std::unique_ptr<Lane>>& spare = spare_lanes_[gpu];
  if (!spare.empty()) {
    std::unique_ptr<Lane> lane = std::move(spare.back());
    spare.pop_back();
    lanes_in_use_.insert(lane.get());
    return lane;
  }
  if (spare_cancel_words_.empty())
    if (Status s = make_cancel_words(); !s.ok()) return s;
  Result<std::unique_ptr<Lane>> made = make_lane(this->gpu(gpu), gpu, spare_cancel_words_);
  if (made.ok()) lanes_in_use_.insert(made->get());
  return made;
}

Result<std::unique_ptr<GpuSet::Lane>> GpuSet::make_lane(Gpu& device, int gpu, CancelWords& words) {
  Result<std::unique_ptr<Stream>> stream = device.make_stream();
  if (!stream.ok()) return stream.status();
  auto lane = std::make_unique<Lane>();
  lane->gpu = gpu;
  lane->stream = *std::move(stream);
  lane->cancel_word = words.back();
  words.pop_back();
  device.set_cancel_word(*lane->stream, lane->cancel_word);
  return lane;
}

Status GpuSet::make_cancel_words() {
  const Result<Pinned> page = take_pinned(kLeastPinnedBytes);
  if (page.ok()) add_cancel_words(page->data, spare_cancel_words_);
  return page.status();
}

void GpuSet::give_up(const std::string& uuid, const std::string& what) {
  if (const std::optional<int> number = find(uuid)) gpu(*number).give_up(what);
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
