#include "client/staging.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <utility>

namespace tutti::client {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kLeastBytes = 64 << 10;
constexpr uint64_t kAlignment = 256;  // Of each tensor of a list.

cuda::Pointer address_of(const void* memory) { return reinterpret_cast<cuda::Pointer>(memory); }

}  // namespace

// ---- Blocks ----

Status StagingPool::take(cuda::Context context, const void* memory, uint64_t bytes,
                         std::unique_ptr<StagingBlock>& block) {
  const uint64_t size = std::bit_ceil(std::max(bytes, kLeastBytes));
  const std::lock_guard lock(mutex_);
  block = take_spare(context, offers_.gpu_of(memory), size);
  if (block != nullptr) return {};
  free_idle(retired_);
  Status made = make(context, memory, size, block);
  if (made.code() != Code::resource_exhausted) return made;
  free_idle(spare_);
  return make(context, memory, size, block);
}

std::unique_ptr<StagingBlock> StagingPool::take_spare(cuda::Context context, int gpu,
                                                      uint64_t bytes) {
  const auto fits = [&](const auto& block) {
    return !block->is_leaving && block->context == context && block->gpu == gpu &&
           block->bytes == bytes && is_idle(*block);
  };
  const auto found = std::ranges::find_if(spare_, fits);
  if (found == spare_.end()) return nullptr;
  std::unique_ptr<StagingBlock> block = std::move(*found);
  spare_.erase(found);
  return block;
}

Status StagingPool::make(cuda::Context context, const void* memory, uint64_t bytes,
                         std::unique_ptr<StagingBlock>& made) {
  auto block = std::make_unique<StagingBlock>();
  block->allocation = connection_.allocate(bytes + kPage);
  if (block->allocation == nullptr) return resource_exhausted("the segment is full");
  const uint64_t offset = (connection_.offset_of(block->allocation) + kPage - 1) / kPage * kPage;
  block->data = connection_.at(offset);
  block->bytes = bytes;
  block->context = context;
  block->gpu = offers_.gpu_of(memory);
  const cuda::Current current(driver_, block->context);
  cuda::Error error =
      driver_.mem_host_register(block->data, bytes, cuda::kHostPortable | cuda::kHostDeviceMap);
  if (error == cuda::kSuccess) {
    error = driver_.event_create(&block->last_copy, cuda::kEventDisableTiming);
    Status taken = cuda::status_of(driver_, error, "no event can be made");
    if (taken.ok())
      taken = offers_.offer_pinned(OfferKind::staging, memory, offset, bytes, block->number);
    if (taken.ok()) return ++blocks_, made = std::move(block), Status();
    unpin(*block);
    return taken;
  }
  connection_.free(block->allocation);
  return cuda::status_of(driver_, error, "memory for staging cannot be pinned");
}

void StagingPool::unpin(StagingBlock& block) {
  if (block.last_copy != nullptr) driver_.event_destroy(block.last_copy);
  driver_.mem_host_unregister(block.data);
  connection_.free(block.allocation);
}

bool StagingPool::is_idle(const StagingBlock& block) const {
  const cuda::Current current(driver_, block.context);
  return driver_.event_query(block.last_copy) == cuda::kSuccess;
}

// Those that neither a stream of the rank nor the worker uses. The worker may take its time to
// unpin one, which it does not know any more meanwhile: it is asked again then.
void StagingPool::free_idle(Blocks& blocks) {
  std::erase_if(blocks, [this](const std::unique_ptr<StagingBlock>& block) {
    if (!is_idle(*block)) return false;
    block->is_leaving = true;
    if (!offers_.forget(block->number).ok()) return false;
    const cuda::Current current(driver_, block->context);
    unpin(*block);
    --blocks_;
    return true;
  });
}

void StagingPool::give_back(std::unique_ptr<StagingBlock> block, bool failed) {
  const std::lock_guard lock(mutex_);
  (failed ? retired_ : spare_).push_back(std::move(block));
}

bool StagingPool::has_blocks() {
  const std::lock_guard lock(mutex_);
  return blocks_ != 0;
}

bool StagingPool::is_idle() {
  const std::lock_guard lock(mutex_);
  const auto idle = [this](const auto& block) { return is_idle(*block); };
  return spare_.size() + retired_.size() == blocks_ && std::ranges::all_of(spare_, idle) &&
         std::ranges::all_of(retired_, idle);
}

bool StagingPool::close() {
  const std::lock_guard lock(mutex_);
  bool all = true;
  for (Blocks* blocks : {&spare_, &retired_})
    for (const std::unique_ptr<StagingBlock>& block : *blocks) {
      const cuda::Current current(driver_, block->context);
      all &= driver_.mem_host_unregister(block->data) == cuda::kSuccess;
    }
  return all;
}

