#include "daemon/worker/job_epoch.h"

#include <spdlog/spdlog.h>

#include <utility>

namespace tutti {

Status JobEpoch::make_board(Loop& loop, const HostRanks& host, const BoardOptions& options,
                            uint32_t epoch) {
  const auto made = HostBoard::make(loop, host, options, epoch, *this);
  if (made.ok()) board_ = *made;
  return made.status();
}

uint64_t JobEpoch::staging_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [rank, offered] : offered_) bytes += offered->staging_bytes();
  return bytes;
}

void JobEpoch::on_request(uint32_t rank, Call call) {
  const auto job_rank = static_cast<int>(rank);
  if (call.device) resolve_device_memory(job_rank, call);
  if (call.device) on_gpu_call_();
  if (call.device) call.counted = gpu_calls_;
  group_->submit(job_rank, std::move(call));
}

void JobEpoch::resolve_device_memory(int rank, Call& call) {
  const OfferedByTrainer& offered = *offered_by(static_cast<uint32_t>(rank));
  Status resolved = gpu_memory_.take_words(offered, call);
  if (!call.invalid.ok()) return;
  if (resolved.ok()) resolved = gpu_memory_.resolve(offered, call);
  if (resolved.ok()) return;
  call.in = call.out = nullptr;
  call.invalid =
      Status(resolved.code(),
             describe_rank(group_->roster(), rank) + " asked for " +
                 std::string(name_of(call.signature.collective)) + ": " + resolved.message(),
             {rank, settings_.host});
}

void JobEpoch::on_subgroup_request(uint32_t rank, std::vector<uint32_t> ranks, uint64_t channel) {
  const auto job_rank = static_cast<int>(rank);
  board_->answer_subgroup(
      rank,
      channel == 0 ? group_->subgroup(job_rank, ranks) : group_->channel(job_rank, ranks, channel),
      ranks);
}

const std::shared_ptr<OfferedByTrainer>& JobEpoch::offered_by(uint32_t rank) {
  std::shared_ptr<OfferedByTrainer>& offered = offered_[rank];
  if (offered == nullptr) offered = std::make_shared<OfferedByTrainer>();
  return offered;
}

void JobEpoch::on_offer(uint32_t rank, OfferedMemory offer) {
  const std::shared_ptr<OfferedByTrainer>& offered = offered_by(rank);
  gpu_memory_.take(offered, std::move(offer),
                   [this, rank](const Status& taken) { answer_offer(rank, taken); });
}

void JobEpoch::answer_offer(uint32_t rank, const Status& taken) {
  if (!taken.ok() && !std::exchange(offered_by(rank)->was_refused, true))
    spdlog::info("job {}: memory of rank {} is not mapped: {}", group_->roster().job, rank,
                 taken.message());
  board_->answer_offer(rank, taken);
}

}  // namespace tutti
