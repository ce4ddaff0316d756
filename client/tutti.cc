// The functions of tutti.h over the other files of the client.
#include "client/tutti.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "client/messages/messages.h"
#include "client/operations/exchange.h"
#include "client/operations/submission.h"
#include "client/operations/verification.h"
#include "proto/types.h"

struct tutti_group : tutti::client::Group {
  std::shared_ptr<tutti::client::Messenger> messenger;
  bool is_job = false;  // The group of the whole job, not a sub-group.
};

struct tutti_work {
  std::shared_ptr<tutti::client::Connection> connection;
  std::shared_ptr<tutti::client::TaskThread> completer;  // Of the group.
  std::shared_ptr<tutti::client::Awaitable> awaited;
  // An eventfd that tutti_work_fd() made. The completer writes to it, perhaps after the handle.
  std::shared_ptr<const tutti::Fd> ended;
  std::mutex ended_mutex{};  // Guards `ended`.
};

using tutti::invalid_argument;
using tutti::Status;
using tutti::client::Awaitable;
using tutti::client::CollectiveArgs;
using tutti::client::Connection;
using tutti::client::DeviceMemory;
using tutti::client::guarded;
using tutti::client::Messenger;
using tutti::client::ReceiveArgs;
using tutti::client::SendArgs;
using tutti::client::set_last_error;

namespace {

tutti_code invalid(const char* what) {
  return guarded([what] { return set_last_error(invalid_argument(what)); });
}

tutti_code no_group() { return invalid("the group is NULL; join first"); }

struct FreeWork {
  void operator()(tutti_work* work) const { tutti_work_free(work); }
};
// Allocated before the operation starts, so that nothing can fail between that and the handle.
using OwnedWork = std::unique_ptr<tutti_work, FreeWork>;

template <class Args>
tutti_code run(tutti_group* group, const Args& args, const tutti_options* options,
               tutti_work** work) {
  if (work != nullptr) *work = nullptr;
  if (group == nullptr) return no_group();
  return guarded([&] {
    if (work == nullptr) return set_last_error(tutti::client::run(*group, args, options, nullptr));
    auto op = std::make_shared<tutti::client::StartedOp>(group->connection, group->queue);
    OwnedWork made(new tutti_work{group->connection, group->completer, nullptr, nullptr});
    const Status started = tutti::client::run(*group, args, options, op->op(), &made->awaited);
    if (!started.ok()) return set_last_error(started);
    if (made->awaited == nullptr) made->awaited = std::move(op);
    *work = made.release();
    return TUTTI_OK;
  });
}

// Runs a collective with a count for each rank.
tutti_code run_with_counts(tutti_group* group, CollectiveArgs args, const size_t* counts,
                           const tutti_options* options, tutti_work** work) {
  if (counts == nullptr)
    args.fault = "counts is NULL; give the number of elements of each rank";
  else if (group != nullptr)
    args.counts = {counts, group->ranks.size()};
  return run(group, args, options, work);
}

// Sends or receives: `call` is given where to store the work, or null.
template <class Call>
tutti_code run_message(tutti_group* group, tutti_work** work, const Call& call) {
  if (work != nullptr) *work = nullptr;
  if (group == nullptr) return no_group();
  return guarded([&] {
    if (group->left)
      return set_last_error(tutti::failed_precondition("this rank left the group; join again"));
    if (work == nullptr) return set_last_error(call(*group->messenger, nullptr));
    OwnedWork made(new tutti_work{group->connection, group->completer, nullptr, nullptr});
    const Status started = call(*group->messenger, &made->awaited);
    if (!started.ok()) return set_last_error(started);
    *work = made.release();
    return TUTTI_OK;
  });
}

// For a call that a binding refuses.
tutti::Code refusal_code(tutti_code code) {
  const tutti::Code given = tutti::code_of(static_cast<int>(code));
  return given == tutti::Code::ok ? tutti::Code::unknown : given;
}

const char* text_of(const char* message) {
  return message == nullptr ? "the call was refused" : message;
}

// Completes a group whose connection, device_memory, rank and ranks are set.
void complete(tutti_group& group, const Connection::Subgroup& subgroup) {
  tutti::client::complete_group(group, subgroup);
  group.messenger = std::make_shared<tutti::client::Messenger>(group);
}

// This rank's position in the list of a sub-group's ranks. INVALID_ARGUMENT: the list is wrong.
Status find_member(const tutti_group& group, const uint32_t* ranks, size_t count,
                   uint32_t& position) {
  if (!group.is_job) return invalid_argument("a sub-group is made from the whole job's group");
  if (ranks == nullptr)
    return invalid_argument("ranks is NULL; list the job's ranks that form the sub-group");
  if (count > group.ranks.size())
    return invalid_argument("a sub-group of " + std::to_string(count) +
                            " ranks is larger than the job, which has " +
                            std::to_string(group.ranks.size()));
  const uint32_t* end = ranks + count;
  const uint32_t* self = std::find(ranks, end, group.rank);
  if (self == end)
    return invalid_argument("rank " + std::to_string(group.rank) +
                            " is not of the sub-group; only its members make it");
  position = static_cast<uint32_t>(self - ranks);
  return {};
}

tutti_code notify(tutti_work& work, std::function<void()> done) {
  if (const Status usable = work.connection->usable(); !work.connection->is_own_process())
    return set_last_error(usable);
  return set_last_error(work.completer->add([awaited = work.awaited, done = std::move(done)] {
    static_cast<void>(awaited->wait(-1));
    done();
  }));
}

}  // namespace

