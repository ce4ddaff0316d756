#include "daemon/group/signature.h"

namespace tutti {

std::string to_string(const Signature& signature) {
  std::string text(name_of(signature.collective));
  if (signature.collective == Collective::barrier) return text;
  text += " " + std::string(name_of(signature.dtype)) + "[" + std::to_string(signature.count) + "]";
  if (reduces(signature.collective)) text += " " + std::string(name_of(signature.op));
  if (has_root(signature.collective)) text += " root=" + std::to_string(signature.root);
  if (signature.strategies != Strategies{}) text += " strategy=" + to_string(signature.strategies);
  return text;
}

Signature canonical(Signature signature) {
  if (signature.collective == Collective::barrier) return {};
  if (!reduces(signature.collective)) signature.op = Op::sum;
  if (!has_root(signature.collective)) signature.root = 0;
  return signature;
}

}  // namespace tutti
