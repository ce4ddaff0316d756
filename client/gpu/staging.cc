#include "client/gpu/staging.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <iterator>
#include <utility>

namespace tutti::client {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kLeastBytes = 64 << 10;
constexpr uint64_t kListAlignment = 256;  // Of each tensor of a list.

}  // namespace

// ---- Blocks ----

Status StagingPool::take(cuda::Context context, const void* memory, uint64_t bytes, TimePoint limit,
                         std::unique_ptr<StagingBlock>& block) {
  const uint64_t size = std::bit_ceil(std::max(bytes, kLeastBytes));
  const int gpu = offers_.gpu_of(memory);
  if (take_spare(context, gpu, size, block)) return {};
  free_idle(retired_);
  Status made = offers_.ask(limit, [pool = shared_from_this(), context, memory, size] {
    return pool->make(context, memory, size);
  });
  if (made.code() == Code::resource_exhausted) free_idle(spare_);
  if (!made.ok() || take_spare(context, gpu, size, block)) return made;
  return resource_exhausted("other calls took the memory for staging");
}

bool StagingPool::take_spare(cuda::Context context, int gpu, uint64_t bytes,
                             std::unique_ptr<StagingBlock>& block) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(spare_, [&](const auto& spare) {
    return spare->context == context && spare->gpu == gpu && spare->bytes == bytes &&
           is_idle(*spare);
  });
  if (found == spare_.end()) return false;
  block = std::move(*found);
  spare_.erase(found);
  ++in_use_;
  return true;
}

// Adds a spare block. The worker is asked first: what it refuses need not be unpinned.
Status StagingPool::make(cuda::Context context, const void* memory, uint64_t bytes) {
  auto block = std::make_unique<StagingBlock>();
  block->allocation = connection_.own_memory().allocate(bytes + kPage);
  if (block->allocation == nullptr) return resource_exhausted("the segment is full");
  const uint64_t offset =
      (connection_.own_memory().offset_of(block->allocation) + kPage - 1) / kPage * kPage;
  block->data = connection_.own_memory().at(offset);
  block->bytes = bytes;
  block->context = context;
  block->gpu = offers_.gpu_of(memory);
  Status taken = offers_.offer_pinned(OfferKind::staging, memory, offset, bytes, block->number);
  if (!taken.ok()) return connection_.own_memory().free(block->allocation), taken;
  taken = pin(*block);
  {
    const std::lock_guard lock(mutex_);
    ++blocks_;
  }
  if (!add(taken.ok() ? spare_ : retired_, block)) unpin(*block);
  return taken;
}

Status StagingPool::pin(StagingBlock& block) {
  const cuda::Current current(driver_, block.context);
  cuda::Error error = driver_.event_create(&block.last_copy, cuda::kEventDisableTiming);
  if (error != cuda::kSuccess) return cuda::status_of(driver_, error, "no event can be made");
  error = driver_.mem_host_register(block.data, block.bytes,
                                    cuda::kHostPortable | cuda::kHostDeviceMap);
  block.is_pinned = error == cuda::kSuccess;
  return cuda::status_of(driver_, error, "memory for staging cannot be pinned");
}

bool StagingPool::is_idle(const StagingBlock& block) const {
  if (block.last_copy == nullptr) return true;
  const cuda::Current current(driver_, block.context);
  return driver_.event_query(block.last_copy) == cuda::kSuccess;
}

// False: the pool is closed.
bool StagingPool::add(Blocks& blocks, std::unique_ptr<StagingBlock>& block) {
  const std::lock_guard lock(mutex_);
  if (is_closed_) return false;
  blocks.push_back(std::move(block));
  return true;
}

// Those that no stream of the rank uses, once the worker does not either.
void StagingPool::free_idle(Blocks& blocks) {
  auto due = std::make_shared<Blocks>();
  const std::lock_guard lock(mutex_);
  for (std::unique_ptr<StagingBlock>& block : blocks)
    if (is_idle(*block)) due->push_back(std::move(block));
  std::erase(blocks, nullptr);
  if (due->empty()) return;
  const bool is_asked = offers_.ask_later([pool = shared_from_this(), due] {
    for (std::unique_ptr<StagingBlock>& block : *due) pool->free(std::move(block));
  });
  if (!is_asked) std::ranges::move(*due, std::back_inserter(retired_));
}

// The worker may take its time to unpin a block, which it does not know any more meanwhile: nobody
// uses it again, and the worker is asked again later.
void StagingPool::free(std::unique_ptr<StagingBlock> block) {
  if (!offers_.forget(block->number).ok() && add(retired_, block)) return;
  unpin(*block);
}

void StagingPool::unpin(const StagingBlock& block) {
  const auto free = [pool = shared_from_this(), connection = connection_.weak_from_this(),
                     allocation = block.allocation] {
    if (const auto held = connection.lock()) held->own_memory().free(allocation);
    pool->count_freed();
  };
  if (block.last_copy != nullptr) {
    const cuda::Current current(driver_, block.context);
    driver_.event_destroy(block.last_copy);
  }
  block.is_pinned ? offers_.unpin(block.context, block.data, free) : free();
}

void StagingPool::count_freed() {
  const std::lock_guard lock(mutex_);
  --blocks_;
  ++changes_;
  changed_.notify_all();
}

void StagingPool::give_back(std::unique_ptr<StagingBlock> block, bool failed) {
  const std::lock_guard lock(mutex_);
  (failed ? retired_ : spare_).push_back(std::move(block));
  --in_use_;
  ++changes_;
  changed_.notify_all();
}

uint64_t StagingPool::changes() {
  const std::lock_guard lock(mutex_);
  return changes_;
}

void StagingPool::await_change(uint64_t changes, TimePoint limit) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, limit, [&] { return changes_ > changes; });
}

bool StagingPool::has_only(size_t blocks, uint64_t changes) {
  const std::lock_guard lock(mutex_);
  return blocks_ == blocks && changes_ == changes;
}

bool StagingPool::is_idle() {
  const std::lock_guard lock(mutex_);
  const auto idle = [this](const auto& block) { return is_idle(*block); };
  return in_use_ == 0 && std::ranges::all_of(spare_, idle) && std::ranges::all_of(retired_, idle);
}

std::vector<std::unique_ptr<StagingBlock>> StagingPool::close() {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  Blocks all = std::exchange(spare_, {});
  std::ranges::move(retired_, std::back_inserter(all));
  retired_.clear();
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
    return (bytes + kListAlignment - 1) / kListAlignment * kListAlignment;
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
  const uint64_t bytes = address_of(end) - address_of(first);
  if (Status s = pool_->take(context_, first, bytes, limit_, taken); !s.ok()) return s;
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