size_t tutti_dtype_size(tutti_dtype dtype) {
  const auto number = static_cast<uint32_t>(dtype);
  return number < tutti::kDtypes ? tutti::size_of(static_cast<tutti::Dtype>(number)) : 0;
}

tutti_code tutti_join(const tutti_join_options* options, tutti_group** group) {
  if (group == nullptr) return invalid("group is NULL: pass where to store the handle");
  *group = nullptr;
  return guarded([&] {
    tutti::client::JoinTarget target;
    if (Status s = tutti::client::read_target(options, target); !s.ok()) return set_last_error(s);
    auto joined = std::make_unique<tutti_group>();
    if (Status s = Connection::open(target, joined->connection); !s.ok())
      return set_last_error(with_origin(s, target));
    joined->device_memory = DeviceMemory::attach(joined->connection);
    joined->rank = target.rank;
    joined->is_job = true;
    for (uint32_t rank = 0; rank < target.world_size; ++rank) joined->ranks.push_back(rank);
    complete(*joined, {});
    *group = joined.release();
    return TUTTI_OK;
  });
}

tutti_code tutti_leave(tutti_group* group) {
  if (group == nullptr) return no_group();
  return guarded([group] {
    if (group->left)
      return set_last_error(tutti::failed_precondition("the group was left already"));
    if (group->is_job) group->connection->leave();
    group->left = true;
    return TUTTI_OK;
  });
}

void tutti_group_free(tutti_group* group) {
  if (group == nullptr) return;
  if (!group->left) tutti_leave(group);
  delete group;
}

tutti_code tutti_subgroup(tutti_group* group, const uint32_t* ranks, size_t count,
                          tutti_group** subgroup) {
  if (subgroup == nullptr) return invalid("subgroup is NULL: pass where to store the handle");
  *subgroup = nullptr;
  if (group == nullptr) return no_group();
  return guarded([&] {
    auto made = std::make_unique<tutti_group>();
    if (Status s = find_member(*group, ranks, count, made->rank); !s.ok()) return set_last_error(s);
    made->connection = group->connection;
    made->device_memory = group->device_memory;
    made->ranks.assign(ranks, ranks + count);
    const auto numbers =
        group->connection->make_subgroup({ranks, count}, group->connection->default_deadline());
    if (!numbers.ok()) return set_last_error(numbers.status());
    complete(*made, *numbers);
    *subgroup = made.release();
    return TUTTI_OK;
  });
}

int32_t tutti_rank(const tutti_group* group) {
  return group == nullptr ? -1 : static_cast<int32_t>(group->rank);
}

int32_t tutti_world_size(const tutti_group* group) {
  return group == nullptr ? 0 : static_cast<int32_t>(group->ranks.size());
}

const char* tutti_launcher(const tutti_group* group) {
  return group == nullptr ? "" : group->connection->target().launcher.c_str();
}

uint32_t tutti_epoch(const tutti_group* group) {
  return group == nullptr ? 0 : group->connection->epoch();
}

const char* tutti_host_of(const tutti_group* group, int32_t rank) {
  if (rank < 0 || rank >= tutti_world_size(group)) return nullptr;
  return group->connection->hosts()[group->ranks[static_cast<size_t>(rank)]].c_str();
}

uint64_t tutti_checksum(const void* memory, size_t bytes) {
  const std::span range(static_cast<const std::byte*>(memory), bytes);
  return tutti::client::checksum_of({&range, 1});
}

