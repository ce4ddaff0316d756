#include "daemon/worker/gpu_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "daemon/base/loop.h"
#include "daemon/board/board.h"

namespace tutti {
namespace {

constexpr size_t kOffersMax = 65'536;                   // Of one trainer.
constexpr uint64_t kWordsBytesMax = uint64_t{1} << 20;  // It is pinned, without another limit.

cuda::Uuid gpu_of(const OfferedMemory& offer) {
  cuda::Uuid uuid{};
  std::memcpy(uuid.bytes, offer.gpu.data(), sizeof(uuid.bytes));
  return uuid;
}

Result<GpuSet::Opened> open_gpu(const std::string& library, const cuda::Uuid& gpu,
                                const std::shared_ptr<GpuFault>& fault) {
  const Result<const cuda::Driver*> driver = cuda::load_driver(library);
  if (driver.ok()) return GpuSet::prepare(**driver, gpu, fault);
  return unavailable(driver.status().message() +
                     "; the worker needs the driver and the GPUs that trainers use");
}

MemoryHandle handle_of(const OfferedMemory& offer) {
  MemoryHandle handle{.ipc = offer.ipc, .bytes = offer.bytes};
  for (size_t i = 0; i < offer.descriptors.size(); ++i)
    handle.chunks.push_back({offer.descriptors[i].get(), offer.chunk_bytes[i]});
  return handle;
}

Status check_number(const OfferedByTrainer& trainer, const OfferedMemory& offer) {
  if (offer.number == 0 || trainer.memory.contains(offer.number))
    return invalid_argument("an offer needs a number of its own");
  if (trainer.memory.size() >= kOffersMax)
    return resource_exhausted("a rank offers at most " + std::to_string(kOffersMax) +
                              " pieces of memory");
  return {};
}

Status overlaps_in_part() {
  return invalid_argument(
      "the input and the output overlap in part; use separate buffers or the very same one");
}

// The address of a side; null: the rank has none, or it has no bytes.
Result<std::byte*> find_side(const OfferedByTrainer& trainer, const char* side,
                             const DeviceSide& asked, uint64_t bytes, Dtype dtype, int& gpu,
                             std::vector<std::shared_ptr<const void>>& keeps) {
  if (bytes == 0) return static_cast<std::byte*>(nullptr);
  const auto found = trainer.memory.find(asked.memory);
  if (found == trainer.memory.end() || found->second.owner == nullptr)
    return invalid_argument("the " + std::string(side) + " is in memory that was not offered");
  const OfferedByTrainer::Memory& memory = found->second;
  if (asked.offset > memory.bytes || bytes > memory.bytes - asked.offset)
    return invalid_argument("the " + std::string(side) + " (" + std::to_string(bytes) +
                            " bytes at offset " + std::to_string(asked.offset) +
                            ") exceeds its memory of " + std::to_string(memory.bytes) + " bytes");
  if (reinterpret_cast<uintptr_t>(memory.data + asked.offset) % size_of(dtype) != 0)
    return invalid_argument("the " + std::string(side) + " (" + std::to_string(bytes) +
                            " bytes at offset " + std::to_string(asked.offset) +
                            ") is not aligned for " + std::string(name_of(dtype)));
  gpu = memory.gpu;
  if (keeps.empty() || keeps.back() != memory.owner) keeps.push_back(memory.owner);
  return memory.data + asked.offset;
}

// The tensors of a list.
Status find_listed(const OfferedByTrainer& trainer, Call& call,
                   std::vector<std::shared_ptr<const void>>& keeps) {
  DeviceCall& device = *call.device;
  auto tensors = std::make_shared<std::vector<ListedSides>>();
  tensors->reserve(device.listed.size());
  uint64_t begin = 0;
  for (const ListedDeviceTensor& asked : device.listed) {
    const Dtype dtype = call.signature.dtype;
    const uint64_t bytes = asked.count * size_of(dtype);
    const auto in = find_side(trainer, "input", asked.in, bytes, dtype, device.gpu, keeps);
    if (!in.ok()) return in.status();
    const auto out = find_side(trainer, "output", asked.out, bytes, dtype, device.gpu, keeps);
    if (!out.ok()) return out.status();
    if (!may_share(Collective::all_reduce, reinterpret_cast<uintptr_t>(*in),
                   reinterpret_cast<uintptr_t>(*out), {bytes, bytes, 0}))
      return overlaps_in_part();
    tensors->push_back({begin, bytes, *in, *out});
    begin += bytes;
  }
  device.tensors = std::move(tensors);
  return {};
}

Result<std::atomic<uint64_t>*> find_word(const OfferedByTrainer& trainer, uint64_t offset,
                                         uint64_t words_offset) {
  const OfferedMemory& words = trainer.words->offer;
  if (offset % alignof(uint64_t) != 0 || offset < words_offset ||
      offset - words_offset > words.bytes - sizeof(uint64_t))
    return invalid_argument("a word lies outside the memory for words");
  return reinterpret_cast<std::atomic<uint64_t>*>(words.pinned + (offset - words_offset));
}

// What an operation keeps of a rank. After a fault of a GPU others may still be at work, and only
// the end of this process, which is near, tells the rank that they are not.
class KeptMemory {
 public:
  KeptMemory(const StreamWords& words, std::vector<std::shared_ptr<const void>> keeps,
             std::shared_ptr<const GpuFault> fault)
      : words_(words), fault_(std::move(fault)), keeps_(std::move(keeps)) {}
  KeptMemory(const KeptMemory&) = delete;
  KeptMemory& operator=(const KeptMemory&) = delete;
  ~KeptMemory() {
    if (!fault_->is_set()) words_.pass();
  }

