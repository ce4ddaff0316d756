#include "daemon/session/host_recorder.h"

#include <bit>

#include "daemon/base/loop.h"
#include "daemon/session/mapping.h"

namespace tutti {
namespace {

void fill_header(RecorderHeader& header, uint32_t local_ranks, uint32_t world_size,
                 uint32_t epoch) {
  header.magic = kRecorderMagic;
  header.version = kProtocolVersion;
  header.epoch = epoch;
  header.local_ranks = local_ranks;
  header.world_size = world_size;
  header.monotonic_ns = static_cast<int64_t>(trace::now_ns());
  header.realtime_ns = unix_time<std::chrono::nanoseconds>();
}

uint16_t short_strategy(const Strategy& strategy) { return pack_short_strategy(packed(strategy)); }

}  // namespace

Result<std::shared_ptr<HostRecorder>> HostRecorder::make(std::span<const uint32_t> ranks,
                                                         uint32_t world_size, uint32_t epoch) {
  const auto local_ranks = static_cast<uint32_t>(ranks.size());
  Result<SealedMemory> memory =
      make_sealed_memory("tutti-recorder", "a flight recorder", recorder_bytes(local_ranks));
  if (!memory.ok()) return memory.status();
  auto made =
      std::make_shared<HostRecorder>(std::move(memory->memory), std::move(memory->mapping), ranks);
  fill_header(made->view_.header(), local_ranks, world_size, epoch);
  return made;
}

HostRecorder::HostRecorder(Fd memory, std::shared_ptr<const Mapping> mapping,
                           std::span<const uint32_t> ranks)
    : memory_(std::move(memory)),
      mapping_(std::move(mapping)),
      view_(mapping_->base(), static_cast<uint32_t>(ranks.size())) {
  for (uint32_t local_rank = 0; local_rank < ranks.size(); ++local_rank)
    view_.rank(local_rank).rank = ranks[local_rank];
}

void HostRecorder::add_group(uint32_t area, uint32_t number, uint32_t size,
                             std::span<const uint32_t> local_ranks) {
  if (!area_of_.emplace(number, area).second) return;
  RecordedGroup& group = view_.group(area);
  group.number = number;
  for (const uint32_t local_rank : local_ranks)
    group.local_ranks[local_rank / 64] |= uint64_t{1} << local_rank % 64;
  group.size.store(size, std::memory_order_release);
}

void HostRecorder::on_started(const EpochOp& op, const Signature& signature,
                              const Strategies& strategies) {
  const auto area = area_of_.find(op.group);
  if (area == area_of_.end()) return;
  const uint64_t layout = signature.layout ^ signature.layout >> 16 ^ signature.layout >> 32;
  const RecordedCall call{static_cast<uint16_t>(area->second),
                          static_cast<uint8_t>(signature.collective),
                          static_cast<uint8_t>(signature.dtype),
                          static_cast<uint8_t>(signature.op),
                          signature.on_device ? kRequestDevice : uint8_t{0},
                          static_cast<uint16_t>(layout)};
  const RecordedChoice choice{static_cast<uint16_t>(signature.root),
                              short_strategy(strategies.local), short_strategy(strategies.global),
                              0};
  const uint64_t now = trace::now_ns();
  const uint64_t index = trace::record_begin(
      view_.among_hosts(), {op.number, signature.count, bytes_of(signature), now,
                            std::bit_cast<uint64_t>(call), std::bit_cast<uint64_t>(choice)});
  started_[op] = {index, now};
}

void HostRecorder::on_ended(const EpochOp& op, Code code) {
  const auto started = started_.extract(op);
  if (started.empty()) return;
  const auto [index, at_ns] = started.mapped();
  trace::record_end(view_.among_hosts(), index, trace::now_ns() - at_ns, code);
}

void HostRecorder::on_failed(const Status& why, uint64_t ended_ok) {
  if (failure_.status.ok() || failure_.after != ended_ok)
    failure_ = {why, unix_time<Millis>(), ended_ok};
}

}  // namespace tutti
