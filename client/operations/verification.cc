#include "client/operations/verification.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tutti::client {
namespace {

// More ranks are counted, and not named.
constexpr size_t kNamedMax = 8;

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
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       XXH3_freeState);
  if (state == nullptr) throw std::bad_alloc();
  XXH3_64bits_reset(state.get());
  for (const std::span<const std::byte> range : ranges)
    XXH3_64bits_update(state.get(), range.data(), range.size());
  return XXH3_64bits_digest(state.get());
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