 private:
  const StreamWords words_;
  const std::shared_ptr<const GpuFault> fault_;
  const std::vector<std::shared_ptr<const void>> keeps_;
};

// The driver refuses to pin memory twice.
Status check_apart(const OfferedByTrainer& trainer, const OfferedMemory& offer) {
  const auto overlaps = [&](const std::byte* data, uint64_t bytes) {
    return offer.pinned < data + bytes && data < offer.pinned + offer.bytes;
  };
  const auto is_in_the_way = [&](const auto& entry) {
    return !entry.second.is_pinned.expired() && overlaps(entry.second.data, entry.second.bytes);
  };
  const OfferedMemory* const words = trainer.words == nullptr ? nullptr : &trainer.words->offer;
  if ((words == nullptr || !overlaps(words->pinned, words->bytes)) &&
      std::ranges::none_of(trainer.memory, is_in_the_way))
    return {};
  return invalid_argument("the memory (" + std::to_string(offer.bytes) + " bytes at offset " +
                          std::to_string(offer.offset) +
                          " of the segment) overlaps what the rank has offered; offer it once");
}

}  // namespace

uint64_t OfferedByTrainer::staging_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [number, piece] : memory) bytes += piece.is_pinned.expired() ? 0 : piece.bytes;
  return bytes;
}

void GpuMemory::set_failed(std::map<std::string, std::string> gpus) {
  failed_ = std::move(gpus);
  if (gpus_ == nullptr) return;
  for (const auto& [uuid, what] : failed_) gpus_->give_up(uuid, what);
}

Status GpuMemory::check_usable(const std::string& gpu) const {
  const auto failed = failed_.find(gpu);
  return failed != failed_.end() ? unavailable(failed->second) : fault_->status();
}

// A GPU that is being opened, and who waits for it.
struct GpuMemory::Opening {
  struct Waiting {
    std::weak_ptr<OfferedByTrainer> trainer;
    Answer answer;
  };

  Opening() = default;
  Opening(const Opening&) = delete;
  Opening& operator=(const Opening&) = delete;
  ~Opening() { end(); }
  // As DriverThread::end(). A GPU that nobody has taken is closed on the thread.
  bool end(DriverThread::TimePoint limit = Clock::now() + DriverThread::kEndBound) {
    if (made != nullptr) thread.free(std::exchange(made, nullptr));
    return thread.end(limit);
  }

  std::vector<Waiting> waiting;
  // The thread's, until it is done.
  std::shared_ptr<Result<GpuSet::Opened>> made =
      std::make_shared<Result<GpuSet::Opened>>(unavailable("the GPU is being opened"));
  DriverThread thread;
};

void GpuMemory::open(const cuda::Uuid& gpu, const std::shared_ptr<OfferedByTrainer>& trainer,
                     Answer answer) {
  std::shared_ptr<Opening>& opening = openings_[cuda::text_of(gpu)];
  if (opening == nullptr) opening = start_opening(gpu);
  opening->waiting.push_back({trainer, std::move(answer)});
}

std::shared_ptr<GpuMemory::Opening> GpuMemory::start_opening(const cuda::Uuid& gpu) {
  auto opening = std::make_shared<Opening>();
  auto open = [made = opening->made, library = settings_.cuda_driver, gpu, fault = fault_] {
    *made = open_gpu(library, gpu, fault);
  };
  auto then = [this, gpu, started = std::weak_ptr(opening)] {
    post_([this, gpu, started] {
      if (const auto opened = started.lock()) on_opened(cuda::text_of(gpu), *opened);
    });
  };
  opening->thread.run(std::move(open), std::move(then));
  return opening;
}

