#include "client/operations/verification.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tutti::client {
namespace {

// More ranks are counted, and not named.
constexpr size_t kNamedMax = 8;

// The bytes that were hashed so far.
class State {
 public:
  State() : state_(XXH3_createState(), XXH3_freeState) {
    if (state_ == nullptr) throw std::bad_alloc();
    XXH3_64bits_reset(state_.get());
  }
  void add(std::span<const std::byte> bytes) const {
    XXH3_64bits_update(state_.get(), bytes.data(), bytes.size());
  }
  uint64_t digest() const { return XXH3_64bits_digest(state_.get()); }

 private:
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state_;
};

std::string text_of(uint64_t checksum) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(checksum));
  return text;
}

// "rank 1 (host a): 0123456789abcdef, rank 3 (host b): 89abcdef01234567".
std::string named(const Members& group, std::span<const uint64_t> checksums,
                  const std::vector<uint32_t>& ranks) {
  std::string text;
  for (size_t i = 0; i < std::min(ranks.size(), kNamedMax); ++i)
    text += (i == 0 ? "" : ", ") + group.name_of(ranks[i]) + ": " + text_of(checksums[ranks[i]]);
  if (ranks.size() > kNamedMax)
    text += " and " + std::to_string(ranks.size() - kNamedMax) + " more";
  return text;
}

// The checksum that more than half of the ranks have; null: there is none.
const uint64_t* majority_of(std::span<const uint64_t> checksums) {
  std::map<uint64_t, size_t> votes;
  for (const uint64_t& checksum : checksums)
    if (++votes[checksum] > checksums.size() / 2) return &checksum;
  return nullptr;
}

}  // namespace

uint64_t checksum_of(std::span<const std::span<const std::byte>> ranges) {
  if (ranges.size() == 1) return XXH3_64bits(ranges[0].data(), ranges[0].size());
  const State state;
  for (const std::span<const std::byte> range : ranges) state.add(range);
  return state.digest();
}

uint64_t checksum_of(std::span<const std::span<const std::byte>> ranges, Dtype dtype) {
  if (dtype != Dtype::boolean) return checksum_of(ranges);
  const State state;
  std::array<std::byte, 4096> part;
  for (std::span<const std::byte> range : ranges) {
    while (!range.empty()) {
      const size_t bytes = std::min(range.size(), part.size());
      for (size_t i = 0; i < bytes; ++i)
        part[i] = range[i] == std::byte{0} ? std::byte{0} : std::byte{1};
      state.add({part.data(), bytes});
      range = range.subspan(bytes);
    }
  }
  return state.digest();
}

Status compare_checksums(const Members& group, Collective collective,
                         std::span<const uint64_t> checksums) {
  if (std::ranges::adjacent_find(checksums, std::not_equal_to<>()) == checksums.end()) return {};
  const uint64_t* const most = majority_of(checksums);
  std::vector<uint32_t> differing;
  for (uint32_t rank = 0; rank < checksums.size(); ++rank)
    if (most == nullptr || checksums[rank] != *most) differing.push_back(rank);
  const std::string result = "the result of " + std::string(name_of(collective));
  const std::string remedy =
      "; the memory of a rank or its host is damaged, or its program writes to the buffer "
      "meanwhile";
  if (most == nullptr)
    return data_loss(result + " has different checksums: " + named(group, checksums, differing) +
                     remedy);
  return data_loss(result + " has checksum " + text_of(*most) + " on most ranks, but on " +
                       named(group, checksums, differing) + remedy,
                   group.culprit(differing.front()));
}

}  // namespace tutti::client
