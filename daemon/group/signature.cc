#include "daemon/group/signature.h"

#include <cstdio>

#include "proto/board.h"

namespace tutti {
namespace {

std::string list_text(uint64_t layout) {
  char hash[17];
  std::snprintf(hash, sizeof hash, "%llx",
                static_cast<unsigned long long>(layout & pack_layout(0, ~uint64_t{0})));
  return " of a list of " + std::to_string(tensors_of_layout(layout)) + " tensors (layout " + hash +
         ")";
}

}  // namespace

std::string to_string(const Signature& signature) {
  std::string text(name_of(signature.collective));
  if (signature.collective == Collective::barrier) return text;
  text += " " + std::string(name_of(signature.dtype)) + "[" + std::to_string(signature.count) + "]";
  if (reduces(signature.collective)) text += " " + std::string(name_of(signature.op));
  if (has_root(signature.collective)) text += " root=" + std::to_string(signature.root);
  if (signature.strategies != Strategies{}) text += " strategy=" + to_string(signature.strategies);
  if (signature.layout != 0) text += list_text(signature.layout);
  return text;
}

Signature canonical(Signature signature) {
  if (signature.collective == Collective::barrier) return {};
  if (!reduces(signature.collective)) signature.op = Op::sum;
  if (!has_root(signature.collective)) signature.root = 0;
  return signature;
}

uint64_t bytes_of(const Signature& signature) {
  return signature.collective == Collective::barrier ? 0
                                                     : signature.count * size_of(signature.dtype);
}

}  // namespace tutti
