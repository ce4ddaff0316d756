#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <set>

#include "daemon/trace/trace.h"

namespace tutti::trace {
namespace {

constexpr uint64_t kStatBlockBytes = 512;       // See stat(3type).
constexpr long kMemoryFileSystem = 0x01021994;  // TMPFS_MAGIC: of a memfd.

// The words of a Record, copied.
struct RecordWords {
  uint64_t checked_index = 0;
  uint64_t outcome = 0;
  RecordFields fields{};
};
static_assert(sizeof(RecordWords) == sizeof(Record));

// The same for RankRecorder's totals, and of RecordedGroup.
struct TotalsWords {
  std::array<uint64_t, kDurationBuckets> durations{};
  uint64_t duration_ns = 0;
  uint64_t bytes = 0;
  std::array<uint64_t, 2> padding{};
};
static_assert(sizeof(TotalsWords) == sizeof(RecordedTotals));
struct GroupWords {
  uint32_t size = 0;
  uint32_t number = 0;
  std::array<uint64_t, 4> local_ranks{};
  std::array<uint64_t, 3> padding{};
};
static_assert(sizeof(GroupWords) == sizeof(RecordedGroup));

// Reads one recorder; keeps what the parts have in common.
class Reader {
 public:
  Reader(const Read& read, uint64_t last)
      : read_(read), last_(std::min<uint64_t>(last, kRecordsKept)) {}

  Result<Trace> trace() {
    if (Status s = read_header(); !s.ok()) return s;
    read_groups();
    std::set<uint32_t> seen;
    for (uint32_t local_rank = 0; local_rank < header_.local_ranks; ++local_rank) {
      std::optional<Rank> rank = read_rank(rank_recorder_offset(local_rank));
      if (rank && seen.insert(rank->rank).second) trace_.ranks.push_back(*std::move(rank));
    }
    uint64_t recorded = 0;
    trace_.among_hosts = read_ring(rank_recorder_offset(header_.local_ranks), recorded);
    return std::move(trace_);
  }

 private:
  template <class T>
  bool read_one(uint64_t offset, T& value) const {
    return read_(offset, std::as_writable_bytes(std::span(&value, 1)));
  }

  Status read_header() {
    if (!read_one(0, header_) || header_.magic != kRecorderMagic)
      return failed_precondition("this is no flight recorder");
    if (header_.version != kProtocolVersion)
      return failed_precondition("the flight recorder is of version " +
                                 std::to_string(header_.version) + ", not " +
                                 std::to_string(kProtocolVersion));
    if (header_.local_ranks == 0 || header_.local_ranks > kLocalRanksMax ||
        header_.world_size == 0 || header_.world_size > UINT16_MAX)
      return failed_precondition("the flight recorder was overwritten");
    trace_.epoch = header_.epoch;
    trace_.world_size = header_.world_size;
    for (uint32_t local_rank = 0; local_rank < header_.local_ranks; ++local_rank) {
      uint32_t rank = UINT32_MAX;
      (void)read_one(rank_recorder_offset(local_rank), rank);
      ranks_.push_back(rank);
    }
    return {};
  }

  void read_groups() {
    for (uint32_t area = 0; area < kAreasMax; ++area) {
      GroupWords words;
      if (!read_one(kGroupsOffset + area * sizeof(words), words)) return;
      if (words.size == 0 || words.size > header_.world_size) return;
      Group& group = trace_.groups.emplace_back(Group{words.number, words.size, {}});
      for (uint32_t local_rank = 0; local_rank < header_.local_ranks; ++local_rank)
        if ((words.local_ranks[local_rank / 64] >> local_rank % 64 & 1) != 0 &&
            ranks_[local_rank] < header_.world_size)
          group.ranks.push_back(ranks_[local_rank]);
    }
  }

  std::optional<Rank> read_rank(uint64_t offset) const {
    Rank rank;
    if (!read_one(offset, rank.rank) || rank.rank >= header_.world_size) return std::nullopt;
    std::array<std::array<TotalsWords, kSizeClasses>, kCollectives> totals;
    (void)read_one(offset + offsetof(RankRecorder, totals), totals);
    for (size_t c = 0; c < kCollectives; ++c)
      for (size_t size = 0; size < kSizeClasses; ++size) {
        const TotalsWords& words = totals[c][size];
        rank.totals[c][size] = {words.durations, words.duration_ns, words.bytes};
      }
    (void)read_one(offset + offsetof(RankRecorder, ended), rank.ended);
    rank.operations = read_ring(offset + offsetof(RankRecorder, ring), rank.recorded);
    return rank;
  }

