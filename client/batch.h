// A list of tensors that are reduced as one work: small ones travel together, in buckets.
//
// How a list is cut depends on its counts and dtype alone, so that all ranks cut it alike; a hash
// of them goes with every request, so that ranks whose lists differ are told so and nothing is
// mixed up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "client/operation.h"

namespace tutti::client {

// Tensors of at most so many bytes are copied into buckets; larger ones travel alone, without a
// copy where they are shared memory.
inline constexpr size_t kPackedBytesMax = size_t{256} << 10;
// Of one bucket: large enough that its messages cost little beside its bytes.
inline constexpr size_t kBucketBytesMax = size_t{4} << 20;

// What pack_layout() has room for.
inline constexpr size_t kListTensorsMax = (size_t{1} << 24) - 1;

struct TensorList {
  const void* const* ins = nullptr;
  void* const* outs = nullptr;
  const size_t* counts = nullptr;
  size_t size = 0;
  tutti_dtype dtype = TUTTI_F32;
  tutti_op op = TUTTI_SUM;
};

class Batch {
 public:
  // Copies in what must be copied, and submits all. Waits for the oldest parts only where the
  // segment or the ring is full of them.
  static Outcome submit(tutti_group& group, const TensorList& list, const tutti_options* options,
                        Manner manner, std::unique_ptr<Batch>& batch);
  explicit Batch(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}
  ~Batch();

  // As Connection's, of all parts. The outcome is that of the first part that failed.
  Outcome wait(int64_t timeout_ms);
  bool done();

 private:
  class Filling;
  struct Piece {
    void* to = nullptr;
    const std::byte* from = nullptr;
    size_t bytes = 0;
  };
  struct Part {
    std::shared_ptr<Ticket> ticket;
    std::optional<uint64_t> bucket;  // Held until unpacked.
    std::vector<Piece> pieces;
    bool ended = false;
  };

  void end(Part& part, const Outcome& outcome);

  const std::shared_ptr<Connection> connection_;
  std::vector<Part> parts_;  // Its length is fixed once submitted.
  std::mutex mutex_;         // Guards what follows, and how the parts end.
  Outcome first_failure_;
};

}  // namespace tutti::client
