// What `tutti status` prints.
#include "daemon/cli/status_report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "daemon/control/status_json.h"

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
  worker->set_pid(21);
  worker->set_world_size(2);
  worker->set_epoch(5);
  worker->set_state("running");
  worker->set_strategy("ring");
  worker->set_operations(12);
  worker->set_failures(3);
  worker->set_bytes(4096);
  worker->set_sent_bytes(7168);
  worker->set_sent_frames(9);
  worker->set_received_bytes(6144);
  worker->add_ranks()->set_rank(0);
  worker->mutable_departures()->add_ranks(1);
  return reply;
}

v1::Gpu& add_gpu(v1::AgentReport& agent) {
  v1::Gpu& gpu = *agent.add_gpus();
  const auto index = static_cast<uint32_t>(agent.gpus_size() - 1);
  gpu.set_index(index);
  gpu.set_name("NVIDIA H200");
  gpu.set_uuid("GPU-" + std::to_string(index));
  gpu.set_pci_bus_id("00000000:3B:00.0");
  gpu.set_memory_bytes(uint64_t{141} << 30);
  gpu.set_used_bytes(uint64_t{3} << 29);
  gpu.set_ecc_errors(7);
  gpu.set_nvlinks(18);
  gpu.set_state("OK");
  return gpu;
}

void add_peer(v1::Gpu& gpu, uint32_t index, const std::string& path) {
  v1::GpuPeer& peer = *gpu.add_peers();
  peer.set_index(index);
  peer.set_path(path);
}

v1::StatusReply example_gpus() {
  v1::StatusReply reply = example_status();
  v1::AgentReport& agent = *reply.mutable_agents(0);
  v1::Gpu& linked = add_gpu(agent);
  for (const uint32_t peer : {1, 2, 3, 5}) add_peer(linked, peer, "NV18");
  add_peer(linked, 4, "SYS");
  v1::Gpu& failed = add_gpu(agent);
  failed.set_mig(true);
  failed.set_failed(true);
  failed.set_xid(79);
  failed.set_state("failed: XID 79 (GPU has fallen off the bus)");
  v1::Gpu& unknown = *agent.add_gpus();
  unknown.set_index(2);
  unknown.set_state("failed: GPU is lost");
  return reply;
}

// The cells of each line; columns are separated by two spaces or more.
std::vector<std::vector<std::string>> cells_of(const std::string& text) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string>& row = rows.emplace_back();
    for (size_t at = 0; (at = line.find_first_not_of(' ', at)) != std::string::npos;) {
      const size_t end = std::min(line.find("  ", at), line.find_last_not_of(' ') + 1);
      row.push_back(line.substr(at, end - at));
      at = end;
    }
  }
  return rows;
}

TEST(StatusReport, EveryColumnHoldsItsValue) {
  using Row = std::vector<std::string>;
  const std::vector<Row> rows = cells_of(status_text(example_status()));
  ASSERT_EQ(rows.size(), 6u);
  EXPECT_EQ(rows[0], (Row{"HOST", "ADDRESS", "PID", "STATE", "JOBS", "UP", "VERSION"}));
  EXPECT_EQ(rows[1], (Row{"a*", "127.0.0.1:7601", "11", "serving", "1", "61 s", "0.1.0"}));
  EXPECT_EQ(rows[4], (Row{"JOB", "HOST", "RANKS", "EPOCH", "STATE", "STRATEGY", "OPERATIONS",
                          "FAILED", "BYTES", "SENT", "FRAMES", "RECEIVED", "PID"}));
  EXPECT_EQ(rows[5], (Row{"demo", "a", "0 of 2", "5", "running", "ring", "12", "3", "4 KiB",
                          "7 KiB", "9", "6 KiB", "21"}));
}

TEST(StatusReport, RanksAreSortedAndEachIsNamedOnce) {
  v1::StatusReply reply = example_status();
  v1::WorkerReport& worker = *reply.mutable_agents(0)->mutable_workers(0);
  worker.set_world_size(8);
  worker.clear_ranks();
  for (const uint32_t rank : {5, 2, 0, 0, 2, 1}) worker.add_ranks()->set_rank(rank);
  EXPECT_EQ(cells_of(status_text(reply))[5][2], "0-2,5 of 8");
}

TEST(StatusReport, RowsOfAJobAreTogether) {
  v1::StatusReply reply;
  for (const char* host : {"b", "a"}) {
    v1::AgentReport& agent = *reply.add_agents();
    agent.set_host(host);
    for (const char* job : {"two", "one"}) agent.add_workers()->set_job(job);
  }
  std::string order;
  for (const auto& row : cells_of(status_text(reply)))
    if (!row.empty() && (row[0] == "one" || row[0] == "two")) order += row[0] + row[1] + " ";
  EXPECT_EQ(order, "onea oneb twoa twob ");
}

TEST(StatusReport, LongStatesStandBelowOnce) {
  v1::StatusReply reply = example_status();
  const std::string failed = "failed: the worker of host b (ranks 2, 3) is gone";
  reply.mutable_agents(0)->mutable_workers(0)->set_state(failed);
  const std::string unreachable = "unreachable: failed to connect to all addresses; last error: x";
  v1::AgentReport& lost = *reply.add_agents();
  lost.set_host("b");
  lost.set_state(unreachable);
  const std::string text = status_text(reply);
  for (const std::string& state : {failed, unreachable}) {
    EXPECT_EQ(text.find(state), text.rfind(state)) << text;
    EXPECT_NE(text.find(": " + state + "\n"), std::string::npos) << text;
    EXPECT_NE(text.find(state.substr(0, 29) + "...  "), std::string::npos) << text;
  }
}

