// Trace events: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
#include <algorithm>
#include <array>
#include <cstdio>
#include <tuple>

#include "daemon/base/text.h"
#include "daemon/cli/trace_report.h"
#include "daemon/diagnosis/diagnosis.h"

namespace tutti {
namespace {

// One event of a track; events of a track that overlap are spread over lanes.
struct Event {
  const v1::TracedOperation* operation = nullptr;
  uint64_t begin_ns = 0;
  uint64_t end_ns = 0;  // UINT64_MAX: under way.
};

// Microseconds with a fraction, as the format wants them.
std::string us(uint64_t ns) {
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%llu.%03llu", static_cast<unsigned long long>(ns / 1000),
                static_cast<unsigned long long>(ns % 1000));
  return text.data();
}

class Writer {
 public:
  explicit Writer(uint64_t start_ns) : start_ns_(start_ns) {
    json_.open('{').field("displayTimeUnit", "ns").key("otherData").open('{');
    json_.field("start_ns", start_ns).close().key("traceEvents").open('[');
  }
  std::string finish() { return json_.close().close().line(); }

  void name(std::string_view what, uint32_t process, uint32_t track, const std::string& text) {
    json_.open('{').field("ph", "M").field("name", what).field("pid", process);
    json_.field("tid", track).key("args").open('{').field("name", text).close().close();
  }

  // Returns the number of lanes that it took, from `track` on.
  uint32_t write(uint32_t process, uint32_t track, const std::string& title,
                 std::vector<Event> events) {
    std::ranges::stable_sort(events, {}, &Event::begin_ns);
    std::vector<uint64_t> ends;  // By lane.
    for (const Event& event : events) {
      auto lane = std::ranges::find_if(ends, [&](uint64_t end) { return end <= event.begin_ns; });
      if (lane == ends.end()) lane = ends.insert(lane, 0);
      *lane = event.end_ns;
      write(process, track + static_cast<uint32_t>(lane - ends.begin()), event);
    }
    for (uint32_t lane = 0; lane < ends.size(); ++lane)
      name("thread_name", process, track + lane,
           lane == 0 ? title : title + " (" + std::to_string(lane + 1) + ")");
    return static_cast<uint32_t>(ends.size());
  }

 private:
  void write(uint32_t process, uint32_t track, const Event& event) {
    const v1::TracedOperation& operation = *event.operation;
    json_.open('{').field("ph", operation.ended() ? "X" : "B").field("cat", "operation");
    json_.field("name", collective_text(operation) + " #" + std::to_string(operation.number()));
    json_.field("pid", process).field("tid", track);
    json_.key("ts").digits(us(event.begin_ns - start_ns_));
    if (operation.ended()) json_.key("dur").digits(us(event.end_ns - event.begin_ns));
    json_.key("args").open('{').field("group", operation.group());
    json_.field("number", operation.number()).field("dtype", dtype_text(operation));
    json_.field("op", op_text(operation)).field("count", operation.count());
    json_.field("bytes", operation.bytes());
    json_.field("strategy", strategy_text(operation.global_strategy()));
    if (operation.ended()) json_.field("code", code_text(operation.code()));
    json_.close().close();
  }

  const uint64_t start_ns_;
  Json json_;
};

Event event_of(const v1::TracedOperation& operation) {
  const uint64_t begin = operation.begun_ns();
  const uint64_t duration = std::min(operation.duration_ns(), UINT64_MAX - 1 - begin);
  return {&operation, begin, operation.ended() ? begin + duration : UINT64_MAX};
}

template <class Operations>
std::vector<Event> events_of(const Operations& operations) {
  std::vector<Event> events;
  for (const v1::TracedOperation& operation : operations) events.push_back(event_of(operation));
  return events;
}

}  // namespace

std::string trace_chrome(const v1::TraceReply& reply) {
  uint64_t start_ns = UINT64_MAX;
  for (const TracedAcrossRanks& operation : operations_of(reply)) {
    start_ns = std::min(start_ns, operation.begun_ns());
    for (const auto& [host, own] : operation.hosts) start_ns = std::min(start_ns, own->begun_ns());
  }
  Writer writer(start_ns == UINT64_MAX ? 0 : start_ns);
  uint32_t process = 0;
  for (const v1::HostTrace& trace : reply.hosts()) {
    writer.name("process_name", ++process, 0,
                trace.host() + ", epoch " + std::to_string(trace.epoch()));
    uint32_t track = 1;
    track += writer.write(process, track, "among hosts", events_of(trace.among_hosts()));
    for (const v1::RankTrace& rank : trace.ranks())
      track += writer.write(process, track, "rank " + std::to_string(rank.rank()),
                            events_of(rank.operations()));
  }
  return writer.finish();
}

}  // namespace tutti
