#include "daemon/base/signature.h"

#include <cstdio>

#include "proto/board.h"

namespace tutti {
namespace {

std::string layout_text(const Signature& signature) {
  char hash[17];
  std::snprintf(hash, sizeof hash, "%llx",
                static_cast<unsigned long long>(signature.layout & pack_layout(0, ~uint64_t{0})));
  const std::string what =
      has_blocks(signature.collective)
          ? " with counts"
          : " of a list of " + std::to_string(tensors_of_layout(signature.layout)) + " tensors";
  return what + " (layout " + hash + ")";
}

// One round of a 64-bit mixer (splitmix64): the same on every host.
uint64_t mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) + 0x9e3779b97f4a7c15;
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111eb;
  return hash ^ (hash >> 31);
}

uint64_t mix(uint64_t hash, const Strategies& strategies) {
  for (const Strategy& strategy : {strategies.local, strategies.global})
    hash = mix(hash, static_cast<uint64_t>(strategy.kind) << 32 | strategy.arity);
  return hash;
}

}  // namespace

// FNV-1a over whole words.
uint64_t layout_of(std::span<const uint64_t> counts) {
  uint64_t hash = 14695981039346656037ull;
  for (const uint64_t count : counts) {
    hash = (hash ^ count) * 1099511628211ull;
    hash ^= hash >> 32;
  }
  return pack_layout(counts.size(), hash);
}

std::string to_string(const Signature& signature) {
  std::string text(name_of(signature.collective));
  if (signature.collective == Collective::barrier) return text;
  text += " " + std::string(name_of(signature.dtype)) + "[" + std::to_string(signature.count) + "]";
  if (reduces(signature.collective)) text += " " + std::string(name_of(signature.op));
  if (has_root(signature.collective)) text += " root=" + std::to_string(signature.root);
  if (signature.strategies != Strategies{}) text += " strategy=" + to_string(signature.strategies);
  if (signature.reproducible && reduces(signature.collective)) text += " reproducible";
  if (signature.verifies && is_common(signature.collective)) text += " verified";
  if (signature.layout != 0) text += layout_text(signature);
  if (signature.on_device) text += " in GPU memory";
  return text;
}

Signature canonical(Signature signature) {
  if (signature.collective == Collective::barrier) return {};
  if (!reduces(signature.collective)) signature.op = Op::sum, signature.reproducible = false;
  if (!is_common(signature.collective)) signature.verifies = false;
  if (!has_root(signature.collective)) signature.root = 0;
  return signature;
}

uint64_t bytes_of(const Signature& signature) {
  return signature.collective == Collective::barrier ? 0
                                                     : signature.count * size_of(signature.dtype);
}

uint64_t agreement_of(const Signature& signature, const Strategies& strategies,
                      uint64_t slice_bytes, uint64_t members, bool by_nccl, bool raw) {
  uint64_t hash = mix(0, static_cast<uint64_t>(signature.collective) << 32 |
                             static_cast<uint64_t>(signature.dtype) << 16 |
                             static_cast<uint64_t>(signature.op));
  const uint64_t place = (signature.on_device ? 1 : 0) + (by_nccl ? 2 : 0) +
                         (signature.reproducible ? 4 : 0) + (signature.verifies ? 8 : 0) +
                         (raw ? 16 : 0);
  for (const uint64_t word :
       {signature.count, uint64_t{signature.root} | place << 32, signature.layout})
    hash = mix(hash, word);
  return mix(mix(mix(mix(hash, signature.strategies), strategies), slice_bytes), members);
}

uint64_t hash_of(const std::vector<int>& members) {
  uint64_t hash = members.size();
  for (const int rank : members) hash = mix(hash, static_cast<uint64_t>(rank));
  return hash;
}

}  // namespace tutti
