// The context of a GPU in this process, and what all that is made of it shares.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/cuda/cuda.h"
#include "daemon/device/cuda_job.h"
#include "daemon/device/device.h"

namespace tutti {

// Where streams have their CudaVerdicts: parts of pages of the device's memory, which are kept as
// long as the context, since the driver may wait for all streams to free memory. Any thread.
class VerdictPlaces {
 public:
  static constexpr size_t kPageBytes = 4096;
  struct Place {
    cuda::Pointer at = 0;
    uint64_t launches = 0;  // That the verdict counts.
  };

  // `page`: zeros.
  void add(cuda::Pointer page) {
    const std::lock_guard lock(mutex_);
    pages_.push_back(page);
    for (size_t at = 0; at < kPageBytes; at += sizeof(CudaVerdict))
      spare_.push_back({page + at, 0});
  }
  std::optional<Place> take() {
    const std::lock_guard lock(mutex_);
    if (spare_.empty()) return std::nullopt;
    const Place taken = spare_.back();
    spare_.pop_back();
    return taken;
  }
  void give_back(const Place& place) {
    const std::lock_guard lock(mutex_);
    spare_.push_back(place);
  }
  const std::vector<cuda::Pointer>& pages() const { return pages_; }

 private:
  std::mutex mutex_;
  std::vector<Place> spare_;
  std::vector<cuda::Pointer> pages_;
};

// The device's context, kept by the device and everything made of it.
class PrimaryContext {
 public:
  PrimaryContext(const cuda::Driver& driver, cuda::DeviceId device, cuda::Context context,
                 std::shared_ptr<GpuFault> fault)
      : driver(driver), device(device), handle(context), fault(std::move(fault)) {}
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;
  ~PrimaryContext() {
    free_by([&](const cuda::Driver& from) {
      for (const cuda::Pointer page : places.pages()) from.mem_free(page);
    });
    if (!fault->is_set()) driver.device_primary_ctx_release(device);
  }
  // For destructors, which cannot report errors. After a fault they leave all to the process's end.
  template <class Function>
  void free_by(const Function& function) const {
    if (fault->is_set()) return;
    const cuda::Current current(driver, handle);
    function(driver);
  }

  const cuda::Driver& driver;
  const cuda::DeviceId device;
  const cuda::Context handle;
  const std::shared_ptr<GpuFault> fault;
  mutable std::atomic<cuda::Error> sticky = cuda::kSuccess;  // Of this context, which is lost.
  mutable VerdictPlaces places;
};
using ContextPtr = std::shared_ptr<const PrimaryContext>;

}  // namespace tutti
