// Writing to a recorder (proto/recorder.h). Each ring has one owner, whose threads may write at
// once; a record that two threads write, because a whole ring passed meanwhile, is lost.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <ctime>

#include "daemon/base/status.h"
#include "proto/recorder.h"

namespace tutti::trace {

// A recorder that is mapped for writing. The mapping must outlive it.
class RecorderView {
 public:
  RecorderView() = default;
  RecorderView(std::byte* base, uint32_t local_ranks) : base_(base), local_ranks_(local_ranks) {}

  RecorderHeader& header() const { return *reinterpret_cast<RecorderHeader*>(base_); }
  RecordedGroup& group(uint32_t area) const {
    return reinterpret_cast<RecordedGroup*>(base_ + kGroupsOffset)[area];
  }
  RankRecorder& rank(uint32_t local_rank) const {
    return *reinterpret_cast<RankRecorder*>(base_ + rank_recorder_offset(local_rank));
  }
  // For the worker.
  RecordRing& among_hosts() const {
    return *reinterpret_cast<RecordRing*>(base_ + rank_recorder_offset(local_ranks_));
  }

 private:
  std::byte* base_ = nullptr;
  uint32_t local_ranks_ = 0;
};

// CLOCK_MONOTONIC, in ns.
inline uint64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

using RecordFields = std::array<uint64_t, kRecordFields>;

// For a record's index and fields. Another one fits by chance, once in 2^32.
constexpr uint32_t checksum_of(uint64_t index, const RecordFields& fields) {
  constexpr RecordFields factors = {0x9e3779b97f4a7c15, 0xc2b2ae3d27d4eb4f, 0x165667b19e3779f9,
                                    0xd6e8feb86659fd93, 0xa0761d6478bd642f, 0xe7037ed1a0b428db};
  uint64_t sum = index * 0x8ebc6af09c88c6e3;
  for (size_t i = 0; i < fields.size(); ++i) sum += (fields[i] ^ fields[i] >> 32) * factors[i];
  return static_cast<uint32_t>(sum >> 32);
}

// Records an operation that begins. Returns its index, for record_end().
inline uint64_t record_begin(RecordRing& ring, const RecordFields& fields) {
  constexpr auto relaxed = std::memory_order_relaxed;
  const uint64_t index = ring.next.fetch_add(1, relaxed);
  Record& record = ring.records[index % kRecordsKept];
  record.outcome.store(0, relaxed);
  for (size_t i = 0; i < fields.size(); ++i) record.fields[i].store(fields[i], relaxed);
  record.checked_index.store(pack_checked_index(index, checksum_of(index, fields)),
                             std::memory_order_release);
  return index;
}

// Adds the outcome, unless a later operation has taken the record's place.
inline void record_end(RecordRing& ring, uint64_t index, uint64_t duration_ns, Code code) {
  Record& record = ring.records[index % kRecordsKept];
  if (low_half(record.checked_index.load(std::memory_order_relaxed)) != low_half(index + 1)) return;
  record.outcome.store(pack_outcome(duration_ns, index, static_cast<uint32_t>(code)),
                       std::memory_order_relaxed);
}

// Adds an operation of a rank that has ended to its totals.
inline void add_to_totals(RankRecorder& rank, Collective collective, uint64_t bytes,
                          uint64_t duration_ns, Code code) {
  const auto add = [](std::atomic<uint64_t>& total, uint64_t more) {
    total.fetch_add(more, std::memory_order_relaxed);
  };
  add(rank.ended[static_cast<uint32_t>(code) % kCodes], 1);
  if (code != Code::ok) return;
  RecordedTotals& totals = rank.totals[static_cast<size_t>(collective)][size_class_of(bytes)];
  add(totals.durations[duration_bucket_of(duration_ns)], 1);
  add(totals.duration_ns, duration_ns);
  add(totals.bytes, bytes);
}

}  // namespace tutti::trace
