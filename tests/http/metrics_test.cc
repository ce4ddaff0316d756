// The text that Prometheus reads.
#include "daemon/http/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/http/fixture.h"

namespace tutti {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kDemo = R"(host="a",job_name="demo",uid="1000",subject="")";

TEST(HttpMetrics, AreThoseOfTheReport) {
  const std::string text = metrics_text(example_node(), true);
  const std::string demo = kDemo;
  for (const std::string& line : std::vector<std::string>{
           R"(tutti_build_info{host="a",version="1.2.3"} 1)", R"(tutti_agent_serving{host="a"} 1)",
           R"(tutti_agent_uptime_seconds{host="a"} 1.5)", R"(tutti_agent_descriptors{host="a"} 20)",
           R"(tutti_agent_descriptors_max{host="a"} 1024)", R"(tutti_jobs{host="a"} 1)",
           R"(tutti_segments{host="a"} 2)", R"(tutti_segment_bytes{host="a"} 8192)",
           R"(tutti_refused_callers_total{host="a",door="socket",code="UNAUTHENTICATED"} 3)",
           R"(tutti_user_ranks{host="a",uid="1000"} 2)",
           "tutti_job_info{" + demo + R"(,state="failed",strategy="ring"} 1)",
           "tutti_job_operations_total{" + demo + "} 20",
           "tutti_job_failures_total{" + demo + "} 1", "tutti_job_bytes_total{" + demo + "} 4096",
           "tutti_job_ranks_gone{" + demo + "} 1",
           "tutti_operations_total{" + demo + R"(,rank="1"} 11)",
           "tutti_operation_bytes_total{" + demo + R"(,rank="0"} 512)"})
    EXPECT_THAT(text, HasSubstr("\n" + line + "\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE tutti_operations_total counter\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE tutti_job_epoch gauge\n"));
}

TEST(HttpMetrics, NameNoJobAndNoUserToThoseWhoMayNotSeeThem) {
  const std::string text = metrics_text(example_node(), false);
  EXPECT_THAT(text, HasSubstr("\ntutti_jobs{host=\"a\"} 1\n"));
  for (const char* word : {"demo", "1000", "ring", "rank=", "tutti_user_"})
    EXPECT_THAT(text, Not(HasSubstr(word)));
}

TEST(HttpMetrics, OfEndedJobsAreGone) {
  v1::AgentReport node = example_node();
  node.clear_workers();
  EXPECT_THAT(metrics_text(node, true), Not(HasSubstr("demo")));
}

// Users choose the names of jobs.
TEST(HttpMetrics, HostileNamesStayWithinTheirLabel) {
  v1::AgentReport node = example_node();
  node.mutable_workers(0)->set_job("a\"} 7\ntutti_jobs{host=\"b\\");
  const std::string text = metrics_text(node, true);
  EXPECT_THAT(text, HasSubstr(R"(job_name="a\"} 7\ntutti_jobs{host=\"b\\",uid=)"));
  EXPECT_THAT(text, Not(HasSubstr("\ntutti_jobs{host=\"b")));
}

TEST(HttpMetrics, ASeriesStandsOnce) {
  v1::AgentReport node = example_node();
  *node.add_workers() = node.workers(0);
  const std::string text = metrics_text(node, true);
  const std::string line = "\ntutti_job_epoch{" + std::string(kDemo) + "}";
  const size_t first = text.find(line);
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(text.find(line, first + 1), std::string::npos);
}

}  // namespace
}  // namespace tutti
