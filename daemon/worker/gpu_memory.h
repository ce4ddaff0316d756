// The GPUs of a worker, and the memory on them that trainers have offered. The driver is loaded and
// a GPU opened when the first trainer offers memory there, never before. Loop thread only.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "daemon/base/call.h"
#include "daemon/device/device.h"
#include "daemon/session/session.h"

namespace tutti {

// What one trainer has offered. Operations share ownership of what they use: memory is unmapped
// when its trainer is gone and they have ended.
class OfferedByTrainer {
 public:
  struct Memory {
    int gpu = 0;
    uint64_t bytes = 0;
    std::shared_ptr<Buffer> buffer;
  };
  struct Words {
    std::shared_ptr<Buffer> pinned;  // Destroyed before what it pins.
    OfferedMemory offer;
  };

  std::map<uint64_t, Memory> memory;  // By number.
  std::shared_ptr<Words> words;
};

class GpuMemory {
 public:
  // `library`: of the driver.
  explicit GpuMemory(std::string library) : library_(std::move(library)) {}

  // Takes the trainer's offer. UNAVAILABLE: no driver or GPU can be used here. INVALID_ARGUMENT and
  // others: the driver refuses the memory.
  Status take(OfferedByTrainer& trainer, OfferedMemory offer);
  // Completes a call whose tensors are in device memory: addresses, GPU and words.
  // INVALID_ARGUMENT: they are not in what the trainer has offered. `base`: of the trainer's
  // segment.
  Status resolve(const OfferedByTrainer& trainer, Call& call);
  // Null: none was opened.
  GpuSet* gpus() { return gpus_.get(); }

 private:
  Result<int> open(const OfferedMemory& offer);
  Status take_words(OfferedByTrainer& trainer, OfferedMemory offer);

  const std::string library_;
  std::unique_ptr<GpuSet> gpus_;
};

}  // namespace tutti
