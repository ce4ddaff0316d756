#include "daemon/cli/status_report.h"

#include <algorithm>
#include <cctype>
#include <tuple>
#include <utility>
#include <vector>

#include "daemon/base/text.h"

namespace tutti {
namespace {

constexpr size_t kStateBytesMax = 32;

std::string duration(uint64_t ms) {
  const uint64_t seconds = ms / 1000;
  if (seconds < 120) return std::to_string(seconds) + " s";
  if (seconds < 7200) return std::to_string(seconds / 60) + " min";
  return std::to_string(seconds / 3600) + " h";
}

// "1-3,5", ascending, each once: a rank that joins again is there twice for a while.
std::string indices_of(std::vector<uint32_t> indices) {
  std::ranges::sort(indices);
  indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
  std::string out;
  for (size_t first = 0, next = 0; first < indices.size(); first = next) {
    for (next = first + 1; next < indices.size() && indices[next] == indices[next - 1] + 1;) ++next;
    out += (out.empty() ? "" : ",") + std::to_string(indices[first]);
    if (next - first > 1) out += "-" + std::to_string(indices[next - 1]);
  }
  return out;
}

std::string ranks_of(const v1::WorkerReport& worker) {
  std::vector<uint32_t> ranks;
  for (const v1::RankReport& rank : worker.ranks()) ranks.push_back(rank.rank());
  const std::string out = indices_of(std::move(ranks));
  return (out.empty() ? "-" : out) + " of " + std::to_string(worker.world_size());
}

// What does not fit in a column stands below the table in full.
std::string state_cell(const std::string& state) {
  return state.size() <= kStateBytesMax ? state : state.substr(0, kStateBytesMax - 3) + "...";
}

std::string agents_table(const v1::StatusReply& reply) {
  Table table({"HOST", "ADDRESS", "PID", "STATE", "JOBS", "UP", "VERSION"});
  for (const v1::AgentReport& agent : reply.agents())
    table.add({agent.host() + (agent.coordinator() ? "*" : ""), agent.address(),
               agent.pid() == 0 ? "-" : std::to_string(agent.pid()), state_cell(agent.state()),
               std::to_string(agent.workers_size()),
               agent.pid() == 0 ? "-" : duration(agent.uptime_ms()),
               agent.version().empty() ? "-" : agent.version()});
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
    if (agent.state().size() > kStateBytesMax)
      notes += (agent.host().empty() ? agent.address() : "host " + agent.host()) + ": " +
               agent.state() + "\n";
    add(agent, "coordinator " + agent.coordinator_address(), agent.coordinator_state());
    add(agent, "etcd", agent.etcd_state());
  }
  std::ranges::replace_if(
      notes, [](unsigned char c) { return (c < 0x20 && c != '\n') || c == 0x7f; }, '?');
  return notes;
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

// A job's rows are together, whatever the order of the hosts.
std::vector<std::pair<const v1::AgentReport*, const v1::WorkerReport*>> workers_by_job(
    const v1::StatusReply& reply) {
  std::vector<std::pair<const v1::AgentReport*, const v1::WorkerReport*>> workers;
  for (const v1::AgentReport& agent : reply.agents())
    for (const v1::WorkerReport& worker : agent.workers()) workers.emplace_back(&agent, &worker);
  std::ranges::stable_sort(workers, [](const auto& a, const auto& b) {
    const auto key = [](const auto& one) {
      return std::make_tuple(one.second->job(), one.second->uid(), one.second->pass().subject(),
                             one.first->host());
    };
    return key(a) < key(b);
  });
  return workers;
}

std::string jobs_table(const v1::StatusReply& reply) {
  const auto workers = workers_by_job(reply);
  if (workers.empty()) return "no jobs\n";
  Table table({"JOB", "HOST", "RANKS", "EPOCH", "STATE", "STRATEGY", "OPERATIONS", "FAILED",
               "BYTES", "SENT", "FRAMES", "RECEIVED", "PID"});
  std::string notes;
  for (const auto& [agent, worker] : workers) {
    table.add({worker->job(), agent->host(), ranks_of(*worker), std::to_string(worker->epoch()),
               state_cell(worker->state()), worker->strategy(),
               std::to_string(worker->operations()), std::to_string(worker->failures()),
               format_byte_size(worker->bytes()), format_byte_size(worker->sent_bytes()),
               std::to_string(worker->sent_frames()), format_byte_size(worker->received_bytes()),
               worker->pid() == 0 ? "-" : std::to_string(worker->pid())});
    if (worker->state().size() > kStateBytesMax)
      notes += printable(worker->job() + " on " + agent->host() + ": " + worker->state()) + "\n";
  }
  return table.text() + notes;
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

std::string jobs_text(const v1::StatusReply& reply) {
  int count = 0;
  std::string list;
  for (const v1::AgentReport& agent : reply.agents())
    for (const v1::WorkerReport& worker : agent.workers()) {
      list += (count++ == 0 ? "" : ", ") + worker.job() + " (ranks " + ranks_of(worker) + ")";
    }
  return count == 0 ? "" : std::to_string(count) + (count == 1 ? " job: " : " jobs: ") + list;
}

}  // namespace tutti
