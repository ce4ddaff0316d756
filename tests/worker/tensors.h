// The tensors of all ranks of one operation in a Cluster: filled, submitted, checked by value.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/values.h"
#include "tests/worker/cluster.h"

namespace tutti::testing {

inline constexpr Strategy kCentral{StrategyKind::centralized};
inline constexpr Strategy kRing{StrategyKind::ring};

class Tensors {
 public:
  Tensors(Cluster& cluster, Signature signature, bool in_place = false)
      : cluster_(cluster), signature_(signature), world_(cluster.size()) {
    const Collective c = signature.collective;
    const size_t in_blocks = has_input_blocks(c) ? world_ : 1;
    const size_t out_blocks = has_output_blocks(c) ? world_ : 1;
    for (int rank = 0; rank < world_; ++rank) {
      in_.push_back(filled(rank, signature.count * in_blocks));
      out_.push_back(in_place ? Bytes() : Bytes(signature.count * out_blocks * element()));
    }
  }

  Call call(int rank) {
    Call call;
    call.signature = signature_;
    call.in = in_[rank].data();
    call.out = out_[rank].empty() ? in_[rank].data() : out_[rank].data();
    const int root = static_cast<int>(signature_.root);
    if (ends_at_root() && rank != root) call.out = nullptr;
    if (signature_.collective == Collective::scatter && rank != root) call.in = nullptr;
    return call;
  }

  // Runs the operation on all ranks; fails the test unless every value is exactly right.
  void run_and_check() {
    const std::vector<Status> statuses = cluster_.all([&](int rank) { return call(rank); });
    for (const Status& status : statuses) ASSERT_TRUE(status.ok()) << status.to_string();
    check();
  }

  void check() {
    for (int rank = 0; rank < world_; ++rank) check_rank(rank);
  }

  const Bytes& result(int rank) const { return out_[rank].empty() ? in_[rank] : out_[rank]; }
  Bytes& input(int rank) { return in_[rank]; }

 private:
  bool ends_at_root() const {
    return signature_.collective == Collective::reduce ||
           signature_.collective == Collective::gather;
  }
  size_t element() const { return size_of(signature_.dtype); }

  Bytes filled(int rank, size_t count) const {
    Bytes tensor(count * element());
    for (size_t i = 0; i < count; ++i)
      put(tensor, signature_.dtype, i, contribution(signature_.op, rank, i));
    return tensor;
  }

  void check_rank(int rank) {
    const Collective c = signature_.collective;
    const int root = static_cast<int>(signature_.root);
    if (c == Collective::barrier) return;
    if (ends_at_root() && rank != root) {
      ASSERT_EQ(in_[rank], filled(rank, signature_.count)) << "an input was changed";
      return;
    }
    const size_t count = result(rank).size() / element();
    for (size_t i = 0; i < count; ++i) {
      const double want = wanted(rank, i);
      ASSERT_EQ(get(result(rank), signature_.dtype, i), held(signature_.dtype, want))
          << to_string(signature_) << " world " << world_ << " rank " << rank << " element " << i;
    }
  }

  double wanted(int rank, size_t i) const {
    const size_t block = std::max<size_t>(signature_.count, 1);
    switch (signature_.collective) {
      case Collective::broadcast:
        return contribution(signature_.op, static_cast<int>(signature_.root), i);
      case Collective::all_gather:
      case Collective::gather:
        return contribution(signature_.op, static_cast<int>(i / block), i % block);
      case Collective::scatter:
        return contribution(signature_.op, static_cast<int>(signature_.root),
                            static_cast<size_t>(rank) * block + i);
      case Collective::all_to_all:
        return contribution(signature_.op, static_cast<int>(i / block),
                            static_cast<size_t>(rank) * block + i % block);
      case Collective::reduce_scatter:
        return expected(signature_.op, world_, static_cast<size_t>(rank) * block + i);
      default:
        return expected(signature_.op, world_, i);
    }
  }

  Cluster& cluster_;
  const Signature signature_;
  const int world_;
  std::vector<Bytes> in_;
  std::vector<Bytes> out_;  // Empty: in place.
};

}  // namespace tutti::testing
