// What XIDs mean: NVIDIA's catalogue of them, in a few words.
#include <algorithm>
#include <array>
#include <string_view>

#include "daemon/nvml/nvml.h"

namespace tutti {
namespace {

struct Xid {
  uint64_t number;
  std::string_view text;
  bool is_fatal;
};

constexpr std::array kXids = {
    Xid{8, "the work of an application came to a halt", false},
    Xid{11, "an application sent corrupt commands", false},
    Xid{13, "graphics engine exception of an application", false},
    Xid{31, "an application accessed memory that is not mapped", false},
    Xid{41, "copy engine exception of an application", false},
    Xid{43, "the work of an application was stopped", false},
    Xid{45, "the work of an application was removed", false},
    Xid{48, "uncorrectable double bit ECC error", true},
    Xid{62, "the GPU's microcontroller has halted", true},
    Xid{63, "a row of memory will be remapped at the next reset", false},
    Xid{64, "a row of memory could not be remapped", true},
    Xid{68, "video processor exception of an application", false},
    Xid{74, "NVLink error", true},
    Xid{79, "GPU has fallen off the bus", true},
    Xid{92, "many single bit ECC errors", false},
    Xid{94, "ECC error, contained to an application", false},
    Xid{95, "ECC error, not contained", true},
    Xid{109, "the work of an application took too long to switch", false},
    Xid{119, "the GPU's system processor does not answer", true},
    Xid{120, "error of the GPU's system processor", true},
    Xid{154, "the driver advises another way to recover", false},
};

const Xid* find_xid(uint64_t number) {
  const auto found = std::ranges::find(kXids, number, &Xid::number);
  return found == kXids.end() ? nullptr : found;
}

}  // namespace

std::string describe_xid(uint64_t xid) {
  const Xid* known = find_xid(xid);
  const std::string number = "XID " + std::to_string(xid);
  return known == nullptr ? number : number + " (" + std::string(known->text) + ")";
}

// One that is not known counts as fatal: the driver calls all that it reports here critical.
bool is_fatal_xid(uint64_t xid) {
  const Xid* known = find_xid(xid);
  return known == nullptr || known->is_fatal;
}

std::string GpuInfo::state() const {
  if (!fault.empty()) return "failed: " + fault;
  return xid == 0 ? "OK" : "OK, last " + describe_xid(xid);
}

}  // namespace tutti
