#include "daemon/http/calls_json.h"

#include "daemon/base/status.h"
#include "daemon/base/text.h"
#include "proto/types.h"

namespace tutti {
namespace {

void add_call(Json& json, uint32_t rank, const v1::TracedOperation& call) {
  json.open('{')
      .field("rank", rank)
      .field("group", call.group())
      .field("number", call.number())
      .field("collective", call.collective() < kCollectives ? kCollectiveNames[call.collective()]
                                                            : std::string_view("?"))
      .field("bytes", call.bytes())
      .field("begun_us", call.begun_ns() / 1000);
  if (call.ended())
    json.field("duration_us", call.duration_ns() / 1000)
        .field("code", name_of(code_of(static_cast<int>(call.code()))));
  json.close();
}

void add_host(Json& json, const v1::HostTrace& host) {
  json.open('{')
      .field("job", host.job())
      .field("uid", host.owner().uid())
      .field("subject", host.owner().subject())
      .field("host", host.host())
      .field("epoch", host.epoch())
      .key("calls")
      .open('[');
  for (const v1::RankTrace& rank : host.ranks())
    for (const v1::TracedOperation& call : rank.operations()) add_call(json, rank.rank(), call);
  json.close().close();
}

}  // namespace

std::string calls_json(const v1::TraceReply& reply) {
  Json json;
  json.open('[');
  for (const v1::HostTrace& host : reply.hosts())
    if (!host.ended()) add_host(json, host);
  return json.close().line();
}

}  // namespace tutti