void* tutti_alloc(tutti_group* group, size_t bytes) {
  if (group == nullptr) {
    no_group();
    return nullptr;
  }
  return guarded([&]() -> void* {
    std::byte* memory = group->connection->own_memory().allocate(bytes);
    if (memory == nullptr)
      set_last_error(tutti::resource_exhausted(
          "the segment has no room for " + std::to_string(bytes) + " bytes; raise segment_bytes"));
    return memory;
  });
}

void tutti_free(tutti_group* group, void* memory) {
  if (memory == nullptr) return;
  if (group == nullptr) return void(no_group());
  guarded([&] {
    if (!group->connection->own_memory().free(memory))
      invalid("not memory of tutti_alloc(), or freed already");
  });
}

tutti_code tutti_all_reduce(tutti_group* group, const void* in, void* out, size_t count,
                            tutti_dtype dtype, tutti_op op, const tutti_options* options,
                            tutti_work** work) {
  return run(group, CollectiveArgs{TUTTI_ALL_REDUCE, in, out, count, dtype, op, 0}, options, work);
}

tutti_code tutti_all_reduce_many(tutti_group* group, const void* const* ins, void* const* outs,
                                 const size_t* counts, size_t size, tutti_dtype dtype, tutti_op op,
                                 const tutti_options* options, tutti_work** work) {
  return run(group, tutti::client::TensorListArgs{ins, outs, counts, size, dtype, op}, options,
             work);
}

tutti_code tutti_reduce(tutti_group* group, const void* in, void* out, size_t count,
                        tutti_dtype dtype, tutti_op op, int32_t root, const tutti_options* options,
                        tutti_work** work) {
  return run(group, CollectiveArgs{TUTTI_REDUCE, in, out, count, dtype, op, root}, options, work);
}

tutti_code tutti_broadcast(tutti_group* group, void* buffer, size_t count, tutti_dtype dtype,
                           int32_t root, const tutti_options* options, tutti_work** work) {
  return run(group, CollectiveArgs{TUTTI_BROADCAST, buffer, buffer, count, dtype, TUTTI_SUM, root},
             options, work);
}

tutti_code tutti_all_gather(tutti_group* group, const void* in, void* out, size_t count,
                            tutti_dtype dtype, const tutti_options* options, tutti_work** work) {
  return run(group, CollectiveArgs{TUTTI_ALL_GATHER, in, out, count, dtype, TUTTI_SUM, 0}, options,
             work);
}

tutti_code tutti_reduce_scatter(tutti_group* group, const void* in, void* out, size_t count,
                                tutti_dtype dtype, tutti_op op, const tutti_options* options,
                                tutti_work** work) {
  return run(group, CollectiveArgs{TUTTI_REDUCE_SCATTER, in, out, count, dtype, op, 0}, options,
             work);
}

tutti_code tutti_gather(tutti_group* group, const void* in, void* out, size_t count,
                        tutti_dtype dtype, int32_t root, const tutti_options* options,
                        tutti_work** work) {
  return run(group, CollectiveArgs{TUTTI_GATHER, in, out, count, dtype, TUTTI_SUM, root}, options,
             work);
}

tutti_code tutti_scatter(tutti_group* group, const void* in, void* out, size_t count,
                         tutti_dtype dtype, int32_t root, const tutti_options* options,
                         tutti_work** work) {
  return run(group, CollectiveArgs{TUTTI_SCATTER, in, out, count, dtype, TUTTI_SUM, root}, options,
             work);
}

tutti_code tutti_all_to_all(tutti_group* group, const void* in, void* out, size_t count,
                            tutti_dtype dtype, const tutti_options* options, tutti_work** work) {
  return run(group, CollectiveArgs{TUTTI_ALL_TO_ALL, in, out, count, dtype, TUTTI_SUM, 0}, options,
             work);
}

tutti_code tutti_all_gather_v(tutti_group* group, const void* in, void* out, const size_t* counts,
                              tutti_dtype dtype, const tutti_options* options, tutti_work** work) {
  return run_with_counts(group, {TUTTI_ALL_GATHER, in, out, 0, dtype, TUTTI_SUM, 0}, counts,
                         options, work);
}

tutti_code tutti_reduce_scatter_v(tutti_group* group, const void* in, void* out,
                                  const size_t* counts, tutti_dtype dtype, tutti_op op,
                                  const tutti_options* options, tutti_work** work) {
  return run_with_counts(group, {TUTTI_REDUCE_SCATTER, in, out, 0, dtype, op, 0}, counts, options,
                         work);
}