// ---- One operation ----

StagedSides::~StagedSides() {
  for (std::unique_ptr<StagingBlock>& block : blocks_) pool_->give_back(std::move(block), failed_);
}

Status StagedSides::prepare(const Side& in, const Side& out, DeviceRequest& sides) {
  const auto end_of = [](const Side& side) {
    return static_cast<const std::byte*>(side.memory) + side.bytes;
  };
  const std::less<const void*> before;
  const bool overlap = in.bytes != 0 && out.bytes != 0 && before(in.memory, end_of(out)) &&
                       before(out.memory, end_of(in));
  const void* first = std::min(in.memory, out.memory, before);
  StagingBlock* shared = nullptr;
  if (overlap) {
    const void* end = std::max<const void*>(end_of(in), end_of(out), before);
    if (Status s = take_block(first, end, shared); !s.ok()) return s;
  }
  // Where the tensor of a part is.
  const auto place = [&](const Side& side, std::vector<Part>& parts, DeviceSide& found) -> Status {
    if (side.bytes == 0) return {};
    Part part{side, shared, overlap ? address_of(side.memory) - address_of(first) : 0};
    if (!overlap)
      if (Status s = take_block(side.memory, end_of(side), part.block); !s.ok()) return s;
    found = {part.block->number, part.offset};
    parts.push_back(part);
    return {};
  };
  if (Status s = place(in, ins_, sides.in); !s.ok()) return s;
  return place(out, outs_, sides.out);
}

Status StagedSides::prepare(std::span<const TensorSides> tensors, std::span<DeviceSide> places) {
  const auto aligned = [](uint64_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  };
  uint64_t bytes = 0;
  for (const TensorSides& tensor : tensors) bytes += aligned(tensor.bytes);
  const std::byte* first = tensors.front().in;
  StagingBlock* block = nullptr;
  if (Status s = take_block(first, first + bytes, block); !s.ok()) return s;
  uint64_t offset = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorSides& tensor = tensors[i];
    ins_.push_back({{tensor.in, tensor.bytes}, block, offset});
    outs_.push_back({{tensor.out, tensor.bytes}, block, offset});
    places[i] = {block->number, offset};
    offset += aligned(tensor.bytes);
  }
  return {};
}

Status StagedSides::take_block(const void* first, const void* end, StagingBlock*& block) {
  std::unique_ptr<StagingBlock> taken;
  if (Status s = pool_->take(context_, first, address_of(end) - address_of(first), taken); !s.ok())
    return s;
  block = taken.get();
  blocks_.push_back(std::move(taken));
  return {};
}

bool StagedSides::is_idle() const {
  return std::ranges::all_of(blocks_, [this](const auto& block) { return pool_->is_idle(*block); });
}

// On a stream of its own: the program's may be busy with what it does next.
Status StagedSides::copy_out_now() {
  if (outs_.empty()) return {};
  const cuda::Driver& driver = pool_->driver();
  const cuda::Current current(driver, outs_.front().block->context);
  cuda::Stream stream = nullptr;
  const cuda::Error made = driver.stream_create(&stream, cuda::kStreamNonBlocking);
  if (made != cuda::kSuccess) return cuda::status_of(driver, made, "no stream can be made");
  Status copied = queue(outs_, true, stream);
  if (copied.ok())
    copied = cuda::status_of(driver, driver.stream_synchronize(stream), "the result is not copied");
  driver.stream_destroy(stream);
  return copied;
}

Status StagedSides::queue(const std::vector<Part>& parts, bool outwards, cuda::Stream stream) {
  for (const Part& part : parts)
    if (Status queued = queue(part, outwards, stream); !queued.ok()) return queued;
  return {};
}

Status StagedSides::queue(const Part& part, bool outwards, cuda::Stream stream) {
  const cuda::Driver& driver = pool_->driver();
  const cuda::Current current(driver, part.block->context);
  const cuda::Pointer staged = address_of(part.block->data + part.offset);
  const cuda::Pointer tensor = address_of(part.side.memory);
  cuda::Error error = outwards ? driver.memcpy_async(tensor, staged, part.side.bytes, stream)
                               : driver.memcpy_async(staged, tensor, part.side.bytes, stream);
  if (error == cuda::kSuccess) error = driver.event_record(part.block->last_copy, stream);
  return cuda::status_of(driver, error, "a tensor cannot be staged");
}

}  // namespace tutti::client
