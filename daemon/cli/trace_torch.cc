// What torch.distributed's flight recorder dumps (version 2.4), written as a pickle of protocol 2:
// https://docs.python.org/3/library/pickletools.html names its instructions.
#include <algorithm>
#include <array>
#include <string_view>

#include "daemon/cli/trace_report.h"
#include "daemon/diagnosis/diagnosis.h"
#include "proto/types.h"

namespace tutti {
namespace {

// Writes one value. Calls nest, as those of Json do; in a dictionary each value follows its key.
class Pickle {
 public:
  Pickle& open_list() { return open(']', 'e'); }
  Pickle& open_dict() { return open('}', 'u'); }
  Pickle& close() {
    out_ += ends_.back();
    ends_.pop_back();
    return *this;
  }
  Pickle& text(std::string_view value) {
    out_ += 'X';  // BINUNICODE
    put(value.size(), 4);
    out_ += value;
    return *this;
  }
  Pickle& number(uint64_t value) {
    out_ += "\x8a\x09";  // LONG1, of 9 bytes, so that no sign is meant.
    put(value, 8);
    out_ += '\0';
    return *this;
  }
  Pickle& no() {
    out_ += '\x89';  // NEWFALSE
    return *this;
  }
  // The last two values become one.
  Pickle& pair() {
    out_ += '\x86';  // TUPLE2
    return *this;
  }
  Pickle& key(std::string_view name) { return text(name); }
  std::string finish() && { return "\x80\x02" + out_ + "."; }

 private:
  Pickle& open(char empty, char end) {
    out_ += empty;
    out_ += '(';
    ends_ += end;
    return *this;
  }
  void put(uint64_t value, int bytes) {
    for (; bytes > 0; --bytes, value >>= 8) out_ += static_cast<char>(value & 0xff);
  }

  std::string out_;
  std::string ends_;
};

std::string_view torch_dtype(uint32_t dtype) {
  constexpr std::array<std::string_view, kDtypes> names = {
      "Float", "Double", "Half",  "BFloat16", "Char",   "Byte",  "Int",
      "Long",  "Bool",   "Short", "UInt16",   "UInt32", "UInt64"};
  return dtype < kDtypes ? names[dtype] : "Undefined";
}

// The newest epoch of one owner's job alone.
v1::TraceReply epoch_of(const v1::TraceReply& reply, const JobOwner& owner) {
  const uint32_t epoch = newest_epoch(owner, reply);
  v1::TraceReply own;
  for (const v1::HostTrace& trace : reply.hosts())
    if (trace.epoch() == epoch && owner_of(trace) == owner) *own.add_hosts() = trace;
  return own;
}

// The members of a group, of all hosts.
std::vector<uint32_t> members_of(const v1::TraceReply& reply, uint32_t group) {
  std::vector<uint32_t> members;
  for (const v1::HostTrace& trace : reply.hosts())
    for (const v1::TracedGroup& known : trace.groups())
      if (known.number() == group)
        members.insert(members.end(), known.ranks().begin(), known.ranks().end());
  std::ranges::sort(members);
  return members;
}

void write_sizes(Pickle& out, const v1::TracedOperation& operation, bool has_blocks, size_t ranks) {
  out.open_list().open_list().number(operation.count() * (has_blocks ? ranks : 1)).close().close();
}

void write_entry(Pickle& out, const v1::TracedOperation& operation, bool all_called, size_t ranks) {
  const auto collective = static_cast<Collective>(operation.collective() % kCollectives);
  const bool completed = operation.ended() && operation.code() == TUTTI_OK;
  out.open_dict();
  out.key("record_id").number(operation.index());
  out.key("process_group").text(std::to_string(operation.group())).text("tutti").pair();
  out.key("collective_seq_id").number(operation.number() + 1);
  out.key("p2p_seq_id").number(0).key("is_p2p").no();
  out.key("profiling_name").text("c10d:" + collective_text(operation));
  out.key("input_sizes");
  write_sizes(out, operation, has_input_blocks(collective), ranks);
  out.key("output_sizes");
  write_sizes(out, operation, has_output_blocks(collective), ranks);
  for (const char* side : {"input_dtypes", "output_dtypes"})
    out.key(side).open_list().text(torch_dtype(operation.dtype())).close();
  out.key("time_created_ns").number(operation.begun_ns());
  out.key("state").text(completed ? "completed" : all_called ? "started" : "scheduled");
  out.key("frames").open_list().close();
  out.close();
}

std::string dump_of(const v1::TraceReply& reply, uint32_t rank,
                    const std::vector<TracedAcrossRanks>& operations) {
  Pickle out;
  out.open_dict().key("version").text("2.4").key("pg_config").open_dict();
  std::map<uint32_t, std::vector<uint32_t>> groups;
  for (const TracedAcrossRanks& operation : operations) groups.try_emplace(operation.group);
  for (auto& [group, members] : groups) {
    members = members_of(reply, group);
    std::string list;
    for (const uint32_t member : members)
      list += (list.empty() ? "" : ", ") + std::to_string(member);
    out.key(std::to_string(group)).open_dict().key("name").text(std::to_string(group));
    out.key("desc").text("tutti").key("ranks").text("[" + list + "]").close();
  }
  out.close().key("entries").open_list();
  for (const TracedAcrossRanks& operation : operations) {
    const auto own = operation.ranks.find(rank);
    if (own != operation.ranks.end())
      write_entry(out, *own->second, operation.missing.empty(), groups[operation.group].size());
  }
  out.close().close();
  return std::move(out).finish();
}

}  // namespace

std::map<uint32_t, std::string> trace_torch(const v1::TraceReply& reply) {
  const std::vector<JobOwner> owners = owners_of(reply);
  if (owners.empty()) return {};
  const v1::TraceReply own = epoch_of(reply, owners.front());
  const std::vector<TracedAcrossRanks> operations = operations_of(own);
  std::map<uint32_t, std::string> dumps;
  for (const v1::HostTrace& trace : own.hosts())
    for (const v1::RankTrace& rank : trace.ranks())
      dumps[rank.rank()] = dump_of(own, rank.rank(), operations);
  return dumps;
}

}  // namespace tutti
