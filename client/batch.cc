#include "client/batch.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tutti::client {
namespace {

// FNV-1a over whole words.
uint64_t layout_of(const TensorList& list) {
  uint64_t hash = 14695981039346656037ull;
  const auto add = [&](uint64_t word) {
    hash = (hash ^ word) * 1099511628211ull;
    hash ^= hash >> 32;
  };
  add(kPackedBytesMax);
  add(kBucketBytesMax);
  for (size_t i = 0; i < list.size; ++i) add(list.counts[i]);
  return pack_layout(list.size, hash);
}

Outcome check(Connection& connection, const TensorList& list) {
  if (list.size == 0) return {};
  if (list.size > kListTensorsMax)
    return failure(TUTTI_INVALID_ARGUMENT, "a list of " + std::to_string(list.size) +
                                               " tensors; it may have at most " +
                                               std::to_string(kListTensorsMax));
  if (list.ins == nullptr || list.outs == nullptr || list.counts == nullptr)
    return failure(TUTTI_INVALID_ARGUMENT, "a list of tensors is NULL");
  for (size_t i = 0; i < list.size; ++i) {
    size_t bytes = 0;
    const size_t count = list.counts[i];
    const std::string which = "tensor " + std::to_string(i) + " of the list: ";
    if (__builtin_mul_overflow(count, tutti_dtype_size(list.dtype), &bytes))
      return failure(TUTTI_INVALID_ARGUMENT,
                     which + "count " + std::to_string(count) + " is more than any memory holds");
    if (bytes != 0 && (list.ins[i] == nullptr || list.outs[i] == nullptr))
      return failure(TUTTI_INVALID_ARGUMENT,
                     which + "a buffer is NULL though count is " + std::to_string(count));
    Outcome fits = connection.check_block("the input", list.ins[i], bytes);
    if (fits.ok()) fits = connection.check_block("the output", list.outs[i], bytes);
    if (!fits.ok()) return failure(fits.code, which + fits.message);
  }
  return {};
}

}  // namespace

// A batch while it is cut, packed and submitted.
class Batch::Filling {
 public:
  Filling(Batch& batch, tutti_group& group, const TensorList& list, const tutti_options* options,
          Manner manner)
      : batch_(batch),
        group_(group),
        list_(list),
        options_(options),
        manner_(manner),
        layout_(layout_of(list)) {}

  Outcome run() {
    const std::vector<Cut> cuts = cut();
    following_ = static_cast<uint32_t>(cuts.size());
    if (cuts.size() != 1) manner_ = Manner::background;  // There is more to do before the wait.
    for (const Cut& part : cuts) {
      --following_;
      if (Outcome o = part.alone ? submit_alone(part) : submit_bucket(part); !o.ok()) return o;
    }
    return {};
  }

 private:
  struct Cut {
    std::vector<size_t> tensors;
    size_t bytes = 0;
    bool alone = false;
  };

  size_t bytes_of(size_t i) const { return list_.counts[i] * tutti_dtype_size(list_.dtype); }

  // By counts and dtype alone.
  std::vector<Cut> cut() const {
    std::vector<Cut> cuts;
    Cut bucket;
    for (size_t i = 0; i < list_.size; ++i) {
      const size_t bytes = bytes_of(i);
      if (bytes > kPackedBytesMax) {
        cuts.push_back({{i}, bytes, true});
        continue;
      }
      if (bucket.bytes + bytes > kBucketBytesMax) cuts.push_back(std::exchange(bucket, {}));
      bucket.tensors.push_back(i);
      bucket.bytes += bytes;
    }
    // A list of nothing is still compared with the other ranks'.
    if (!bucket.tensors.empty() || cuts.empty()) cuts.push_back(std::move(bucket));
    return cuts;
  }

  Outcome submit_alone(const Cut& cut) {
    const size_t i = cut.tensors.front();
    return submit_part({}, list_.ins[i], list_.outs[i], list_.counts[i]);
  }

