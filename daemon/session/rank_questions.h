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
      : ops_(ops), events_(events), seats_(ops.view().seats()) {}

  // Where the descriptors come from that the rank has sent so far. The rank may end inside.
  void set_descriptors(uint32_t seat, std::function<std::vector<Fd>()> take) {
    seats_[seat].take_descriptors = std::move(take);
  }
  // Passes on questions that are not answered yet; refuses invalid ones.
  void poll();
  void answer_subgroup(uint32_t seat, const Result<uint32_t>& group, const Result<uint32_t>& area);
  void answer_offer(uint32_t seat, const Status& status);

 private:
  struct Seat {
    bool asked = false;    // For a sub-group; not answered yet.
    bool offered = false;  // Memory; not answered yet.
    std::function<std::vector<Fd>()> take_descriptors;
  };

  void take_subgroup_request(uint32_t seat, const BoardSubgroupRequest& request);
  void take_offer(uint32_t seat, uint64_t offset);
  Result<std::vector<uint32_t>> read_ranks(uint32_t seat, uint32_t count, uint64_t offset) const;

  BoardOps& ops_;
  BoardEvents& events_;
  std::vector<Seat> seats_;
};

}  // namespace tutti
