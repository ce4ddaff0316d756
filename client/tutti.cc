// The C ABI: each function is a few lines over the client's rooms.
#include "client/tutti.h"

#include <algorithm>
#include <array>

#include "client/batch.h"
#include "proto/types.h"

using tutti::client::Batch;
using tutti::client::Connection;
using tutti::client::failure;
using tutti::client::JoinTarget;
using tutti::client::Manner;
using tutti::client::Operation;
using tutti::client::Outcome;
using tutti::client::remember;
using tutti::client::TensorList;
using tutti::client::Ticket;

namespace {

tutti_code invalid(const char* what) { return remember(failure(TUTTI_INVALID_ARGUMENT, what)); }

// Hands the work out, or waits for it here.
tutti_code finish(tutti_work begun, tutti_work** work) {
  auto made = std::make_unique<tutti_work>(std::move(begun));
  if (work != nullptr) {
    *work = made.release();
    return TUTTI_OK;
  }
  const tutti_code code = tutti_work_wait(made.get(), -1);
  tutti_work_free(made.release());
  return code;
}

Manner manner_of(tutti_work** work) {
  return work == nullptr ? Manner::blocking : Manner::background;
}

tutti_code run(tutti_group* group, const Operation& operation, const tutti_options* options,
               tutti_work** work) {
  if (work != nullptr) *work = nullptr;
  if (group == nullptr) return invalid("the group is NULL");
  std::shared_ptr<Ticket> ticket;
  const Outcome submitted =
      tutti::client::submit(*group, operation, options, manner_of(work), ticket);
  return submitted.ok() ? finish({group->connection, ticket, nullptr}, work) : remember(submitted);
}

tutti_code run_list(tutti_group* group, const TensorList& list, const tutti_options* options,
                    tutti_work** work) {
  if (work != nullptr) *work = nullptr;
  if (group == nullptr) return invalid("the group is NULL");
  std::unique_ptr<Batch> batch;
  const Outcome submitted = Batch::submit(*group, list, options, manner_of(work), batch);
  if (!submitted.ok()) return remember(submitted);
  return finish({group->connection, nullptr, std::move(batch)}, work);
}

Outcome find_member(const tutti_group& group, const uint32_t* ranks, size_t count,
                    uint32_t& position) {
  if (group.number != 0)
    return failure(TUTTI_INVALID_ARGUMENT, "a sub-group is made from the whole job's group");
  const uint32_t* end = ranks + count;
  const uint32_t* self = std::find(ranks, end, group.rank);
  if (ranks == nullptr || self == end)
    return failure(TUTTI_INVALID_ARGUMENT,
                   "rank " + std::to_string(group.rank) +
                       " is not of the sub-group; only its members make it");
  position = static_cast<uint32_t>(self - ranks);
  return {};
}

}  // namespace

size_t tutti_dtype_size(tutti_dtype dtype) {
  const auto number = static_cast<uint32_t>(dtype);
  return number < tutti::kDtypes ? tutti::size_of(static_cast<tutti::Dtype>(number)) : 0;
}

tutti_code tutti_join(const tutti_join_options* options, tutti_group** group) {
  if (group == nullptr) return invalid("there is no place for the group");
  *group = nullptr;
  JoinTarget target;
  if (Outcome o = tutti::client::read_target(options, target); !o.ok()) return remember(o);
  auto joined = std::make_unique<tutti_group>();
  if (Outcome o = Connection::open(target, joined->connection); !o.ok()) return remember(o);
  joined->rank = target.rank;
  for (uint32_t rank = 0; rank < target.world_size; ++rank) joined->ranks.push_back(rank);
  *group = joined.release();
  return TUTTI_OK;
}

tutti_code tutti_leave(tutti_group* group) {
  if (group == nullptr) return invalid("the group is NULL");
  if (group->left)
    return remember(failure(TUTTI_FAILED_PRECONDITION, "the group was left already"));
  group->left = true;
  if (group->number == 0) group->connection->leave();
  return TUTTI_OK;
}

void tutti_group_free(tutti_group* group) {
  if (group == nullptr) return;
  if (!group->left) tutti_leave(group);
  delete group;
}

