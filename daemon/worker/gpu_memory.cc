#include "daemon/worker/gpu_memory.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "daemon/board/board.h"

namespace tutti {
namespace {

constexpr size_t kOffersMax = 65'536;  // Of one trainer.

MemoryHandle handle_of(const OfferedMemory& offer) {
  MemoryHandle handle{.ipc = offer.ipc, .bytes = offer.bytes};
  for (size_t i = 0; i < offer.descriptors.size(); ++i)
    handle.chunks.push_back({offer.descriptors[i].get(), offer.chunk_bytes[i]});
  return handle;
}

// The address of a side; null: the rank has none, or it has no bytes.
Result<std::byte*> find_side(const OfferedByTrainer& trainer, const char* side,
                             const DeviceSide& asked, uint64_t bytes, int& gpu,
                             std::vector<std::shared_ptr<const void>>& keeps) {
  if (bytes == 0) return static_cast<std::byte*>(nullptr);
  const auto found = trainer.memory.find(asked.memory);
  if (found == trainer.memory.end())
    return invalid_argument("the " + std::string(side) + " is in memory that was not offered");
  const OfferedByTrainer::Memory& memory = found->second;
  if (asked.offset > memory.bytes || bytes > memory.bytes - asked.offset)
    return invalid_argument("the " + std::string(side) + " (" + std::to_string(bytes) +
                            " bytes at offset " + std::to_string(asked.offset) +
                            ") exceeds its memory of " + std::to_string(memory.bytes) + " bytes");
  gpu = memory.gpu;
  keeps.push_back(memory.owner);
  return memory.data + asked.offset;
}

Result<std::atomic<uint64_t>*> find_word(const OfferedByTrainer& trainer, uint64_t offset,
                                         uint64_t words_offset) {
  const OfferedMemory& words = trainer.words->offer;
  if (offset % alignof(uint64_t) != 0 || offset < words_offset ||
      offset - words_offset > words.bytes - sizeof(uint64_t))
    return invalid_argument("a word lies outside the memory for words");
  return reinterpret_cast<std::atomic<uint64_t>*>(words.pinned + (offset - words_offset));
}

}  // namespace

uint64_t OfferedByTrainer::staging_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [number, piece] : memory) bytes += piece.is_staging ? piece.bytes : 0;
  return bytes;
}

void GpuMemory::set_failed(std::map<std::string, std::string> gpus) {
  failed_ = std::move(gpus);
  if (gpus_ == nullptr) return;
  for (const auto& [uuid, what] : failed_) gpus_->give_up(uuid, what);
}

Result<int> GpuMemory::open(const OfferedMemory& offer) {
  cuda::Uuid uuid{};
  std::memcpy(uuid.bytes, offer.gpu.data(), sizeof(uuid.bytes));
  const auto failed = failed_.find(cuda::text_of(uuid));
  if (failed != failed_.end()) return unavailable(failed->second);
  if (gpus_ == nullptr) {
    const Result<const cuda::Driver*> driver = cuda::load_driver(settings_.cuda_driver);
    if (!driver.ok())
      return unavailable(driver.status().message() +
                         "; the worker needs the driver and the GPUs that trainers use");
    gpus_ = std::make_shared<GpuSet>(**driver, fault_);
  }
  return gpus_->open(uuid);
}

Status GpuMemory::take_seat(OfferedByTrainer& trainer, int gpu) {
  if (trainer.seats.contains(gpu)) return {};
  std::shared_ptr<const bool>& seats = seats_[gpu];
  if (seats == nullptr) seats = std::make_shared<const bool>();
  if (seats.use_count() > settings_.gpu_ranks)
    return resource_exhausted("GPU " + std::to_string(gpu) + " has " +
                              std::to_string(settings_.gpu_ranks) +
                              " ranks of this job already; raise gpu_ranks of tuttid");
  trainer.seats[gpu] = seats;
  return {};
}

Status GpuMemory::take(OfferedByTrainer& trainer, OfferedMemory offer) {
  if (offer.kind == OfferKind::forget) {
    const auto found = trainer.memory.find(offer.number);
    if (found == trainer.memory.end()) return {};
    if (found->second.is_staging && found->second.owner.use_count() > 1)
      return failed_precondition("operations use this memory");
    trainer.memory.erase(found);
    return {};
  }
  if (offer.number == 0 || trainer.memory.contains(offer.number))
    return invalid_argument("an offer needs a number of its own");
  if (trainer.memory.size() >= kOffersMax)
    return resource_exhausted("a rank offers at most " + std::to_string(kOffersMax) +
                              " pieces of memory");
  const Result<int> gpu = open(offer);
  if (!gpu.ok()) return gpu.status();
  if (Status s = take_seat(trainer, *gpu); !s.ok()) return s;
  const bool is_pinned = offer.kind == OfferKind::words || offer.kind == OfferKind::staging;
  return is_pinned ? take_pinned(trainer, *gpu, std::move(offer)) : import(trainer, *gpu, offer);
}