tutti_code tutti_all_to_all_v(tutti_group* group, const void* in, const size_t* in_counts,
                              void* out, const size_t* out_counts, tutti_dtype dtype,
                              const tutti_options* options, tutti_work** work) {
  return run(group, tutti::client::ExchangeArgs{in, in_counts, out, out_counts, dtype}, options,
             work);
}

tutti_code tutti_barrier(tutti_group* group, const tutti_options* options, tutti_work** work) {
  return run(group, CollectiveArgs{}, options, work);
}

tutti_code tutti_send(tutti_group* group, const void* in, size_t count, tutti_dtype dtype,
                      int32_t destination, uint64_t tag, const tutti_options* options,
                      tutti_work** work) {
  return run_message(group, work, [&](Messenger& messenger, std::shared_ptr<Awaitable>* started) {
    return messenger.send({in, count, dtype, destination, tag}, options, started);
  });
}

tutti_code tutti_recv(tutti_group* group, void* out, size_t count, tutti_dtype dtype,
                      int32_t source, uint64_t tag, const tutti_options* options,
                      tutti_work** work) {
  return run_message(group, work, [&](Messenger& messenger, std::shared_ptr<Awaitable>* started) {
    return messenger.receive({out, count, dtype, source, tag}, options, started);
  });
}

tutti_code tutti_refuse(tutti_group* group, tutti_collective collective, tutti_code code,
                        const char* message) {
  CollectiveArgs args{.collective = collective, .fault = text_of(message)};
  args.fault_code = refusal_code(code);
  if (static_cast<uint32_t>(collective) >= tutti::kCollectives)
    args = {.collective = TUTTI_BARRIER, .fault = "the call was refused for an unknown collective"};
  return run(group, args, nullptr, nullptr);
}

tutti_code tutti_refuse_send(tutti_group* group, int32_t destination, const uint64_t* tag,
                             tutti_code code, const char* message) {
  return run_message(group, nullptr, [&](Messenger& messenger, std::shared_ptr<Awaitable>*) {
    SendArgs args{.destination = destination, .tag = tag == nullptr ? 0 : *tag};
    args.any_tag = tag == nullptr;
    return messenger.refuse_send(args, Status(refusal_code(code), text_of(message)));
  });
}

tutti_code tutti_refuse_recv(tutti_group* group, int32_t source, const uint64_t* tag,
                             tutti_code code, const char* message) {
  return run_message(group, nullptr, [&](Messenger& messenger, std::shared_ptr<Awaitable>*) {
    ReceiveArgs args{.source = source, .tag = tag == nullptr ? 0 : *tag};
    args.any_tag = tag == nullptr;
    return messenger.refuse_receive(args, Status(refusal_code(code), text_of(message)));
  });
}

tutti_code tutti_work_wait(tutti_work* work, int32_t timeout_ms) {
  if (work == nullptr) return invalid("the work is NULL");
  return guarded([&] { return set_last_error(work->awaited->wait(timeout_ms)); });
}

int tutti_work_done(tutti_work* work) {
  if (work == nullptr) return 1;
  return guarded([work] { return work->awaited->poll() ? 1 : 0; });
}

tutti_code tutti_work_notify(tutti_work* work, void (*done)(void* argument), void* argument) {
  if (work == nullptr) return invalid("the work is NULL");
  if (done == nullptr) return invalid("there is no function to call");
  return guarded([&] { return notify(*work, [done, argument] { done(argument); }); });
}

int32_t tutti_work_source(tutti_work* work) {
  return work == nullptr ? -1 : work->awaited->source();
}

int tutti_work_fd(tutti_work* work) {
  if (work == nullptr) return invalid("the work is NULL"), -1;
  const std::lock_guard lock(work->ended_mutex);
  const tutti_code code = guarded([work] {
    if (work->ended != nullptr) return TUTTI_OK;
    auto ended = std::make_shared<const tutti::Fd>(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!ended->valid())
      return set_last_error(tutti::resource_exhausted(std::string("no descriptor can be made: ") +
                                                      std::strerror(errno)));
    const tutti_code added = notify(*work, [ended] { eventfd_write(ended->get(), 1); });
    if (added == TUTTI_OK) work->ended = std::move(ended);
    return added;
  });
  return code == TUTTI_OK ? work->ended->get() : -1;
}

void tutti_work_free(tutti_work* work) {
  if (work == nullptr) return;
  const std::unique_ptr<tutti_work> owned(work);
  if (work->awaited != nullptr) guarded([work] { work->awaited->abandon(); });
}
