// What ranks ask of their worker besides operations: sub-groups, and to take memory that they
// offer. Used on the loop's thread alone.
#pragma once

#include <functional>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/status.h"
#include "daemon/session/board_events.h"
#include "daemon/session/board_ops.h"

namespace tutti {

class RankQuestions {
 public:
  RankQuestions(BoardOps& ops, BoardEvents& events)
      : ops_(ops), events_(events), ranks_(ops.view().local_ranks()) {}

  // Where the descriptors come from that the rank has sent so far. The rank may end inside.
  void set_descriptors(uint32_t local_rank, std::function<std::vector<Fd>()> take) {
    ranks_[local_rank].take_descriptors = std::move(take);
  }
  // Passes on questions that are not answered yet; refuses invalid ones.
  void poll();
  void answer_subgroup(uint32_t local_rank, const Result<uint32_t>& group,
                       const Result<uint32_t>& area);
  void answer_offer(uint32_t local_rank, const Status& status);

 private:
  struct Rank {
    bool asked = false;    // For a sub-group; not answered yet.
    bool offered = false;  // Memory; not answered yet.
    std::function<std::vector<Fd>()> take_descriptors;
  };

  void take_subgroup_request(uint32_t local_rank, const BoardSubgroupRequest& request);
  void take_offer(uint32_t local_rank, uint64_t offset);
  Result<std::vector<uint32_t>> read_ranks(uint32_t local_rank, uint32_t count,
                                           uint64_t offset) const;

  BoardOps& ops_;
  BoardEvents& events_;
  std::vector<Rank> ranks_;  // By local rank.
};

}  // namespace tutti