void GpuMemory::on_opened(const std::string& gpu, Opening& opening) {
  openings_.erase(gpu);
  const Result<int> number = add_gpu(gpu, std::move(*opening.made));
  for (const Opening::Waiting& waiting : opening.waiting) {
    const std::shared_ptr<OfferedByTrainer> trainer = waiting.trainer.lock();
    if (trainer == nullptr) continue;
    OfferedMemory offer = *std::exchange(trainer->waiting, std::nullopt);
    waiting.answer(number.ok() ? take_on(*number, *trainer, std::move(offer)) : number.status());
  }
}

Result<int> GpuMemory::add_gpu(const std::string& gpu, Result<GpuSet::Opened> made) {
  if (made.ok() && gpus_ == nullptr) gpus_ = std::make_shared<GpuSet>(*made->driver, fault_);
  const Result<int> number = made.ok() ? gpus_->add(*std::move(made)) : made.status();
  const auto failed = failed_.find(gpu);
  if (number.ok() && failed != failed_.end()) gpus_->give_up(gpu, failed->second);
  const Status usable = check_usable(gpu);
  return usable.ok() ? number : usable;
}

bool GpuMemory::close() {
  const TimePoint limit = Clock::now() + DriverThread::kEndBound;
  bool all_ended = true;
  for (const auto& [gpu, opening] : openings_) all_ended = opening->end(limit) && all_ended;
  openings_.clear();
  return all_ended && (gpus_ == nullptr || gpus_->close());
}

Status GpuMemory::add_user(OfferedByTrainer& trainer, int gpu) {
  if (trainer.used_gpus.contains(gpu)) return {};
  std::shared_ptr<const bool>& users = gpu_users_[gpu];
  if (users == nullptr) users = std::make_shared<const bool>();
  if (users.use_count() > settings_.gpu_ranks)
    return resource_exhausted("GPU " + std::to_string(gpu) + " has " +
                              std::to_string(settings_.gpu_ranks) +
                              " ranks of this job already; raise gpu_ranks of tuttid");
  trainer.used_gpus[gpu] = users;
  return {};
}

void GpuMemory::take(const std::shared_ptr<OfferedByTrainer>& trainer, OfferedMemory offer,
                     Answer answer) {
  if (offer.kind == OfferKind::forget) return answer(forget(*trainer, offer.number));
  if (Status s = check_number(*trainer, offer); !s.ok()) return answer(s);
  const cuda::Uuid gpu = gpu_of(offer);
  const std::string name = cuda::text_of(gpu);
  if (Status usable = check_usable(name); !usable.ok()) return answer(usable);
  if (const auto number = gpus_ == nullptr ? std::nullopt : gpus_->find(name))
    return answer(take_on(*number, *trainer, std::move(offer)));
  require(!trainer->waiting, "a rank offers again once it has been answered");
  trainer->waiting = std::move(offer);
  open(gpu, trainer, std::move(answer));
}

Status GpuMemory::take_on(int gpu, OfferedByTrainer& trainer, OfferedMemory offer) {
  if (Status s = add_user(trainer, gpu); !s.ok()) return s;
  const bool is_pinned = offer.kind == OfferKind::words || offer.kind == OfferKind::staging;
  return is_pinned ? take_pinned(trainer, gpu, std::move(offer)) : import(trainer, gpu, offer);
}

// The rank may use a piece of its segment again once it is notified that the piece is forgotten.
Status GpuMemory::forget(OfferedByTrainer& trainer, uint64_t number) {
  const auto found = trainer.memory.find(number);
  if (found == trainer.memory.end()) return {};
  OfferedByTrainer::Memory& memory = found->second;
  if (memory.is_staging && memory.owner.use_count() > 1)
    return failed_precondition("operations use this memory; ask again when they have ended");
  memory.owner.reset();
  if (!memory.is_pinned.expired())
    return failed_precondition("this memory is being unpinned; ask again soon");
  trainer.memory.erase(found);
  return {};
}

Status GpuMemory::import(OfferedByTrainer& trainer, int gpu, const OfferedMemory& offer) {
  Result<std::unique_ptr<Buffer>> imported = gpus_->gpu(gpu).import_memory(handle_of(offer));
  if (!imported.ok()) return imported.status();
  std::byte* const data = (*imported)->data();
  trainer.memory[offer.number] = {
      .gpu = gpu, .bytes = offer.bytes, .data = data, .owner = share(*std::move(imported))};
  return {};
}

std::shared_ptr<const void> GpuMemory::share(std::shared_ptr<const void> resource) const {
  const void* const address = resource.get();
  return {address, [resource = std::move(resource),
                    gpus = std::weak_ptr<GpuSet>(gpus_)](const void*) mutable {
            if (const auto set = gpus.lock()) set->free_later(std::move(resource));
          }};
}

