// The numbers of the groups of a job, which are the same on all hosts: FNV-1a hashes, 32 bits.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

namespace tutti {

// A hash of the ranks of the job, in the group's order, and of `more` words. Never 0, which is the
// whole job.
inline uint32_t number_of_ranks(const std::vector<int>& members,
                                std::initializer_list<uint32_t> more) {
  uint32_t hash = 2166136261u;
  const auto add = [&](uint32_t word) { hash = (hash ^ word) * 16777619u; };
  for (const int rank : members) add(static_cast<uint32_t>(rank));
  for (const uint32_t word : more) add(word);
  return hash == 0 ? 1 : hash;
}

// The number of the nth group of these ranks.
inline uint32_t group_number(const std::vector<int>& members, uint32_t nth) {
  return number_of_ranks(members, {~nth});
}

// The number of the group of two ranks in which the first sends messages to the second. `channel`:
// 1 and the number of the group whose messages they are.
inline uint32_t channel_number(const std::vector<int>& members, uint64_t channel) {
  constexpr uint32_t kMessagesWord = 0x6d736773;  // Sets the numbers of channels apart.
  return number_of_ranks(members, {static_cast<uint32_t>(channel),
                                   static_cast<uint32_t>(channel >> 32), kMessagesWord});
}

}  // namespace tutti
