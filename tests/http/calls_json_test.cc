// What the page reads of the last calls.
#include "daemon/http/calls_json.h"

#include <gtest/gtest.h>

#include "proto/tutti_types.h"

namespace tutti {
namespace {

TEST(HttpCallsJson, HasTheCallsOfRunningJobs) {
  v1::TraceReply reply;
  v1::HostTrace& host = *reply.add_hosts();
  host.set_host("a");
  host.set_job("demo\"<b>");
  host.mutable_owner()->set_uid(7);
  host.set_epoch(2);
  v1::RankTrace& rank = *host.add_ranks();
  rank.set_rank(1);
  v1::TracedOperation& failed = *rank.add_operations();
  failed.set_number(4);
  failed.set_collective(TUTTI_BROADCAST);
  failed.set_bytes(512);
  failed.set_begun_ns(5'000'000);
  failed.set_ended(true);
  failed.set_duration_ns(2'000);
  failed.set_code(TUTTI_UNAVAILABLE);
  v1::TracedOperation& open = *rank.add_operations();
  open.set_number(5);
  open.set_collective(77);  // A worker may say anything.
  open.set_begun_ns(6'000'000);
  reply.add_hosts()->set_ended(true);
  EXPECT_EQ(calls_json(reply),
            R"([{"job":"demo\"<b>","uid":7,"subject":"","host":"a","epoch":2,"calls":[)"
            R"({"rank":1,"group":0,"number":4,"collective":"broadcast","bytes":512,)"
            R"("begun_us":5000,"duration_us":2,"code":"UNAVAILABLE"},)"
            R"({"rank":1,"group":0,"number":5,"collective":"?","bytes":0,"begun_us":6000}]}])");
  EXPECT_EQ(calls_json({}), "[]");
}

}  // namespace
}  // namespace tutti
