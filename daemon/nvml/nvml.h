// The GPUs of this machine, as NVML reports them: what they are, how they are connected, and
// whether they work. NVML (libnvidia-ml) comes with NVIDIA's driver and is loaded at run time. It
// makes no CUDA context and takes no memory of a GPU.
//
// A GPU's driver reports its errors as XIDs. Those of an application (31: it read memory that is
// not its own) leave the GPU as it was; others (79: it has fallen off the bus) are fatal: it does
// no more work before it is reset.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/base/status.h"

namespace tutti {

// The way from one GPU to another.
struct GpuPeer {
  int index = 0;
  std::string path;  // As nvidia-smi names it: "NV4" (NVLinks), "PIX", "PXB", "PHB", "NODE", "SYS".
  bool operator==(const GpuPeer&) const = default;
};

struct GpuInfo {
  int index = 0;  // As NVML and nvidia-smi count: in order of bus ids.
  std::string name;
  std::string uuid;        // "GPU-..."; CUDA_VISIBLE_DEVICES takes it.
  std::string pci_bus_id;  // "00000000:3B:00.0".
  uint64_t memory_bytes = 0;
  uint64_t used_bytes = 0;
  bool mig = false;            // It is divided; its parts have UUIDs of their own, "MIG-...".
  uint64_t ecc_errors = 0;     // Uncorrected, since the driver was loaded.
  int nvlinks = 0;             // That are active.
  std::vector<GpuPeer> peers;  // The nearest first.

  bool is_watched = false;  // Its driver will say of XIDs: see GpuInventory::watch().
  uint64_t xid = 0;         // The last fatal one, else the last of an application; 0: none.
  std::string fault;        // Why it does no more work, as "XID 79 (...)"; empty: it works.

  // "OK", "OK, last XID 31 (...)", "failed: XID 79 (GPU has fallen off the bus)".
  std::string state() const;
};

// "XID 79 (GPU has fallen off the bus)"; "XID 7" where there is no text.
std::string describe_xid(uint64_t xid);
bool is_fatal_xid(uint64_t xid);

// One thread at a time.
class GpuInventory {
 public:
  // Loads the library, starts NVML and looks at all GPUs, which takes seconds where the driver has
  // yet to start them. UNAVAILABLE: there is no such library, it lacks a function, or NVML does
  // not start.
  static Result<std::unique_ptr<GpuInventory>> open(const std::string& library);
  virtual ~GpuInventory() = default;

  // By index. A GPU that NVML cannot use has an index and a fault alone.
  virtual const std::vector<GpuInfo>& gpus() const = 0;
  // Looks again at what changes: memory in use, ECC errors, active NVLinks.
  virtual void refresh() = 0;

  // Asks the driver to report XIDs from now on.
  virtual void watch() = 0;
  // Notes what the driver has reported, and returns the indices of the GPUs whose state() changed
  // by it. Does not block.
  virtual std::vector<int> poll() = 0;
};

}  // namespace tutti
