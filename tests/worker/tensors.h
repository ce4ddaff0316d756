// The tensors of all ranks of one operation in a Cluster: filled, submitted, checked by value.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/reference.h"
#include "tests/worker/cluster.h"

namespace tutti::testing {

inline constexpr Strategy kCentral{StrategyKind::centralized};
inline constexpr Strategy kRing{StrategyKind::ring};

class Tensors {
 public:
  Tensors(Cluster& cluster, Signature signature, bool in_place = false)
      : cluster_(cluster),
        signature_(signature),
        reference_{signature.collective,
                   cluster.size(),
                   signature.op,
                   signature.count,
                   static_cast<int>(signature.root),
                   {}} {
    for (int rank = 0; rank < reference_.ranks; ++rank) {
      in_.push_back(given(rank));
      const size_t blocks = has_output_blocks(signature.collective) ? reference_.ranks : 1;
      out_.push_back(in_place ? Bytes() : Bytes(signature.count * blocks * element()));
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
    for (int rank = 0; rank < reference_.ranks; ++rank) check_rank(rank);
  }

  const Bytes& result(int rank) const { return out_[rank].empty() ? in_[rank] : out_[rank]; }
  Bytes& input(int rank) { return in_[rank]; }

 private:
  bool ends_at_root() const {
    return signature_.collective == Collective::reduce ||
           signature_.collective == Collective::gather;
  }
  size_t element() const { return size_of(signature_.dtype); }

  // Those that give nothing have a buffer of values, too, which nobody may read or change.
  Bytes given(int rank) const {
    const size_t blocks = has_input_blocks(signature_.collective) ? reference_.ranks : 1;
    Bytes tensor(signature_.count * blocks * element());
    for (size_t i = 0; i < signature_.count * blocks; ++i)
      put(tensor, signature_.dtype, i, reference_.input(rank, i));
    return tensor;
  }

  void check_rank(int rank) {
    if (signature_.collective == Collective::barrier) return;
    if (ends_at_root() && rank != reference_.root) {
      ASSERT_EQ(in_[rank], given(rank)) << "an input was changed";
      return;
    }
    for (size_t i = 0; i < result(rank).size() / element(); ++i) {
      ASSERT_EQ(get(result(rank), signature_.dtype, i),
                held(signature_.dtype, reference_.output(rank, i)))
          << to_string(signature_) << " world " << reference_.ranks << " rank " << rank
          << " element " << i;
    }
  }

  Cluster& cluster_;
  const Signature signature_;
  const Reference reference_;
  std::vector<Bytes> in_;
  std::vector<Bytes> out_;  // Empty: in place.
};

}  // namespace tutti::testing