  std::vector<Operation> read_ring(uint64_t offset, uint64_t& recorded) const {
    std::vector<Operation> operations;
    (void)read_one(offset, recorded);
    const uint64_t first = recorded - std::min(recorded, last_);
    for (uint64_t index = first; index != recorded;) {
      // Up to where the ring wraps around.
      const uint64_t place = index % kRecordsKept;
      std::vector<RecordWords> some(std::min(recorded - index, kRecordsKept - place));
      if (!read_(offset + offsetof(RecordRing, records) + place * sizeof(Record),
                 std::as_writable_bytes(std::span(some))))
        return operations;
      for (const RecordWords& words : some)
        if (std::optional<Operation> operation = decode(index++, words))
          operations.push_back(*operation);
    }
    return operations;
  }

  // nullopt: the record is another one's, or was not written as a whole, or makes no sense.
  std::optional<Operation> decode(uint64_t index, const RecordWords& words) const {
    if (words.checked_index != pack_checked_index(index, checksum_of(index, words.fields)))
      return std::nullopt;
    const auto call = std::bit_cast<RecordedCall>(words.fields[kRecordedCall]);
    const auto choice = std::bit_cast<RecordedChoice>(words.fields[kRecordedChoice]);
    if (call.area >= trace_.groups.size() || call.collective >= kCollectives ||
        call.dtype >= kDtypes || call.op >= kOps)
      return std::nullopt;
    Operation operation;
    operation.index = index;
    operation.group = trace_.groups[call.area].number;
    operation.number = words.fields[kRecordNumber];
    operation.collective = static_cast<Collective>(call.collective);
    operation.dtype = static_cast<Dtype>(call.dtype);
    operation.op = static_cast<Op>(call.op);
    operation.flags = call.flags;
    operation.root = choice.root;
    operation.layout = call.layout;
    operation.local_strategy = choice.local_strategy;
    operation.global_strategy = choice.global_strategy;
    operation.count = words.fields[kRecordCount];
    operation.bytes = words.fields[kRecordBytes];
    operation.begun_ns = words.fields[kRecordBegun] + static_cast<uint64_t>(header_.realtime_ns) -
                         static_cast<uint64_t>(header_.monotonic_ns);
    operation.outcome = outcome_of(index, words.outcome);
    return operation;
  }

  static std::optional<Operation::Outcome> outcome_of(uint64_t index, uint64_t outcome) {
    const auto code = static_cast<uint32_t>(outcome & 0xff);
    const auto generation = static_cast<uint8_t>(outcome >> 8);
    if (code == 0 || code > kCodes || generation != generation_of_record(index))
      return std::nullopt;
    return Operation::Outcome{outcome >> 16, static_cast<Code>(code - 1)};
  }

  const Read& read_;
  const uint64_t last_;
  RecorderHeader header_{};
  std::vector<uint32_t> ranks_;  // By local rank, as far as they are known.
  Trace trace_;
};

}  // namespace

Result<Trace> read_trace(const Read& read, uint64_t last) { return Reader(read, last).trace(); }

Result<Trace> read_trace(int descriptor, uint64_t last) {
  if (Status s = check_recorder(descriptor); !s.ok()) return s;
  return read_trace(
      [descriptor](uint64_t offset, std::span<std::byte> into) {
        return pread(descriptor, into.data(), into.size(), static_cast<off_t>(offset)) ==
               static_cast<ssize_t>(into.size());
      },
      last);
}

Status check_recorder(int descriptor) {
  struct stat info {};
  struct statfs system {};
  if (fstat(descriptor, &info) == 0 && fstatfs(descriptor, &system) == 0 && S_ISREG(info.st_mode) &&
      system.f_type == kMemoryFileSystem &&
      static_cast<uint64_t>(info.st_size) <= recorder_bytes(kLocalRanksMax))
    return {};
  return failed_precondition("this is no memory of a flight recorder");
}

uint64_t touched_bytes(int descriptor) {
  struct stat info {};
  return fstat(descriptor, &info) == 0 ? static_cast<uint64_t>(info.st_blocks) * kStatBlockBytes
                                       : 0;
}

}  // namespace tutti::trace
