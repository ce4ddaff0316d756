// The GPUs of a worker, and the memory on them that trainers have offered. The driver is loaded and
// a GPU opened when the first trainer offers memory there, never before. Loop thread only.
#pragma once

#include <map>
#include <memory>

#include "daemon/base/call.h"
#include "daemon/base/settings.h"
#include "daemon/device/device.h"
#include "daemon/session/session.h"

namespace tutti {

// What one trainer has offered. Operations share ownership of what they use: memory is unmapped
// when its trainer is gone and they have ended.
class OfferedByTrainer {
 public:
  // A pinned part of the trainer's segment.
  struct Pinned {
    int gpu = 0;
    std::shared_ptr<const bool> is_pinned;  // Destroyed last.
    OfferedMemory offer;
    std::unique_ptr<Buffer> pinned;  // Destroyed before what it pins.
  };
  struct Memory {
    int gpu = 0;
    uint64_t bytes = 0;
    std::byte* data = nullptr;
    std::shared_ptr<const void> owner;  // Operations that use it hold it as well. Null: forgotten.
    bool is_staging = false;
    std::weak_ptr<const bool> is_pinned;  // Of staging: not expired before it is unpinned.
  };

  // For all that is pinned, forgotten memory included.
  uint64_t staging_bytes() const;

  std::map<uint64_t, Memory> memory;  // By number.
  std::shared_ptr<const Pinned> words;
  bool was_refused = false;                          // An offer, which was logged.
  std::map<int, std::shared_ptr<const bool>> seats;  // By the GPUs that it has offered memory of.
};

class GpuMemory {
 public:
  GpuMemory(const Settings& settings, std::shared_ptr<GpuFault> fault)
      : settings_(settings), fault_(std::move(fault)) {}

  // Takes the trainer's offer. UNAVAILABLE: no driver or GPU can be used here. RESOURCE_EXHAUSTED:
  // a limit of the settings. OUT_OF_RANGE: more staging memory than that limit; nothing that others
  // give back helps. FAILED_PRECONDITION: operations use the staging memory that should be
  // forgotten, or it is being unpinned; to be asked again. INVALID_ARGUMENT and others: the driver
  // refuses the memory.
  Status take(OfferedByTrainer& trainer, OfferedMemory offer);
  // Finds the words of a call whose tensors are in device memory, and lets the rank know that the
  // call was taken. When nobody holds call.memory any more, the rank's stream goes on and the rank
  // learns that its memory is not in use. INVALID_ARGUMENT: the words are not in what the trainer
  // has offered; nobody is notified then.
  Status take_words(const OfferedByTrainer& trainer, Call& call) const;
  // Completes a call that has its words: addresses and GPU. INVALID_ARGUMENT: they are not in what
  // the trainer has offered.
  Status resolve(const OfferedByTrainer& trainer, Call& call);
  // By UUID, the GPUs of this node that have failed, and what to say of each. Offers of memory on
  // them are refused; one that is open sets the GpuFault.
  void set_failed(std::map<std::string, std::string> gpus);
  // Null: none was opened.
  GpuSet* gpus() { return gpus_.get(); }
  // As GpuSet::close().
  bool close() { return gpus_ == nullptr || gpus_->close(); }

 private:
  using Pinned = std::shared_ptr<const OfferedByTrainer::Pinned>;
  Result<int> open(const OfferedMemory& offer);
  // Owned by operations as well; freed by the GPUs' rule.
  std::shared_ptr<const void> share(std::shared_ptr<const void> resource) const;
  static Status forget(OfferedByTrainer& trainer, uint64_t number);
  Status take_seat(OfferedByTrainer& trainer, int gpu);
  Result<Pinned> pin(int gpu, OfferedMemory offer);
  Status check_limit(const OfferedByTrainer& trainer, uint64_t bytes) const;
  Status take_pinned(OfferedByTrainer& trainer, int gpu, OfferedMemory offer);
  Status import(OfferedByTrainer& trainer, int gpu, const OfferedMemory& offer);

  const Settings& settings_;
  const std::shared_ptr<GpuFault> fault_;
  std::map<std::string, std::string> failed_;
  std::shared_ptr<GpuSet> gpus_;
  // By GPU; each trainer with memory there holds a copy.
  std::map<int, std::shared_ptr<const bool>> seats_;
};

}  // namespace tutti
