#include "daemon/diagnosis/traced_operations.h"

#include <algorithm>

#include "daemon/base/strategy.h"
#include "proto/board.h"
#include "proto/types.h"

namespace tutti {
namespace {

using Job = std::pair<JobOwner, uint32_t>;  // And epoch.

Job job_of(const v1::HostTrace& trace) { return {owner_of(trace), trace.epoch()}; }

// What one rank recorded of its calls of one group.
struct Calls {
  uint64_t newest = 0;
  bool any = false;
  bool complete = false;  // Everything that it ever called is in the reply.
  // nullopt: not known.
  std::optional<bool> has_called(uint64_t number) const {
    if (any) return number <= newest;
    return complete ? std::optional(false) : std::nullopt;
  }
};

// The members of one group of an epoch, over all hosts.
using Members = std::map<uint32_t, Calls>;
using Groups = std::map<std::pair<Job, uint32_t>, Members>;

Groups groups_of(const v1::TraceReply& reply) {
  Groups groups;
  for (const v1::HostTrace& trace : reply.hosts()) {
    const Job job = job_of(trace);
    for (const v1::TracedGroup& group : trace.groups())
      for (const uint32_t rank : group.ranks()) groups[{job, group.number()}][rank];
    for (const v1::RankTrace& rank : trace.ranks()) {
      for (auto& [key, members] : groups)
        if (key.first == job && members.contains(rank.rank()))
          members[rank.rank()].complete =
              rank.recorded() == static_cast<uint64_t>(rank.operations_size());
      for (const v1::TracedOperation& operation : rank.operations()) {
        Calls& calls = groups[{job, operation.group()}][rank.rank()];
        calls.newest = std::max(calls.newest, operation.number());
        calls.any = true;
      }
    }
  }
  return groups;
}

template <size_t N>
std::string name_at(const std::array<std::string_view, N>& names, uint32_t index) {
  return index < N ? std::string(names[index]) : "?";
}

bool is_same_call(const v1::TracedOperation& a, const v1::TracedOperation& b) {
  return canonical(signature_of(a)) == canonical(signature_of(b));
}

}  // namespace

bool was_refused(const v1::TracedOperation& operation) {
  return (operation.flags() & kRequestRefused) != 0;
}

const v1::TracedOperation& TracedAcrossRanks::any() const {
  if (ranks.empty()) return *hosts.begin()->second;
  const auto found =
      std::ranges::find_if(ranks, [](const auto& rank) { return !was_refused(*rank.second); });
  return found == ranks.end() ? *ranks.begin()->second : *found->second;
}

bool TracedAcrossRanks::disagrees() const {
  return std::ranges::any_of(ranks, [&](const auto& rank) {
    return !was_refused(*rank.second) && !is_same_call(*rank.second, any());
  });
}

uint64_t TracedAcrossRanks::begun_ns() const {
  uint64_t first = UINT64_MAX;
  for (const auto& [rank, operation] : ranks) first = std::min(first, operation->begun_ns());
  return ranks.empty() ? any().begun_ns() : first;
}

std::optional<TracedAcrossRanks::Last> TracedAcrossRanks::last() const {
  if (ranks.empty()) return std::nullopt;
  const auto latest =
      std::ranges::max_element(ranks, {}, [](const auto& rank) { return rank.second->begun_ns(); });
  return Last{latest->first, latest->second->begun_ns() - begun_ns()};
}

std::optional<uint64_t> TracedAcrossRanks::duration_ns() const {
  if (!ended()) return std::nullopt;
  uint64_t end = begun_ns();
  for (const auto& [rank, operation] : ranks)
    end = std::max(end, operation->begun_ns() + operation->duration_ns());
  return end - begun_ns();
}

bool TracedAcrossRanks::ended() const {
  return std::ranges::all_of(ranks, [](const auto& rank) { return rank.second->ended(); });
}

uint32_t TracedAcrossRanks::code() const {
  for (const auto& [rank, operation] : ranks)
    if (operation->code() != TUTTI_OK) return operation->code();
  return TUTTI_OK;
}

std::vector<TracedAcrossRanks> operations_of(const v1::TraceReply& reply) {
  const Groups groups = groups_of(reply);
  std::map<std::tuple<Job, uint32_t, uint64_t>, TracedAcrossRanks> all;
  const auto find = [&](const v1::HostTrace& trace,
                        const v1::TracedOperation& operation) -> TracedAcrossRanks& {
    const Job job = job_of(trace);
    TracedAcrossRanks& found = all[{job, operation.group(), operation.number()}];
    found.owner = job.first;
    found.epoch = trace.epoch();
    found.group = operation.group();
    found.number = operation.number();
    return found;
  };
  for (const v1::HostTrace& trace : reply.hosts()) {
    for (const v1::RankTrace& rank : trace.ranks())
      for (const v1::TracedOperation& operation : rank.operations())
        find(trace, operation).ranks[rank.rank()] = &operation;
    for (const v1::TracedOperation& operation : trace.among_hosts())
      find(trace, operation).hosts[trace.host()] = &operation;
  }
  std::vector<TracedAcrossRanks> operations;
  for (auto& [key, operation] : all) {
    const auto members = groups.find({std::get<0>(key), operation.group});
    if (members != groups.end())
      for (const auto& [rank, calls] : members->second)
        if (!operation.ranks.contains(rank) && calls.has_called(operation.number) == false)
          operation.missing.push_back(rank);
    operations.push_back(std::move(operation));
  }
  std::ranges::stable_sort(operations, {}, &TracedAcrossRanks::begun_ns);
  return operations;
}

Signature signature_of(const v1::TracedOperation& operation) {
  const auto strategy = [](uint32_t packed) {
    const Result<Strategy> known = unpacked(pack_strategy(packed & 15, packed >> 4));
    return known.ok() ? *known : Strategy();
  };
  Signature signature;
  signature.collective = static_cast<Collective>(operation.collective() % kCollectives);
  signature.dtype = static_cast<Dtype>(operation.dtype() % kDtypes);
  signature.op = static_cast<Op>(operation.op() % kOps);
  signature.count = operation.count();
  signature.root = operation.root();
  signature.strategies = {strategy(operation.local_strategy()),
                          strategy(operation.global_strategy())};
  signature.layout = operation.layout();
  signature.on_device = (operation.flags() & kRequestDevice) != 0;
  signature.reproducible = (operation.flags() & kRequestReproducible) != 0;
  signature.verifies = (operation.flags() & kRequestVerify) != 0;
  return signature;
}

std::string collective_text(const v1::TracedOperation& operation) {
  return name_at(kCollectiveNames, operation.collective());
}

std::string dtype_text(const v1::TracedOperation& operation) {
  if (operation.collective() == TUTTI_BARRIER) return "";
  return name_at(kDtypeNames, operation.dtype());
}

std::string op_text(const v1::TracedOperation& operation) {
  const uint32_t collective = operation.collective();
  if (collective >= kCollectives || !reduces(static_cast<Collective>(collective))) return "";
  return name_at(kOpNames, operation.op());
}

std::string strategy_text(uint32_t short_strategy) {
  const Result<Strategy> strategy =
      unpacked(pack_strategy(short_strategy & 15, short_strategy >> 4));
  return strategy.ok() ? to_string(*strategy) : "?";
}

std::string code_text(uint32_t code) {
  return std::string(name_of(code_of(static_cast<int>(code))));
}

std::map<uint32_t, std::string> hosts_of_ranks(const v1::TraceReply& reply, const JobOwner& owner,
                                               uint32_t epoch) {
  std::map<uint32_t, std::string> hosts;
  for (const v1::HostTrace& trace : reply.hosts())
    for (const v1::RankTrace& rank : trace.ranks())
      if (trace.epoch() == epoch && owner_of(trace) == owner) hosts[rank.rank()] = trace.host();
  return hosts;
}

}  // namespace tutti
