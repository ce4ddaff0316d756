// Small operations that start together run as one: one slice, and one frame a step where each would
// have its own. The leader decides which (Fuser); every host packs its ranks' inputs (Packing).
//
// No result may depend on what it happened to be fused with. So only operations are fused whose
// strategies fold every element in one order, wherever it lies; a ring does not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "daemon/group/signature.h"

namespace tutti {

// What the leader tells the hosts to run: one operation, or several as one.
struct StartOrder {
  uint32_t group = 0;
  std::vector<uint64_t> seqs;  // The operation runs under the first one's number.
  Strategies strategies;       // Decided.
  uint64_t slice_bytes = 0;
};

struct FuseLimits {
  uint64_t op_bytes_max = 0;     // Larger operations run alone. 0: all do.
  uint64_t fused_bytes_max = 0;  // Of all that run as one.
  size_t ops_max = 1;
};

class Fuser {
 public:
  explicit Fuser(const FuseLimits& limits) : limits_(limits) {}

  // Whether such an operation may run as one with others. `strategies`: as decided for it.
  bool takes(const Signature& signature, const Strategies& strategies) const;
  void add(StartOrder order, const Signature& signature);
  bool empty() const { return waiting_.empty(); }
  // All that was added since, as few orders as may be.
  std::vector<StartOrder> take();

 private:
  struct Waiting {
    StartOrder order;
    Signature signature;  // Of the first.
    uint64_t bytes = 0;
  };

  const FuseLimits limits_;
  std::vector<Waiting> waiting_;
};

// Whether two operations may be parts of one, as every host checks for itself.
bool fit_together(const Signature& a, const Signature& b);

// One rank's tensors of operations that run as one.
class Packing {
 public:
  struct Piece {
    const std::byte* in = nullptr;
    std::byte* out = nullptr;
    size_t bytes = 0;
  };
  // Copies the inputs.
  explicit Packing(std::vector<Piece> pieces);
  std::byte* data() const { return memory_.get(); }
  // Copies the results out. The pieces' memory must still be there.
  void unpack() const;

 private:
  const std::vector<Piece> pieces_;
  std::unique_ptr<std::byte[]> memory_;
};

}  // namespace tutti
