// One epoch of the job on this host: the board of its ranks, the epoch among the hosts, and what
// the one asks of the other. Loop thread only.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/base/settings.h"
#include "daemon/group/group.h"
#include "daemon/session/session.h"
#include "daemon/worker/gpu_memory.h"

namespace tutti {

class JobEpoch final : public BoardEvents {
 public:
  // References must outlive it. `on_gpu_call` is called with each call for GPUs.
  JobEpoch(const Settings& settings, GpuMemory& gpu_memory, std::function<void()> on_gpu_call)
      : settings_(settings), gpu_memory_(gpu_memory), on_gpu_call_(std::move(on_gpu_call)) {}

  // First: makes the board of these ranks. Not OK: they cannot take part.
  Status make_board(Loop& loop, const HostRanks& host, const BoardOptions& options, uint32_t epoch);
  // What the epoch among hosts has of the ranks here.
  LocalPhase& local() { return board_ != nullptr ? *board_ : nobody_; }
  // Second: the epoch among hosts.
  void set_group(std::unique_ptr<Epoch> group) { group_ = std::move(group); }

  // Null: it could not be made.
  const std::shared_ptr<HostBoard>& board() const { return board_; }
  Epoch& group() const { return *group_; }
  // Whether some rank has fallen asleep until a call ends, and whether a call is for GPUs.
  bool is_waited_for() const { return board_ != nullptr && board_->is_waited_for(); }
  bool has_gpu_calls() const { return gpu_calls_.use_count() > 1; }
  FoldSharing::Counts fold_counts() const {
    return board_ != nullptr ? board_->fold_counts() : FoldSharing::Counts();
  }
  // What all ranks have pinned for GPUs.
  uint64_t staging_bytes() const;
  // The rank has ended: gives back what it offered.
  void forget(uint32_t rank) { offered_.erase(rank); }

 private:
  void on_request(uint32_t rank, Call call) override;
  void on_window_filled(const EpochOp& op) override { group_->on_window_filled(op); }
  void on_subgroup_request(uint32_t rank, std::vector<uint32_t> ranks, uint64_t channel) override;
  void on_offer(uint32_t rank, OfferedMemory offer) override;
  void answer_offer(uint32_t rank, const Status& taken);
  void on_stuck(Status why) override { group_->abort(why); }
  void resolve_device_memory(int rank, Call& call);
  const std::shared_ptr<OfferedByTrainer>& offered_by(uint32_t rank);

  const Settings& settings_;
  GpuMemory& gpu_memory_;
  const std::function<void()> on_gpu_call_;
  // Each such call holds a copy until it ends.
  const std::shared_ptr<const bool> gpu_calls_ = std::make_shared<const bool>();
  // By rank. Nobody else owns them: an offer that waits is answered while its rank is here.
  std::map<uint32_t, std::shared_ptr<OfferedByTrainer>> offered_;
  LocalPhase nobody_;
  std::shared_ptr<HostBoard> board_;
  std::unique_ptr<Epoch> group_;  // Destroyed first: it ends calls on the board.
};

}  // namespace tutti
