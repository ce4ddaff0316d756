#include "daemon/schedule/symbols.h"

namespace tutti {

int Symbols::intern(Kind kind, int a, int b, Node node) {
  const uint64_t key = static_cast<uint64_t>(a) << 32 | static_cast<uint32_t>(b);
  const int fresh = static_cast<int>(nodes_.size());
  const auto [it, added] = ids_[static_cast<size_t>(kind)].try_emplace(key, fresh);
  if (added) {
    nodes_.push_back(node);
    members_.resize(members_.size() + words());
  }
  return it->second;
}

int Symbols::contribution(int rank, int chunk) {
  const int id = intern(Kind::contribution, rank, chunk, {1, false});
  members_[id * words() + rank / 64] |= uint64_t{1} << rank % 64;
  return id;
}

int Symbols::combine(int left, int right) {
  const int id = intern(Kind::combination, left, right, {count(left) + count(right), false});
  for (size_t i = 0; i < words(); ++i)
    members_[id * words() + i] = members_[left * words() + i] | members_[right * words() + i];
  return id;
}

int Symbols::finish(int value) {
  const int id = intern(Kind::finished, value, 0, {count(value), true});
  for (size_t i = 0; i < words(); ++i) members_[id * words() + i] = members_[value * words() + i];
  return id;
}

bool Symbols::overlap(int left, int right) const {
  for (size_t i = 0; i < words(); ++i)
    if (members_[left * words() + i] & members_[right * words() + i]) return true;
  return false;
}

}  // namespace tutti
