#include "daemon/group/fuse.h"

#include <algorithm>
#include <cstring>

namespace tutti {
namespace {

bool folds_alike_everywhere(const Strategy& strategy) {
  return strategy.kind == StrategyKind::tree || strategy.kind == StrategyKind::centralized;
}

}  // namespace

bool fit_together(const Signature& a, const Signature& b) {
  return a.collective == Collective::all_reduce && b.collective == a.collective &&
         a.dtype == b.dtype && a.op == b.op;
}

bool Fuser::takes(const Signature& signature, const Strategies& strategies) const {
  return limits_.ops_max > 1 && signature.collective == Collective::all_reduce &&
         bytes_of(signature) <= limits_.op_bytes_max && folds_alike_everywhere(strategies.local) &&
         folds_alike_everywhere(strategies.global);
}

void Fuser::add(StartOrder order, const Signature& signature) {
  const auto room = [&](const Waiting& waiting) {
    return waiting.order.group == order.group && waiting.order.strategies == order.strategies &&
           waiting.order.slice_bytes == order.slice_bytes &&
           fit_together(waiting.signature, signature) &&
           waiting.order.seqs.size() < limits_.ops_max &&
           waiting.bytes + bytes_of(signature) <= limits_.fused_bytes_max;
  };
  const auto found = std::ranges::find_if(waiting_, room);
  if (found == waiting_.end()) {
    waiting_.push_back({std::move(order), signature, bytes_of(signature)});
    return;
  }
  found->order.seqs.insert(found->order.seqs.end(), order.seqs.begin(), order.seqs.end());
  found->bytes += bytes_of(signature);
}

std::vector<StartOrder> Fuser::take() {
  std::vector<StartOrder> orders;
  for (Waiting& waiting : waiting_) orders.push_back(std::move(waiting.order));
  waiting_.clear();
  return orders;
}

Packing::Packing(std::vector<Piece> pieces) : pieces_(std::move(pieces)) {
  size_t bytes = 0;
  for (const Piece& piece : pieces_) bytes += piece.bytes;
  memory_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
  std::byte* at = memory_.get();
  for (const Piece& piece : pieces_) {
    if (piece.bytes != 0) std::memcpy(at, piece.in, piece.bytes);
    at += piece.bytes;
  }
}

void Packing::unpack() const {
  const std::byte* at = memory_.get();
  for (const Piece& piece : pieces_) {
    if (piece.bytes != 0) std::memcpy(piece.out, at, piece.bytes);
    at += piece.bytes;
  }
}

}  // namespace tutti
