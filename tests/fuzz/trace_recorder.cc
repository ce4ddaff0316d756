// A recorder some of whose words anybody may have written: whatever they are, reading ends, and
// what is read is within the tables.
#include <cstring>
#include <vector>

#include "daemon/trace/trace.h"
#include "tests/fuzz/input.h"

namespace tutti {
namespace {

constexpr uint32_t kLocalRanks = 2;
constexpr uint64_t kWords = recorder_bytes(kLocalRanks) / sizeof(uint64_t);

// One with two ranks, a few records and one group.
std::vector<uint64_t> sound_recorder() {
  std::vector<uint64_t> words(kWords + 8);  // Room to align it.
  auto* base = reinterpret_cast<std::byte*>(words.data());
  base += (64 - reinterpret_cast<uintptr_t>(base) % 64) % 64;
  const trace::RecorderView view(base, kLocalRanks);
  view.header() = {kRecorderMagic, kProtocolVersion, 1, kLocalRanks, kLocalRanks, 100, 1'000'000};
  view.group(0).local_ranks[0] = 3;
  view.group(0).size = kLocalRanks;
  for (uint32_t local_rank = 0; local_rank < kLocalRanks; ++local_rank) {
    view.rank(local_rank).rank = local_rank;
    RecordRing& ring = view.rank(local_rank).ring;
    for (uint64_t n = 0; n < 4; ++n)
      trace::record_end(ring, trace::record_begin(ring, {n, 1, 4, 200 + n, 0, 0}), 5, Code::ok);
  }
  std::vector<uint64_t> sound(kWords);
  std::memcpy(sound.data(), base, sound.size() * sizeof(uint64_t));
  return sound;
}

void check(const trace::Operation& operation) {
  const bool within =
      static_cast<int>(operation.collective) < kCollectives &&
      static_cast<int>(operation.dtype) < kDtypes && static_cast<int>(operation.op) < kOps &&
      (!operation.outcome || static_cast<uint32_t>(operation.outcome->code) < kCodes);
  if (!within) __builtin_trap();
}

}  // namespace
}  // namespace tutti

// The number of operations to read, then pairs of a word's place and its value.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti;
  static const std::vector<uint64_t> sound = sound_recorder();
  fuzz::Input input(data, size);
  const auto last = input.take<uint16_t>();
  std::vector<uint64_t> words = sound;
  for (int i = 0; i < 64 && !input.at_end(); ++i) {
    const auto place = input.take<uint32_t>();
    words[place % kWords] = input.take<uint64_t>();
  }
  const auto bytes = std::as_bytes(std::span(words));
  const auto read = [&](uint64_t offset, std::span<std::byte> into) {
    if (offset > bytes.size() || into.size() > bytes.size() - offset) return false;
    std::memcpy(into.data(), bytes.data() + offset, into.size());
    return true;
  };
  const Result<trace::Trace> trace = trace::read_trace(read, last);
  if (!trace.ok()) return 0;
  if (trace->ranks.size() > kLocalRanks || trace->groups.size() > kAreasMax) __builtin_trap();
  for (const trace::Operation& operation : trace->among_hosts) check(operation);
  for (const trace::Rank& rank : trace->ranks) {
    if (rank.rank >= trace->world_size || rank.operations.size() > last) __builtin_trap();
    for (const trace::Operation& operation : rank.operations) check(operation);
  }
  return 0;
}
