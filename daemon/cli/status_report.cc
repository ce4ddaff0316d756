#include "daemon/cli/status_report.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "daemon/base/text.h"

namespace tutti {
namespace {

std::string duration(uint64_t ms) {
  const uint64_t seconds = ms / 1000;
  if (seconds < 120) return std::to_string(seconds) + " s";
  if (seconds < 7200) return std::to_string(seconds / 60) + " min";
  return std::to_string(seconds / 3600) + " h";
}

std::string ranks_of(const v1::WorkerReport& worker) {
  std::string out;
  for (const v1::RankReport& rank : worker.ranks())
    out += (out.empty() ? "" : ",") + std::to_string(rank.rank());
  return (out.empty() ? "-" : out) + " of " + std::to_string(worker.world_size());
}

std::string agents_table(const v1::StatusReply& reply) {
  Table table({"HOST", "ADDRESS", "PID", "STATE", "JOBS", "UP", "VERSION"});
  for (const v1::AgentReport& agent : reply.agents())
    table.add({agent.host() + (agent.coordinator() ? "*" : ""), agent.address(),
               std::to_string(agent.pid()), agent.state(), std::to_string(agent.workers_size()),
               duration(agent.uptime_ms()), agent.version()});
  return table.text();
}

// Agents that do not reach what they need, and why.
std::string peer_notes(const v1::StatusReply& reply) {
  std::string notes;
  const auto add = [&](const v1::AgentReport& agent, const std::string& peer,
                       const std::string& state) {
    if (!state.empty() && state != "connected")
      notes += "host " + agent.host() + ": " + peer + ": " + state + "\n";
  };
  for (const v1::AgentReport& agent : reply.agents()) {
    add(agent, "coordinator " + agent.coordinator_address(), agent.coordinator_state());
    add(agent, "etcd", agent.etcd_state());
  }
  std::ranges::replace_if(
      notes, [](unsigned char c) { return (c < 0x20 && c != '\n') || c == 0x7f; }, '?');
  return notes;
}

// "1-3,5", ascending.
std::string indices_of(std::vector<uint32_t> indices) {
  std::ranges::sort(indices);
  std::string out;
  for (size_t first = 0, next = 0; first < indices.size(); first = next) {
    for (next = first + 1; next < indices.size() && indices[next] == indices[next - 1] + 1;) ++next;
    out += (out.empty() ? "" : ",") + std::to_string(indices[first]);
    if (next - first > 1) out += "-" + std::to_string(indices[next - 1]);
  }
  return out;
}

// "NV18: 1-3, SYS: 4-7", the nearest first.
std::string peers_of(const v1::Gpu& gpu) {
  std::string out;
  for (int first = 0, end = 0; first < gpu.peers_size(); first = end) {
    const std::string& path = gpu.peers(first).path();
    std::vector<uint32_t> indices;
    for (end = first; end < gpu.peers_size() && gpu.peers(end).path() == path; ++end)
      indices.push_back(gpu.peers(end).index());
    out += (out.empty() ? "" : ", ") + path + ": " + indices_of(std::move(indices));
  }
  return out.empty() ? "-" : out;
}

// "0000:3b:00.0", as lspci and sysfs have it, of NVML's "00000000:3B:00.0".
std::string short_bus_id(std::string id) {
  std::ranges::transform(id, id.begin(), [](unsigned char c) { return std::tolower(c); });
  return id.size() == 16 && id.starts_with("0000") ? id.substr(4) : id;
}

void add_gpu(Table& table, const std::string& host, const v1::Gpu& gpu) {
  std::vector<std::string> row = {gpu.name(),
                                  short_bus_id(gpu.pci_bus_id()),
                                  format_byte_size(gpu.memory_bytes()),
                                  format_byte_size(gpu.used_bytes()),
                                  std::to_string(gpu.nvlinks()),
                                  peers_of(gpu),
                                  std::to_string(gpu.ecc_errors()),
                                  gpu.mig() ? "on" : "off"};
  if (gpu.uuid().empty()) std::ranges::fill(row, "-");  // It could not be opened.
  row.insert(row.begin(), {host, std::to_string(gpu.index())});
  row.push_back(gpu.state());
  table.add(std::move(row));
}

// Empty where no host has GPUs.
std::string gpus_table(const v1::StatusReply& reply) {
  Table table({"HOST", "GPU", "NAME", "PCI", "MEMORY", "USED", "NVLINKS", "PEERS", "ECC ERRORS",
               "MIG", "STATE"});
  bool any = false;
  for (const v1::AgentReport& agent : reply.agents())
    for (const v1::Gpu& gpu : agent.gpus()) {
      any = true;
      add_gpu(table, agent.host(), gpu);
    }
  return any ? table.text() + "\n" : "";
}

std::string jobs_table(const v1::StatusReply& reply) {
  Table table({"JOB", "HOST", "RANKS", "EPOCH", "STATE", "STRATEGY", "OPERATIONS", "FAILED",
               "BYTES", "SENT", "FRAMES", "RECEIVED", "PID"});
  bool any = false;
  for (const v1::AgentReport& agent : reply.agents())
    for (const v1::WorkerReport& worker : agent.workers()) {
      any = true;
      table.add({worker.job(), agent.host(), ranks_of(worker), std::to_string(worker.epoch()),
                 worker.state(), worker.strategy(), std::to_string(worker.operations()),
                 std::to_string(worker.failures()), format_byte_size(worker.bytes()),
                 format_byte_size(worker.sent_bytes()), std::to_string(worker.sent_frames()),
                 format_byte_size(worker.received_bytes()), std::to_string(worker.pid())});
    }
  return any ? table.text() : "no jobs\n";
}

// "3 of 64", or "3" where there is no limit.
std::string of_limit(uint64_t use, uint64_t limit, std::string (*text)(uint64_t)) {
  return limit == 0 ? text(use) : text(use) + " of " + text(limit);
}

std::string to_text(uint64_t number) { return std::to_string(number); }

// What users have of the hosts; empty where there are no jobs, else it starts with an empty line.
std::string users_table(const v1::StatusReply& reply) {
  Table table({"USER", "HOST", "JOBS", "RANKS", "MEMORY"});
  bool any = false;
  for (const v1::AgentReport& agent : reply.agents())
    for (const v1::UserReport& user : agent.users()) {
      any = true;
      table.add({std::to_string(user.uid()), agent.host(),
                 of_limit(user.jobs(), user.jobs_max(), to_text),
                 of_limit(user.ranks(), user.ranks_max(), to_text),
                 of_limit(user.memory_bytes(), user.memory_bytes_max(), format_byte_size)});
    }
  return any ? "\n" + table.text() : "";
}

// A line for each job whose tensors are staged; it starts with an empty line.
std::string staging_notes(const v1::StatusReply& reply) {
  std::string notes;
  for (const v1::AgentReport& agent : reply.agents())
    for (const v1::WorkerReport& worker : agent.workers())
      if (worker.gpu_staging_bytes() != 0)
        notes += "\n" + worker.job() + " on " + agent.host() +
                 ": GPU memory that the worker cannot map is staged through " +
                 format_byte_size(worker.gpu_staging_bytes()) +
                 " of pinned memory, which is slower\n";
  return notes;
}

// A line for each job with operations on GPUs between hosts; it starts with an empty line.
std::string gpu_link_notes(const v1::StatusReply& reply) {
  std::string notes;
  for (const v1::AgentReport& agent : reply.agents())
    for (const v1::WorkerReport& worker : agent.workers()) {
      if (worker.gpu_link().empty()) continue;
      const bool by_nccl = worker.gpu_link() == "nccl";
      notes += "\n" + worker.job() + " on " + agent.host() +
               ": operations on GPUs go between hosts " +
               (by_nccl ? "by NCCL" : "through host memory: " + worker.gpu_link_why()) + "\n";
    }
  return notes;
}

}  // namespace

std::string status_text(const v1::StatusReply& reply) {
  return agents_table(reply) + "* coordinator\n" + peer_notes(reply) + "\n" + gpus_table(reply) +
         jobs_table(reply) + users_table(reply) + staging_notes(reply) + gpu_link_notes(reply);
}

}  // namespace tutti
