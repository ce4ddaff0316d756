#include "client/faces/burn/collective.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <vector>

#include "client/faces/burn/collective_error.h"

namespace tutti::burn {
namespace {

std::string peer(PeerId id) { return "peer " + std::to_string(id); }

std::chrono::steady_clock::time_point deadline_after(int32_t timeout_ms) {
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
}

// What is left to an operation among processes. Another process may wait for its own peers for the
// whole timeout before it takes part, if only to say that one is missing.
int32_t left_ms(std::span<Call* const> calls, int32_t timeout_ms) {
  const auto first = (*std::ranges::min_element(calls, {}, &Call::called))->called;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(
      first + 2 * std::chrono::milliseconds(timeout_ms) - std::chrono::steady_clock::now());
  return static_cast<int32_t>(std::clamp<int64_t>(left.count(), 1, INT32_MAX));
}

// All processes must have the same strategies among them.
std::string describe_global(const CollectiveConfig& config) {
  return "register with global strategies " + to_string(config.global_all_reduce_strategy) + ", " +
         to_string(config.global_reduce_strategy) + ", " +
         to_string(config.global_broadcast_strategy);
}

}  // namespace

Status Collective::validate_registration(PeerId id, const CollectiveConfig& config) const {
  if (Status status = validate(config); !status.ok()) return status;
  if (members_.contains(id) || registering_.contains(id))
    return error_of(CollectiveError::multiple_register,
                    peer(id) + " is registered already; finish it first");
  const size_t present = members_.size() + registering_.size();
  if (present == 0) return {};
  if (config != config_)
    return error_of(CollectiveError::register_params_mismatch,
                    peer(id) + ": " + difference(config_, config) +
                        ", as the first peer has it; give all peers the same config");
  if (present < config_.num_devices) return {};
  return error_of(CollectiveError::register_params_mismatch,
                  peer(id) + ": num_devices=" + std::to_string(config_.num_devices) +
                      " peers are registered already; raise num_devices");
}

Status Collective::register_peer(PeerId id, const CollectiveConfig& config) {
  Lock lock(mutex_);
  if (Status status = validate_registration(id, config); !status.ok()) return status;
  if (members_.empty() && registering_.empty()) config_ = config;
  ever_registered_ = true;
  Registration own;
  registering_[id] = &own;
  const size_t present = members_.size() + registering_.size();
  if (present == config_.num_devices) complete_registration(lock);
  const auto deadline = deadline_after(options_.timeout_ms);
  if (changed_.wait_until(lock, deadline, [&] { return own.done || joining_; }))
    changed_.wait(lock, [&] { return own.done; });
  if (own.done) return own.status;
  registering_.erase(id);
  return {Code::deadline_exceeded, name_of(CollectiveError::other) + ": " +
                                       std::to_string(members_.size() + registering_.size() + 1) +
                                       " of num_devices=" + std::to_string(config_.num_devices) +
                                       " peers have registered in time; start the others"};
}

// Joins the other processes without the lock, if there are any.
void Collective::complete_registration(Lock& lock) {
  const bool alone = options_.group == nullptr && config_.num_nodes.value_or(1) == 1;
  if (group_ != nullptr || alone) return end_registration({});
  joining_ = true;
  Group group;
  lock.unlock();  // The config does not change while peers register.
  const Status status = no_throw([&] {
    Result<Group> joined = join(config_);
    if (!joined.ok()) return named(joined.status());
    group = *std::move(joined);
    return Status();
  });
  lock.lock();
  joining_ = false;
  if (status.ok()) group_ = std::move(group);
  end_registration(status);
}

// Tells all that register, which become members unless they failed.
void Collective::end_registration(const Status& status) {
  for (auto& [id, registration] : registering_) {
    registration->status = no_throw([&, peer = id] {
      if (status.ok()) members_[peer] = false;
      return status;
    });
    registration->done = true;
  }
  registering_.clear();
  changed_.notify_all();
}

Result<Collective::Group> Collective::join(const CollectiveConfig& config) const {
  Group group(options_.group, [](tutti_group*) {});
  if (options_.group == nullptr) {
    const std::string job = job_name("burn-", *config.global_address);
    tutti_join_options given = tutti_join_defaults();
    if (std::getenv("TUTTI_JOB") == nullptr) given.job = job.c_str();
    given.world_size = static_cast<int32_t>(*config.num_nodes);
    given.timeout_ms = options_.timeout_ms;
    tutti_group* joined = nullptr;
    const Status status = status_of(tutti_join(&given, &joined));
    if (!status.ok()) return global_error(status);
    group = Group(joined, tutti_group_free);
  }
  const auto size = static_cast<uint32_t>(tutti_world_size(group.get()));
  if (config.num_nodes.value_or(size) != size)
    return error_of(CollectiveError::invalid_config,
                    "num_nodes=" + std::to_string(*config.num_nodes) + ", but the group has " +
                        std::to_string(size) + " ranks; make both equal");
  const Communicator communicator(group.get(), {options_.timeout_ms, ""});
  const Status agreed = agree(communicator, Description{describe_global(config)}).status();
  if (agreed.code() == Code::invalid_argument)
    return error_of(CollectiveError::register_params_mismatch, agreed.message());
  if (!agreed.ok()) return global_error(agreed);
  return group;
}

Result<Tensor> Collective::all_reduce(PeerId id, const Tensor& tensor, ReduceOperation op) {
  Call call;
  call.peer = id;
  call.kind = Call::Kind::all_reduce;
  call.op = op;
  call.tensor = tensor;
  if (Status status = enter(call); !status.ok()) return status;
  return *std::move(call.result);
}

Result<std::optional<Tensor>> Collective::reduce(PeerId id, const Tensor& tensor,
                                                 ReduceOperation op, PeerId root) {
  Call call;
  call.peer = id;
  call.kind = Call::Kind::reduce;
  call.op = op;
  call.root = root;
  call.tensor = tensor;
  if (Status status = enter(call); !status.ok()) return status;
  return std::move(call.result);
}

Result<Tensor> Collective::broadcast(PeerId id, const std::optional<Tensor>& tensor) {
  Call call;
  call.peer = id;
  call.kind = Call::Kind::broadcast;
  call.tensor = tensor;
  if (Status status = enter(call); !status.ok()) return status;
  return *std::move(call.result);
}

Status Collective::refuse(PeerId id, const Status& own) {
  Call call;
  call.peer = id;
  call.refused = own;
  return enter(call);
}

Status Collective::validate_call(const Call& call) const {
  const auto found = members_.find(call.peer);
  if (found == members_.end())
    return error_of(CollectiveError::register_not_first_operation,
                    peer(call.peer) + " is not registered; call register first");
  if (!found->second && !calls_.contains(call.peer)) return {};
  return error_of(CollectiveError::other,
                  peer(call.peer) + " is in another call; wait for its result first");
}

// Waits for the other peers; the last one runs the operation for all. If they do not come in time,
// the one that has waited for longest runs it as failed.
Status Collective::enter(Call& call) {
  Lock lock(mutex_);
  if (Status status = validate_call(call); !status.ok()) return status;
  if (const auto owed = owed_.find(call.peer); owed != owed_.end()) {
    Status status = std::move(owed->second.front());
    owed->second.pop_front();
    if (owed->second.empty()) owed_.erase(owed);
    return status;
  }
  calls_[call.peer] = &call;
  if (all_called()) execute(lock);
  const auto waits = [&] {
    const auto found = calls_.find(call.peer);
    return found != calls_.end() && found->second == &call;
  };
  if (!changed_.wait_until(lock, deadline_after(options_.timeout_ms), [&] { return !waits(); }))
    execute(lock, no_throw([&] { return miss_the_others(); }));
  changed_.wait(lock, [&] { return call.done; });  // Bounded by the group's timeouts.
  return call.status;
}

// The error of an operation to which some have not come, which owes it to them.
Status Collective::miss_the_others() {
  std::string missing;
  for (const auto& [id, running] : members_)
    if (!calls_.contains(id)) missing += (missing.empty() ? "" : ", ") + std::to_string(id);
  const Status late = deadline_exceeded(name_of(CollectiveError::other) +
                                        ": peers that have not called in time: " + missing +
                                        "; every peer must make the same calls");
  for (const auto& [id, running] : members_)
    if (!calls_.contains(id)) owed_[id].push_back(late);
  return late;
}

// Runs the operation of the peers that wait, without the lock. With an error of their own it fails,
// here and on the other nodes, which must not be a call behind.
void Collective::execute(Lock& lock, const Status& own) {
  std::map<PeerId, Call*> calls;  // A fault must leave none in `calls_`.
  calls.swap(calls_);
  for (const auto& [id, call] : calls) members_.find(id)->second = true;
  const Group group = group_;
  const Status status = no_throw([&] {
    const CollectiveConfig config = config_;
    std::vector<Call*> by_id;
    for (const auto& [id, call] : calls) by_id.push_back(call);
    const bool several = group != nullptr && tutti_world_size(group.get()) > 1;
    lock.unlock();
    return named(run_operation({config, several ? group.get() : nullptr,
                                left_ms(by_id, options_.timeout_ms), options_.reproducible},
                               by_id, own));
  });
  if (!lock.owns_lock()) lock.lock();
  for (const auto& [id, call] : calls) {
    call->status = no_throw([&] { return status; });
    call->done = true;
    if (const auto found = members_.find(id); found != members_.end()) found->second = false;
  }
  changed_.notify_all();
}

Status Collective::finish_collective(PeerId id) {
  Lock lock(mutex_);
  if (!ever_registered_)
    return error_of(CollectiveError::register_not_first_operation,
                    "no peer is registered; call register first");
  const auto found = members_.find(id);
  if (found == members_.end())
    return error_of(CollectiveError::multiple_unregister,
                    peer(id) + " is not registered, or has finished already");
  if (found->second || calls_.contains(id))
    return error_of(CollectiveError::other, peer(id) + " is in a call; wait for its result first");
  members_.erase(found);
  owed_.erase(id);
  Group left;
  if (members_.empty()) left.swap(group_);
  if (all_called()) execute(lock);
  lock.unlock();
  return {};
}

void Collective::reset_collective() {
  Lock lock(mutex_);
  const Status reset =
      error_of(CollectiveError::local_server_missing, "the collective was reset; register again");
  for (auto& [id, call] : calls_) {
    call->status = reset;
    call->done = true;
  }
  calls_.clear();
  members_.clear();
  owed_.clear();
  Group left;
  left.swap(group_);
  if (!joining_) end_registration(reset);
  changed_.notify_all();
  lock.unlock();
}

void Collective::leave_job() {
  const Lock lock(mutex_);
  if (options_.group == nullptr && group_ != nullptr) tutti_leave(group_.get());
}

}  // namespace tutti::burn