  Outcome submit_bucket(const Cut& cut) {
    Part part;
    std::byte* memory = nullptr;
    if (Outcome o = take_memory(cut.bytes, memory); !o.ok()) return o;
    if (memory != nullptr) part.bucket = batch_.connection_->offset_of(memory);
    std::byte* at = memory;
    size_t count = 0;
    for (const size_t i : cut.tensors) {
      count += list_.counts[i];
      const size_t bytes = bytes_of(i);
      if (bytes == 0) continue;
      std::memcpy(at, list_.ins[i], bytes);
      part.pieces.push_back({list_.outs[i], at, bytes});
      at += bytes;
    }
    return submit_part(std::move(part), memory, memory, count);
  }

  Outcome take_memory(size_t bytes, std::byte*& memory) {
    if (bytes == 0) return {};
    do memory = batch_.connection_->allocate(bytes);
    while (memory == nullptr && make_room());
    if (memory != nullptr) return {};
    return failure(TUTTI_RESOURCE_EXHAUSTED,
                   "the segment has no room for " + std::to_string(bytes) +
                       " bytes more; free buffers, or raise segment_bytes");
  }

  Outcome submit_part(Part part, const void* in, void* out, size_t count) {
    const Operation operation{TUTTI_ALL_REDUCE, in, out,     count,      list_.dtype,
                              list_.op,         0,  layout_, following_, !batch_.parts_.empty()};
    Outcome submitted;
    do submitted = client::submit(group_, operation, options_, manner_, part.ticket);
    while (submitted.code == TUTTI_RESOURCE_EXHAUSTED && make_room());
    if (submitted.ok())
      batch_.parts_.push_back(std::move(part));
    else if (part.bucket)
      batch_.connection_->release({*part.bucket});
    return submitted;
  }

  // Ends the oldest part that has not ended; false: there is none.
  bool make_room() {
    while (oldest_ < batch_.parts_.size() && batch_.parts_[oldest_].ended) ++oldest_;
    if (oldest_ == batch_.parts_.size()) return false;
    Part& part = batch_.parts_[oldest_];
    batch_.end(part, batch_.connection_->wait(*part.ticket, -1));
    return true;
  }

  Batch& batch_;
  tutti_group& group_;
  const TensorList& list_;
  const tutti_options* options_;
  Manner manner_;
  const uint64_t layout_;
  uint32_t following_ = 0;  // Parts to come.
  size_t oldest_ = 0;
};

Outcome Batch::submit(tutti_group& group, const TensorList& list, const tutti_options* options,
                      Manner manner, std::unique_ptr<Batch>& batch) {
  if (Outcome o = check(*group.connection, list); !o.ok()) return o;
  batch = std::make_unique<Batch>(group.connection);
  return Filling(*batch, group, list, options, manner).run();
}

Batch::~Batch() {
  for (Part& part : parts_)
    guarded([&] {
      connection_->abandon(part.ticket);
      if (part.bucket && !part.ended) connection_->release({*part.bucket});
    });
}

void Batch::end(Part& part, const Outcome& outcome) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(part.ended, true)) return;
  if (!outcome.ok() && first_failure_.ok()) first_failure_ = outcome;
  if (outcome.ok())
    for (const Piece& piece : part.pieces) std::memcpy(piece.to, piece.from, piece.bytes);
  if (part.bucket) connection_->release({*part.bucket});
}

Outcome Batch::wait(int64_t timeout_ms) {
  const TimePoint limit = Clock::now() + Millis(timeout_ms);
  for (Part& part : parts_) {
    const auto left = std::chrono::ceil<Millis>(limit - Clock::now()).count();
    Outcome outcome =
        connection_->wait(*part.ticket, timeout_ms < 0 ? -1 : std::max<int64_t>(left, 0));
    if (!outcome.ok()) {
      if (!connection_->done(*part.ticket)) return outcome;
      outcome = connection_->wait(*part.ticket, -1);  // Its own, and not that time is up.
    }
    end(part, outcome);
  }
  const std::lock_guard lock(mutex_);
  return first_failure_;
}

bool Batch::done() {
  return std::ranges::all_of(parts_,
                             [this](const Part& part) { return connection_->done(*part.ticket); });
}

}  // namespace tutti::client
