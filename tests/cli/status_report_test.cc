// What `tutti status` prints.
#include "daemon/cli/status_report.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tutti {
namespace {

v1::StatusReply example_status() {
  v1::StatusReply reply;
  v1::AgentReport* agent = reply.add_agents();
  agent->set_host("a");
  agent->set_address("127.0.0.1:7601");
  agent->set_pid(11);
  agent->set_state("serving");
  agent->set_coordinator(true);
  agent->set_version("0.1.0");
  agent->set_uptime_ms(61'000);
  v1::WorkerReport* worker = agent->add_workers();
  worker->set_job("demo");
  worker->set_world_size(2);
  worker->set_epoch(1);
  worker->set_state("running");
  worker->set_operations(12);
  worker->set_bytes(4096);
  worker->add_ranks()->set_rank(0);
  worker->mutable_departures()->add_ranks(1);
  return reply;
}

TEST(StatusReport, ForPeople) {
  const std::string text = status_text(example_status());
  EXPECT_NE(text.find("a*    127.0.0.1:7601"), std::string::npos) << text;
  EXPECT_NE(text.find("61 s"), std::string::npos) << text;
  EXPECT_NE(text.find("0 of 2"), std::string::npos) << text;
  EXPECT_NE(text.find("4 KiB"), std::string::npos) << text;
  EXPECT_NE(status_text({}).find("no jobs"), std::string::npos);
}

TEST(StatusReport, ForPrograms) {
  const std::string json = status_json(example_status());
  EXPECT_NE(json.find(R"("host":"a","address":"127.0.0.1:7601","pid":11)"), std::string::npos);
  EXPECT_NE(json.find(R"("operations":12)"), std::string::npos) << json;
  EXPECT_NE(json.find(R"("ranks":[{"rank":0,"pid":0,)"), std::string::npos) << json;
  EXPECT_NE(json.find(R"("gone":[1])"), std::string::npos) << json;
  EXPECT_EQ(std::ranges::count(json, '{'), std::ranges::count(json, '}'));
  EXPECT_EQ(status_json({}), R"({"agents":[]})");
}

}  // namespace
}  // namespace tutti
