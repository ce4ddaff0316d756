// The GPUs of a worker, and the memory on them that trainers have offered. The driver is loaded and
// a GPU opened when the first trainer offers memory there, never before, and on a thread of its
// own: it takes seconds while other processes open theirs. Loop thread only.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

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

  std::map<uint64_t, Memory> memory;     // By number.
  std::optional<OfferedMemory> waiting;  // For a GPU that is being opened.
  std::shared_ptr<const Pinned> words;
  bool was_refused = false;                              // An offer, which was logged.
  std::map<int, std::shared_ptr<const bool>> used_gpus;  // By GPU: it has offered memory there.
};

class GpuMemory {
 public:
  using Task = std::function<void()>;
  using Answer = std::function<void(const Status&)>;

  // `post` has a task run on the loop's thread; any thread calls it, none after the end of this.
  GpuMemory(const Settings& settings, std::shared_ptr<GpuFault> fault,
            std::function<void(Task)> post)
      : settings_(settings), fault_(std::move(fault)), post_(std::move(post)) {}

  // Takes the trainer's offer, one at a time, and answers: at once, or, where a GPU has to be
  // opened before, once it is, and never if the trainer is gone by then. UNAVAILABLE: no driver or
  // GPU can be used here. RESOURCE_EXHAUSTED: a limit of the settings. OUT_OF_RANGE: more staging
  // memory than that limit; nothing that others give back helps. FAILED_PRECONDITION: operations
  // use the staging memory that should be forgotten, or it is being unpinned; to be asked again.
  // INVALID_ARGUMENT and others: the driver refuses the memory.
  void take(const std::shared_ptr<OfferedByTrainer>& trainer, OfferedMemory offer, Answer answer);
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
  // As GpuSet::close(); false as well if a GPU that is being opened is not open by then.
  bool close();

 private:
  using Pinned = std::shared_ptr<const OfferedByTrainer::Pinned>;
  struct Opening;
  void open(const cuda::Uuid& gpu, const std::shared_ptr<OfferedByTrainer>& trainer, Answer answer);
  std::shared_ptr<Opening> start_opening(const cuda::Uuid& gpu);
  void on_opened(const std::string& gpu, Opening& opening);
  Result<int> add_gpu(const std::string& gpu, Result<GpuSet::Opened> made);
  // OK, but for a GPU that has failed, and after a GpuFault.
  Status check_usable(const std::string& gpu) const;
  Status take_on(int gpu, OfferedByTrainer& trainer, OfferedMemory offer);
  // Owned by operations as well; freed by GpuSet::free_later().
  std::shared_ptr<const void> share(std::shared_ptr<const void> resource) const;
  static Status forget(OfferedByTrainer& trainer, uint64_t number);
  Status add_user(OfferedByTrainer& trainer, int gpu);
  Result<Pinned> pin(int gpu, OfferedMemory offer);
  Status check_limit(const OfferedByTrainer& trainer, uint64_t bytes) const;
  Status take_pinned(OfferedByTrainer& trainer, int gpu, OfferedMemory offer);
  Status import(OfferedByTrainer& trainer, int gpu, const OfferedMemory& offer);

  const Settings& settings_;
  const std::shared_ptr<GpuFault> fault_;
  const std::function<void(Task)> post_;
  std::map<std::string, std::string> failed_;
  std::map<std::string, std::shared_ptr<Opening>> openings_;  // By UUID; nobody else owns them.
  std::shared_ptr<GpuSet> gpus_;
  // By GPU; each trainer with memory there holds a copy.
  std::map<int, std::shared_ptr<const bool>> gpu_users_;
};

}  // namespace tutti