// What others leave is less than the limit, so no wait helps what exceeds that alone: the codes
// tell the rank.
Status GpuMemory::check_limit(const OfferedByTrainer& trainer, uint64_t bytes) const {
  const auto limit = static_cast<uint64_t>(settings_.gpu_staging_bytes);
  if (bytes <= limit - std::min(limit, trainer.staging_bytes())) return {};
  return Status(bytes > limit ? Code::out_of_range : Code::resource_exhausted,
                "a rank may have " + std::to_string(limit) +
                    " bytes of memory for staging; raise gpu_staging_bytes of tuttid");
}

Status GpuMemory::take_pinned(OfferedByTrainer& trainer, int gpu, OfferedMemory offer) {
  const bool is_staging = offer.kind == OfferKind::staging;
  if (!is_staging && trainer.words != nullptr)
    return invalid_argument("a rank offers memory for words once");
  if (!is_staging && offer.bytes > kWordsBytesMax)
    return invalid_argument("a rank offers at most " + std::to_string(kWordsBytesMax) +
                            " bytes for words, not " + std::to_string(offer.bytes));
  if (Status apart = check_apart(trainer, offer); !apart.ok()) return apart;
  if (is_staging)
    if (Status s = check_limit(trainer, offer.bytes); !s.ok()) return s;
  const uint64_t number = offer.number;
  Result<Pinned> pinned = pin(gpu, std::move(offer));
  if (!pinned.ok()) return pinned.status();
  if (is_staging)
    trainer.memory[number] = {.gpu = gpu,
                              .bytes = (*pinned)->offer.bytes,
                              .data = (*pinned)->offer.pinned,
                              .owner = *pinned,
                              .is_staging = true,
                              .is_pinned = (*pinned)->is_pinned};
  else
    trainer.words = *pinned;
  return {};
}

Result<GpuMemory::Pinned> GpuMemory::pin(int gpu, OfferedMemory offer) {
  Result<std::unique_ptr<Buffer>> pinned = gpus_->gpu(gpu).pin(offer.pinned, offer.bytes);
  if (!pinned.ok()) return pinned.status();
  auto made = std::make_shared<OfferedByTrainer::Pinned>();
  made->gpu = gpu;
  made->is_pinned = std::make_shared<const bool>(true);
  made->offer = std::move(offer);
  made->pinned = *std::move(pinned);
  const OfferedByTrainer::Pinned* const address = made.get();
  return Pinned(share(std::move(made)), address);
}

Status GpuMemory::take_words(const OfferedByTrainer& trainer, Call& call) const {
  const DeviceRequest& asked = call.device->asked;
  if (trainer.words == nullptr) return invalid_argument("the rank offered no memory for words");
  const uint64_t words_offset = trainer.words->offer.offset;
  const auto ready = find_word(trainer, asked.ready_offset, words_offset);
  if (!ready.ok()) return ready.status();
  const auto done = find_word(trainer, asked.done_offset, words_offset);
  if (!done.ok()) return done.status();
  const auto passed = find_word(trainer, asked.passed_offset, words_offset);
  if (!passed.ok()) return passed.status();
  const StreamWords words{*ready, *done, *passed, asked.value};
  words.take();
  call.device->words = words;
  std::vector<std::shared_ptr<const void>> keeps = {call.memory, trainer.words};
  call.memory = std::make_shared<const KeptMemory>(words, std::move(keeps), fault_);
  return {};
}

Status GpuMemory::resolve(const OfferedByTrainer& trainer, Call& call) {
  DeviceCall& device = *call.device;
  std::vector<std::shared_ptr<const void>> keeps;
  if (!device.listed.empty()) {
    if (Status s = find_listed(trainer, call, keeps); !s.ok()) return s;
    keeps.push_back(std::move(call.memory));
    call.memory = std::make_shared<std::vector<std::shared_ptr<const void>>>(std::move(keeps));
    return {};
  }
  const Dtype dtype = call.signature.dtype;
  const auto in =
      find_side(trainer, "input", device.asked.in, device.in_bytes, dtype, device.gpu, keeps);
  if (!in.ok()) return in.status();
  const auto out =
      find_side(trainer, "output", device.asked.out, device.out_bytes, dtype, device.gpu, keeps);
  if (!out.ok()) return out.status();
  const Collective collective = call.signature.collective;
  call.in = *in;
  call.out = *out;
  if (collective == Collective::broadcast && call.in != nullptr) call.out = call.in;
  if (!may_share(collective, reinterpret_cast<uintptr_t>(*in), reinterpret_cast<uintptr_t>(*out),
                 {device.in_bytes, device.out_bytes, device.own_block}))
    return overlaps_in_part();
  if (device.gpu < 0) device.gpu = trainer.words->gpu;
  keeps.push_back(std::move(call.memory));
  call.memory = std::make_shared<std::vector<std::shared_ptr<const void>>>(std::move(keeps));
  return {};
}

}  // namespace tutti
