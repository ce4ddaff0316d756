#include "client/operations/op_recorder.h"

#include <bit>

namespace tutti::client {

void OpRecorder::begin(const Request& request, uint64_t number, OpRecord& record) {
  record.collective = static_cast<Collective>(request.collective);
  const uint64_t layout = request.layout ^ request.layout >> 16 ^ request.layout >> 32;
  const RecordedCall call{
      static_cast<uint16_t>(group_), request.collective, request.dtype, request.op, request.flags,
      static_cast<uint16_t>(layout)};
  RecordedChoice choice{static_cast<uint16_t>(request.root),
                        pack_short_strategy(request.local_strategy),
                        pack_short_strategy(request.global_strategy), 0};
  uint64_t count = request.count;
  if ((request.flags & kRequestCounts) != 0)  // `count` says where the counts are.
    count = record.bytes / size_of(static_cast<Dtype>(request.dtype));
  const bool is_refused = (request.flags & kRequestRefused) != 0;
  if (is_refused) count = choice.root = 0;  // They are of the message.
  record.index = trace::record_begin(
      recorder_.ring, {number, count, record.bytes, record.arrived_ns,
                       std::bit_cast<uint64_t>(call), std::bit_cast<uint64_t>(choice)});
  // The caller has its error already. end() replaces it by the operation's, when that is looked at.
  if (is_refused)
    trace::record_end(recorder_.ring, record.index, 0, code_of(static_cast<int>(request.root)));
}

void OpRecorder::end(const OpRecord& record, Code code) {
  const uint64_t duration_ns = trace::now_ns() - record.arrived_ns;
  trace::record_end(recorder_.ring, record.index, duration_ns, code);
  trace::add_to_totals(recorder_, record.collective, record.bytes, duration_ns, code);
}

void OpRecorder::count(const OpRecord& record, const Status& outcome) {
  const auto add = [](std::atomic<uint64_t>& counter, uint64_t more) {
    counter.fetch_add(more, std::memory_order_relaxed);
  };
  if (!outcome.ok()) return add(counters_.failures, 1);
  add(counters_.operations, 1);
  add(counters_.bytes, record.bytes);
}

}  // namespace tutti::client