Status GpuMemory::import(OfferedByTrainer& trainer, int gpu, const OfferedMemory& offer) {
  Result<std::unique_ptr<Buffer>> imported = gpus_->gpu(gpu).import_memory(handle_of(offer));
  if (!imported.ok()) return imported.status();
  std::byte* const data = (*imported)->data();
  trainer.memory[offer.number] = {gpu, offer.bytes, data, share(*std::move(imported))};
  return {};
}

std::shared_ptr<const void> GpuMemory::share(std::shared_ptr<const void> resource) const {
  const void* const address = resource.get();
  return {address, [resource = std::move(resource),
                    gpus = std::weak_ptr<GpuSet>(gpus_)](const void*) mutable {
            if (const auto set = gpus.lock()) set->free_later(std::move(resource));
          }};
}

Status GpuMemory::take_pinned(OfferedByTrainer& trainer, int gpu, OfferedMemory offer) {
  const bool is_staging = offer.kind == OfferKind::staging;
  if (!is_staging && trainer.words != nullptr)
    return invalid_argument("a rank offers memory for words once");
  const auto limit = static_cast<uint64_t>(settings_.gpu_staging_bytes);
  if (is_staging && offer.bytes > limit - std::min(limit, trainer.staging_bytes()))
    return resource_exhausted("a rank may have " + std::to_string(limit) +
                              " bytes of memory for staging; raise gpu_staging_bytes of tuttid");
  const uint64_t number = offer.number;
  Result<Pinned> pinned = pin(gpu, std::move(offer));
  if (!pinned.ok()) return pinned.status();
  if (is_staging)
    trainer.memory[number] = {gpu, (*pinned)->offer.bytes, (*pinned)->offer.pinned, *pinned, true};
  else
    trainer.words = *pinned;
  return {};
}

Result<GpuMemory::Pinned> GpuMemory::pin(int gpu, OfferedMemory offer) {
  Result<std::unique_ptr<Buffer>> pinned = gpus_->gpu(gpu).pin(offer.pinned, offer.bytes);
  if (!pinned.ok()) return pinned.status();
  auto made = std::make_shared<OfferedByTrainer::Pinned>();
  made->offer = std::move(offer);
  made->pinned = *std::move(pinned);
  const OfferedByTrainer::Pinned* const address = made.get();
  return Pinned(share(std::move(made)), address);
}

Status GpuMemory::resolve(const OfferedByTrainer& trainer, Call& call) {
  DeviceCall& device = *call.device;
  if (trainer.words == nullptr) return invalid_argument("the rank offered no memory for words");
  const uint64_t words_offset = trainer.words->offer.offset;
  const auto ready = find_word(trainer, device.asked.ready_offset, words_offset);
  if (!ready.ok()) return ready.status();
  const auto done = find_word(trainer, device.asked.done_offset, words_offset);
  if (!done.ok()) return done.status();
  device.words = {*ready, *done, device.asked.value};
  std::vector<std::shared_ptr<const void>> keeps = {call.memory, trainer.words};
  const auto in = find_side(trainer, "input", device.asked.in, device.in_bytes, device.gpu, keeps);
  if (!in.ok()) return in.status();
  const auto out =
      find_side(trainer, "output", device.asked.out, device.out_bytes, device.gpu, keeps);
  if (!out.ok()) return out.status();
  const Collective collective = call.signature.collective;
  call.in = *in;
  call.out = *out;
  if (collective == Collective::broadcast && call.in != nullptr) call.out = call.in;
  if (!may_share(collective, reinterpret_cast<uintptr_t>(*in), reinterpret_cast<uintptr_t>(*out),
                 {device.in_bytes, device.out_bytes, device.own_block}))
    return invalid_argument(
        "the input and the output overlap in part; use separate buffers or "
        "the very same one");
  if (device.gpu < 0) device.gpu = gpus_->first();
  call.memory = std::make_shared<std::vector<std::shared_ptr<const void>>>(std::move(keeps));
  return {};
}

}  // namespace tutti