tutti_code tutti_subgroup(tutti_group* group, const uint32_t* ranks, size_t count,
                          tutti_group** subgroup) {
  if (group == nullptr || subgroup == nullptr) return invalid("a group is NULL");
  *subgroup = nullptr;
  auto made = std::make_unique<tutti_group>();
  std::shared_ptr<Ticket> ticket;
  Outcome o = find_member(*group, ranks, count, made->rank);
  if (o.ok()) o = tutti::client::submit_subgroup(*group, ranks, count, ticket);
  if (o.ok()) o = group->connection->wait(*ticket, -1);
  if (!o.ok() && ticket != nullptr) group->connection->abandon(ticket);
  if (!o.ok()) return remember(o);
  made->connection = group->connection;
  made->number = ticket->value;
  made->ranks.assign(ranks, ranks + count);
  *subgroup = made.release();
  return TUTTI_OK;
}

int32_t tutti_rank(const tutti_group* group) { return static_cast<int32_t>(group->rank); }

int32_t tutti_world_size(const tutti_group* group) {
  return static_cast<int32_t>(group->ranks.size());
}

uint32_t tutti_epoch(const tutti_group* group) { return group->connection->epoch(); }

const char* tutti_host_of(const tutti_group* group, int32_t rank) {
  if (rank < 0 || rank >= tutti_world_size(group)) return nullptr;
  return group->connection->hosts()[group->ranks[static_cast<size_t>(rank)]].c_str();
}

void* tutti_alloc(tutti_group* group, size_t bytes) {
  std::byte* memory = group == nullptr ? nullptr : group->connection->allocate(bytes);
  if (memory == nullptr)
    remember(failure(
        TUTTI_RESOURCE_EXHAUSTED,
        "the segment has no room for " + std::to_string(bytes) + " bytes; raise segment_bytes"));
  return memory;
}

void tutti_free(tutti_group* group, void* memory) {
  if (group == nullptr || memory == nullptr) return;
  if (!group->connection->free(memory)) invalid("not memory of tutti_alloc(), or freed already");
}

tutti_code tutti_all_reduce(tutti_group* group, const void* in, void* out, size_t count,
                            tutti_dtype dtype, tutti_op op, const tutti_options* options,
                            tutti_work** work) {
  return run(group, {TUTTI_ALL_REDUCE, in, out, count, dtype, op, 0}, options, work);
}

tutti_code tutti_all_reduce_many(tutti_group* group, const void* const* ins, void* const* outs,
                                 const size_t* counts, size_t size, tutti_dtype dtype, tutti_op op,
                                 const tutti_options* options, tutti_work** work) {
  return run_list(group, {ins, outs, counts, size, dtype, op}, options, work);
}

tutti_code tutti_reduce(tutti_group* group, const void* in, void* out, size_t count,
                        tutti_dtype dtype, tutti_op op, int32_t root, const tutti_options* options,
                        tutti_work** work) {
  return run(group, {TUTTI_REDUCE, in, out, count, dtype, op, root}, options, work);
}

tutti_code tutti_broadcast(tutti_group* group, void* buffer, size_t count, tutti_dtype dtype,
                           int32_t root, const tutti_options* options, tutti_work** work) {
  return run(group, {TUTTI_BROADCAST, buffer, buffer, count, dtype, TUTTI_SUM, root}, options,
             work);
}

tutti_code tutti_all_gather(tutti_group* group, const void* in, void* out, size_t count,
                            tutti_dtype dtype, const tutti_options* options, tutti_work** work) {
  return run(group, {TUTTI_ALL_GATHER, in, out, count, dtype, TUTTI_SUM, 0}, options, work);
}

tutti_code tutti_reduce_scatter(tutti_group* group, const void* in, void* out, size_t count,
                                tutti_dtype dtype, tutti_op op, const tutti_options* options,
                                tutti_work** work) {
  return run(group, {TUTTI_REDUCE_SCATTER, in, out, count, dtype, op, 0}, options, work);
}

tutti_code tutti_barrier(tutti_group* group, const tutti_options* options, tutti_work** work) {
  return run(group, Operation{}, options, work);
}

tutti_code tutti_work_wait(tutti_work* work, int32_t timeout_ms) {
  if (work == nullptr) return invalid("the work is NULL");
  if (work->batch != nullptr) return remember(work->batch->wait(timeout_ms));
  return remember(work->connection->wait(*work->ticket, timeout_ms));
}

int tutti_work_done(tutti_work* work) {
  if (work == nullptr) return 1;
  if (work->batch != nullptr) return work->batch->done() ? 1 : 0;
  return work->connection->done(*work->ticket) ? 1 : 0;
}

void tutti_work_free(tutti_work* work) {
  if (work == nullptr) return;
  if (work->ticket != nullptr) work->connection->abandon(work->ticket);
  delete work;
}