TEST(StatusReport, GpusHaveATableOfTheirOwn) {
  using Row = std::vector<std::string>;
  const std::vector<Row> rows = cells_of(status_text(example_gpus()));
  ASSERT_EQ(rows.size(), 11u);
  EXPECT_EQ(rows[4], (Row{"HOST", "GPU", "NAME", "PCI", "MEMORY", "USED", "NVLINKS", "PEERS",
                          "ECC ERRORS", "MIG", "STATE"}));
  EXPECT_EQ(rows[5], (Row{"a", "0", "NVIDIA H200", "0000:3b:00.0", "141 GiB", "1.50 GiB", "18",
                          "NV18: 1-3,5, SYS: 4", "7", "off", "OK"}));
  EXPECT_EQ(rows[6], (Row{"a", "1", "NVIDIA H200", "0000:3b:00.0", "141 GiB", "1.50 GiB", "18", "-",
                          "7", "on", "failed: XID 79 (GPU has fallen off the bus)"}));
  EXPECT_EQ(rows[7],
            (Row{"a", "2", "-", "-", "-", "-", "-", "-", "-", "-", "failed: GPU is lost"}));
  EXPECT_TRUE(rows[8].empty());
  EXPECT_EQ(rows[9][0], "JOB");
}

TEST(StatusReport, GpusForPrograms) {
  const std::string json = status_json(example_gpus());
  EXPECT_NE(json.find(R"("gpus":[{"index":0,"name":"NVIDIA H200","uuid":"GPU-0",)"
                      R"("pci_bus_id":"00000000:3B:00.0","memory_bytes":151397597184,)"
                      R"("used_bytes":1610612736,"mig":false,"ecc_errors":7,"nvlinks":18,)"
                      R"("state":"OK","failed":false,"xid":0,"peers":[{"index":1,"path":"NV18"},)"),
            std::string::npos)
      << json;
  EXPECT_NE(json.find(R"("failed":true,"xid":79,"peers":[]})"), std::string::npos) << json;
  EXPECT_NE(status_json(example_status()).find(R"("gpus":[])"), std::string::npos);
  EXPECT_EQ(std::ranges::count(json, '{'), std::ranges::count(json, '}'));
}

TEST(StatusReport, ForPeople) {
  const std::string text = status_text(example_status());
  EXPECT_NE(text.find("a*    127.0.0.1:7601"), std::string::npos) << text;
  EXPECT_NE(text.find("61 s"), std::string::npos) << text;
  EXPECT_NE(text.find("0 of 2"), std::string::npos) << text;
  EXPECT_NE(text.find("4 KiB"), std::string::npos) << text;
  EXPECT_NE(status_text({}).find("no jobs"), std::string::npos);
}

TEST(StatusReport, WhatUsersHaveIsBesideTheirLimits) {
  using Row = std::vector<std::string>;
  v1::StatusReply reply = example_status();
  v1::UserReport& ann = *reply.mutable_agents(0)->add_users();
  ann.set_uid(1000);
  ann.set_jobs(2);
  ann.set_jobs_max(64);
  ann.set_ranks(12);
  ann.set_ranks_max(1024);
  ann.set_memory_bytes(3 << 20);
  ann.set_memory_bytes_max(uint64_t{1} << 40);
  v1::UserReport& root = *reply.mutable_agents(0)->add_users();
  root.set_jobs(1);
  const std::vector<Row> rows = cells_of(status_text(reply));
  ASSERT_EQ(rows.size(), 10u);
  EXPECT_TRUE(rows[6].empty());
  EXPECT_EQ(rows[7], (Row{"USER", "HOST", "JOBS", "RANKS", "MEMORY"}));
  EXPECT_EQ(rows[8], (Row{"1000", "a", "2 of 64", "12 of 1024", "3 MiB of 1 TiB"}));
  EXPECT_EQ(rows[9], (Row{"0", "a", "1", "0", "0 B"}));
  EXPECT_NE(status_json(reply).find(
                R"("users":[{"uid":1000,"jobs":2,"jobs_max":64,"ranks":12,"ranks_max":1024,)"
                R"("memory_bytes":3145728,"memory_bytes_max":1099511627776},{"uid":0,"jobs":1,)"),
            std::string::npos);
}

TEST(StatusReport, MemoryThatIsStagedIsNamed) {
  v1::StatusReply reply = example_status();
  EXPECT_EQ(status_text(reply).find("staged"), std::string::npos);
  reply.mutable_agents(0)->mutable_workers(0)->set_gpu_staging_bytes(65536);
  EXPECT_NE(status_text(reply).find("cannot map is staged through 64 KiB of pinned memory"),
            std::string::npos)
      << status_text(reply);
  EXPECT_NE(status_json(reply).find(R"("gpu_staging_bytes":65536)"), std::string::npos);
}

TEST(StatusReport, TheLinkOfOperationsOnGpusIsNamed) {
  v1::StatusReply reply = example_status();
  EXPECT_EQ(status_text(reply).find("between hosts"), std::string::npos);
  v1::WorkerReport& worker = *reply.mutable_agents(0)->mutable_workers(0);
  worker.set_gpu_link("nccl");
  EXPECT_NE(status_text(reply).find("operations on GPUs go between hosts by NCCL\n"),
            std::string::npos);
  worker.set_gpu_link("host");
  worker.set_gpu_link_why("host b: there is no NCCL");
  EXPECT_NE(
      status_text(reply).find("go between hosts through host memory: host b: there is no NCCL\n"),
      std::string::npos);
  EXPECT_NE(
      status_json(reply).find(R"("gpu_link":"host","gpu_link_why":"host b: there is no NCCL")"),
      std::string::npos);
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
