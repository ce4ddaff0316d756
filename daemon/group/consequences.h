// Which ranks of this host have failed because another rank is gone, so that their own departure is
// its consequence. Pure.
#pragma once

#include <map>
#include <set>

#include "daemon/base/op_id.h"
#include "daemon/base/status.h"

namespace tutti {

// A rank that goes on is past its failure once an operation that it called after it has completed.
// Operations that the ranks of one host settle among themselves are not known here.
class Consequences {
 public:
  bool empty() const { return failed_.empty(); }
  // The rank that is to blame for the departure of this one, -1: none.
  int cause_of(int rank) const {
    const auto found = failed_.find(rank);
    return found == failed_.end() ? -1 : found->second.gone;
  }

  void on_call(int rank, const EpochOp& op) {
    const auto found = failed_.find(rank);
    if (found != failed_.end()) found->second.later.insert(op);
  }
  // A call of the rank has ended. The first of the failures in a row counts.
  void on_end(int rank, const EpochOp& op, const Status& status) {
    const int culprit = status.culprit_rank();
    if (status.code() == Code::unavailable && culprit >= 0 && culprit != rank)
      failed_.try_emplace(rank, Failed{culprit, {}});
    const auto found = failed_.find(rank);
    if (found == failed_.end() || found->second.later.erase(op) == 0) return;
    if (status.ok()) failed_.erase(found);
  }

 private:
  struct Failed {
    int gone = -1;
    std::set<EpochOp> later;  // Open ones that the rank called after it.
  };
  std::map<int, Failed> failed_;  // By rank of the job.
};

}  // namespace tutti
