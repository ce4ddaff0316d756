#include "daemon/group/epoch.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <string>
#include <utility>

#include "daemon/group/control.h"
#include "daemon/group/failures.h"
#include "daemon/group/limits.h"

namespace tutti {
namespace {

// How long the links of an ended epoch may still deliver its cause and send what they borrowed.
constexpr Millis kDrainTime{20};

int find_host(const std::vector<Host>& hosts, const std::string& name) {
  const auto found = std::ranges::find(hosts, name, &Host::name);
  require(found != hosts.end(), "a worker is in the roster it was given");
  return static_cast<int>(found - hosts.begin());
}

Strategies job_strategies(const Roster& roster) {
  const Result<Strategies> set = parse_strategies(roster.strategy);
  return set.ok() ? *set : Strategies();
}

constexpr uint64_t kOneSlice = uint64_t{1} << 62;

FollowerRules follower_rules(const Roster& roster, const EpochOptions& options,
                             const Engine& engine) {
  FollowerRules rules;
  rules.slice_bytes = options.slice_bytes;
  rules.job = job_strategies(roster);
  rules.automatic = [](Collective collective, uint64_t bytes, const Communicator& group) {
    return choose({{StrategyKind::centralized}, {}}, collective, bytes, group.topology()).global;
  };
  rules.blocker = [&engine, epoch = roster.epoch](const EpochOp& op) {
    const Engine::Blocker blocker = engine.blocker({epoch, op.group, op.number});
    return std::pair(blocker.what, blocker.rank);
  };
  return rules;
}

// A layout is a hash: the tensors of one rank must not be used with the counts of another unless
// those are the same.
bool have_equal_counts(const std::map<int, Call>& calls) {
  const auto& first = calls.begin()->second.counts;
  return std::ranges::all_of(calls, [&](const auto& call) {
    const auto& counts = call.second.counts;
    return (counts == nullptr) == (first == nullptr) && (first == nullptr || *counts == *first);
  });
}

// Replaces the culprit, a rank of the group, by the rank of the job.
Status with_job_rank(const Status& status, const Communicator& group, const Roster& roster) {
  const int rank = status.culprit_rank();
  if (status.ok() || rank < 0 || rank >= group.size()) return status;
  const int job_rank = group.members()[static_cast<size_t>(rank)];
  return {status.code(),
          status.message(),
          {job_rank, roster.ranks[static_cast<size_t>(job_rank)].host}};
}

// The same for operations that fail for the same reason. Without a culprit the message tells, but
// for the numbers in it, which differ from one operation to the next.
std::string cause_of(const Status& status) {
  const Culprit culprit = status.culprit();
  if (culprit != Culprit())
    return std::string(name_of(status.code())) + " " + std::to_string(culprit.rank) + " " +
           culprit.host;
  std::string cause = status.to_string();
  std::erase_if(cause, [](char letter) { return letter >= '0' && letter <= '9'; });
  return cause;
}

// An all_reduce writes results over windows that it has just read, which costs next to nothing
// where there are fewer: one window in their place took 1.03 times as long with 2 and 4, 0.95 with
// 6, and 0.9 with 8 (2 hosts that share two cores, 2 and 16 MiB).
constexpr int kReducedWindowsMin = 6;

// Results that several ranks here would copy from windows of their own go to one that all read.
void share_results(LocalPhase& local, const EpochOp& op, const Signature& signature,
                   Operation& operation) {
  const auto is_to_share = [](const RankBuffers& rank) {
    return rank.window_bytes != 0 && rank.out != nullptr;
  };
  const int windows_min = reduces(signature.collective) ? kReducedWindowsMin : 2;
  if (!is_common(signature.collective) ||
      std::ranges::count_if(operation.local, is_to_share) < windows_min)
    return;
  RankBuffers& first = *std::ranges::find_if(operation.local, is_to_share);
  const size_t element = size_of(signature.dtype);
  std::byte* const results = local.result_window(
      op, used_window_bytes(first.rows, first.window_bytes, signature.count * element));
  if (results == nullptr) return;
  for (RankBuffers& rank : operation.local)
    if (is_to_share(rank)) rank.out = nullptr;
  first.out = results + first.rows.out * element;
}

}  // namespace

HostEpoch::HostEpoch(EpochParts parts, Roster roster, const std::string& host,
                     const EpochOptions& options)
    : parts_(std::move(parts)),
      roster_(std::move(roster)),
      hosts_(hosts_of(roster_)),
      self_(find_host(hosts_, host)),
      name_(hosts_[static_cast<size_t>(self_)].name),
      options_(options),
      numbers_(roster_.ranks.size()),
      follower_(roster_, hosts_, self_, follower_rules(roster_, options_, parts_.engine)),
      batcher_(hosts_.size(), options_.slice_bytes,  // Fits a frame.
               [this](int to, const v1::ControlBatch& batch) {
                 links_.send_control(to, control_frame(roster_.epoch, batch));
               }),
      data_(parts_.loop, parts_.engine, links_, follower_, roster_, hosts_, options_.early_bytes),
      measuring_(parts_.tuner, hosts_, self_, options_.slice_bytes, data_.rates(),
                 [this](int to, v1::Control control) { batcher_.add(to, std::move(control)); }),
      gpu_link_(gpu_link_parts()),
      links_(parts_.loop, parts_.transport, roster_, hosts_, self_, *this) {
  if (self_ == 0) leader_.emplace(roster_, hosts_, job_strategies(roster_));
  links_.start();
  if (self_ == 0) return;
  v1::Control limits;
  *limits.mutable_rates() = limits_of(options_);
  batcher_.add(0, std::move(limits));
  batcher_.flush();
}

HostEpoch::~HostEpoch() {
  lifetime_.end();
  const Status ended = cause().ok() ? aborted("the epoch has ended") : cause();
  const bool is_idle = follower_.pending() == 0;
  gpu_link_.close();
  parts_.engine.abort(roster_.epoch, ended);
  if (!is_idle) gpu_link_.abort();
  for (const auto& [op, calls] : std::exchange(calls_, {})) parts_.local.complete(op, ended);
  parts_.loop.cancel(alarm_);
}

// ---- Ranks ----

void HostEpoch::submit(int job_rank, Call call) {
  const EpochOp op{call.group, call.number};
  const Communicator* const group = follower_.find(op.group);
  const std::optional<int> rank = group == nullptr ? std::nullopt : group->rank_of(job_rank);
  if (!rank || group->host_of(*rank) != self_)
    return refuse(op, not_found("this rank has no group " + std::to_string(op.group)));
  if (!cause().ok()) return refuse(op, cause());
  const uint64_t next = follower_.next(op.group, *rank);
  if (op.number < next)
    return refuse(op, invalid_argument(describe_rank(roster_, job_rank) + " makes call #" +
                                           std::to_string(op.number) + " where #" +
                                           std::to_string(next) + " is its next",
                                       {job_rank, name_}));
  const uint32_t timeout_ms = call.timeout_ms != 0 ? call.timeout_ms : options_.op_timeout_ms;
  const TimePoint now = Clock::now();
  const Follower::Call asked{call.signature, call.invalid,
                             std::max(now, call.started.value_or(now) + Millis(timeout_ms)),
                             timeout_ms, call.number};
  calls_[op].emplace(*rank, std::move(call));
  measuring_.report_rates(now);
  follower_.on_call(op.group, *rank, asked, now);
  run_actions();
}

Result<uint32_t> HostEpoch::subgroup(int rank, const std::vector<uint32_t>& ranks) {
  return make_group(numbers_.subgroup(rank, ranks));
}

Result<uint32_t> HostEpoch::channel(int rank, const std::vector<uint32_t>& ranks,
                                    uint64_t channel) {
  return make_group(numbers_.channel(rank, ranks, channel));
}

Result<uint32_t> HostEpoch::make_group(const Result<GroupNumbers::Asked>& asked) {
  if (!asked.ok()) return asked.status();
  if (Status made = follower_.make_group(asked->number, asked->members); !made.ok()) return made;
  if (const Status status = data_.on_group_made(asked->number); !status.ok())
    follower_.abort(status);
  run_actions();
  return asked->number;
}

void HostEpoch::leave(int rank, const Status& cause) {
  if (!cause.ok() && !follower_.is_gone(rank))
    spdlog::warn("job {} epoch {}: {}", roster_.job, roster_.epoch, cause.message());
  follower_.leave(rank, cause, Clock::now());
  run_actions();
}

void HostEpoch::abort(const Status& cause) {
  follower_.abort(cause);
  run_actions();
}

void HostEpoch::set_strategy(const Strategies& strategies) {
  if (leader_) leader_->set_job(strategies);
  run_actions();
}

bool HostEpoch::needed() const {
  return cause().ok() && !all_ranks_left() && (leader_ || follower_.pending() != 0);
}

EpochStats HostEpoch::stats() const {
  return {.sent_bytes = links_.sent_bytes(),
          .sent_frames = links_.sent_frames(),
          .received_bytes = received_bytes_,
          .links = links_.counts()};
}

// ---- Actions of Follower and Leader ----

// Performing an action may cause further ones; only the outermost call runs them, in order.
void HostEpoch::run_actions() {
  if (std::exchange(running_actions_, true)) return;
  for (bool more = true; more;) {
    const std::vector<Action> actions = follower_.take_actions();
    const std::vector<Send> sends = leader_ ? leader_->take_sends() : std::vector<Send>();
    more = !actions.empty() || !sends.empty();
    for (const Send& send : sends) send_to_follower(send);
    for (const Action& action : actions)
      std::visit([this](const auto& what) { perform(what); }, action);
    data_.retry_sends();
  }
  running_actions_ = false;
  batcher_.flush();
  set_alarm();
}

// From the follower to the leader.
void HostEpoch::perform(const Send& send) {
  if (!leader_) return batcher_.add(0, to_control(send.message));
  if (const Status status = leader_->on_message(self_, send.message, Clock::now()); !status.ok())
    follower_.abort(failures::lost(hosts_[static_cast<size_t>(self_)], status));
}

void HostEpoch::send_to_follower(const Send& send) {
  if (send.host == self_) return handle_as_follower(send.message);
  batcher_.add(send.host, to_control(send.message));
}

void HostEpoch::handle_as_follower(const Message& message) {
  const RankGone* const gone = std::get_if<RankGone>(&message);
  if (gone != nullptr && !gone->cause.ok() && !follower_.is_gone(gone->rank))
    spdlog::warn("job {} epoch {}: {}", roster_.job, roster_.epoch, gone->cause.message());
  if (const Query* const query = std::get_if<Query>(&message); query != nullptr)
    parts_.local.collect_requests(query->op);
  if (const Status status = follower_.on_message(message, Clock::now()); !status.ok())
    follower_.abort(failures::lost(hosts_.front(), status));
}

// The ranks learn of a failure, but not who looks at the node. Operations that fail one after the
// other for one cause are one line.
void HostEpoch::perform(const Complete& complete) {
  const auto ended = calls_.extract(complete.op);
  if (ended.empty()) return;
  if (!complete.status.ok() && log_limit_.may_log(cause_of(complete.status)))
    spdlog::warn("job {} epoch {}: an operation failed: {}", roster_.job, roster_.epoch,
                 complete.status.to_string());
  parts_.local.complete(complete.op, complete.status);
}

void HostEpoch::perform(const EndEpoch& end) {
  spdlog::warn("job {} epoch {} is over: {}", roster_.job, roster_.epoch, end.cause.to_string());
  gpu_link_.close();
  parts_.engine.abort(roster_.epoch, end.cause);
  gpu_link_.abort();  // After it: work that NCCL lets go on finds that it is cancelled.
  data_.drop_kept_frames();
  parts_.loop.at(Clock::now() + kDrainTime, lifetime_.guard([this, cause = end.cause] {
    if (!calls_.empty()) links_.abort(cause);
  }));
  parts_.local.on_over(end.cause);
}

// The alarm is only ever moved forward, so it may fire once for a timer that was withdrawn.
void HostEpoch::set_alarm() {
  std::optional<TimePoint> next = follower_.next_timer();
  const std::optional<TimePoint> other = leader_ ? leader_->next_timer() : std::nullopt;
  if (other && (!next || *other < *next)) next = other;
  if (!next || (alarm_ != 0 && alarm_at_ <= *next)) return;
  parts_.loop.cancel(alarm_);
  alarm_at_ = *next;
  alarm_ = parts_.loop.at(*next, [this] {
    alarm_ = 0;
    const TimePoint now = Clock::now();
    follower_.on_time(now);
    if (leader_) leader_->on_time(now);
    run_actions();
  });
}

std::unique_ptr<Epoch> make_epoch(const EpochParts& parts, Roster roster, const std::string& host,
                                  const EpochOptions& options) {
  return std::make_unique<HostEpoch>(parts, std::move(roster), host, options);
}

// ---- Operations ----

void HostEpoch::perform(const Start& start) {
  if (calls_.at(start.op).size() != follower_.find(start.op.group)->ranks_here().size())
    return follower_.abort(
        internal_error("a rank's call of an operation is missing; the board of host " + name_ +
                       " was overwritten"));
  if (let_ranks_fold(start)) return;
  if (!have_equal_counts(calls_.at(start.op)))
    return follower_.on_finished(
        start.op, internal_error("the ranks' counts differ though their layouts agree"));
  if (start.by_nccl && gpu_link_.link() == nullptr)
    return follower_.on_finished(start.op,
                                 internal_error("the leader asks for NCCL, which is not set up"));
  measuring_.on_started(start.op, Clock::now());
  parts_.local.on_started(start.op, start.signature, start.strategies);
  if (leader_ && !start.signature.on_device) choose_strategy(start);
  if (start.signature.on_device) offer_gpus(start);
  data_.on_started(start.op);
  parts_.engine.start(operation_of(start, calls_.at(start.op)));
}

// Hands an operation of ranks of this host alone to them. They complete their calls themselves.
bool HostEpoch::let_ranks_fold(const Start& start) {
  if (follower_.find(start.op.group)->hosts().size() != 1) return false;
  const Calls& calls = calls_.at(start.op);
  const bool ranks_only =
      std::ranges::any_of(calls, [](const auto& call) { return call.second.ranks_only; });
  const bool folded = parts_.local.let_ranks_fold(start.op);
  if (!folded && !ranks_only) return false;
  if (folded) calls_.erase(start.op);
  follower_.on_finished(start.op, folded ? Status()
                                         : internal_error("the ranks' requests changed after they "
                                                          "agreed"));
  return true;
}

void HostEpoch::perform(const Cancel& cancel) {
  data_.on_cancelled(cancel.op);
  parts_.engine.cancel(op_id(cancel.op), cancel.cause);
}

Operation HostEpoch::operation_of(const Start& start, const Calls& calls) {
  const Signature& signature = start.signature;
  Operation operation;
  operation.id = op_id(start.op);
  const Communicator& group = *follower_.find(start.op.group);
  operation.execution =
      plans_.find_or_make(start.op.group, group, signature, start.strategies, start.movement.raw);
  operation.dtype = signature.dtype;
  operation.op = signature.op;
  operation.count = signature.collective == Collective::barrier ? 0 : signature.count;
  operation.counts = calls.begin()->second.counts;
  operation.slice_bytes = start.movement.slice_bytes;
  operation.agreement = start.agreement;
  for (const auto& [rank, call] : calls) {
    operation.local.push_back({rank, call.in, call.out, call.window_bytes, call.filled, call.rows});
    if (call.device) {
      operation.local.back().gpu = call.device->gpu;
      operation.local.back().words = call.device->words;
      operation.local.back().factor = call.device->asked.factor;
      operation.local.back().listed = call.device->tensors;
    }
    operation.memory.push_back(call.memory);
    if (call.window_bytes != 0 && !operation.release_window)
      operation.release_window = lifetime_.guard(
          [this, op = start.op](uint64_t blocks) { parts_.local.release_window(op, blocks); });
  }
  share_results(parts_.local, start.op, signature, operation);
  if (signature.on_device) operation.gpus = parts_.gpus();
  if (!signature.on_device) operation.helpers = parts_.local.helpers_of(start.op);
  if (start.by_nccl) operation.nccl = gpu_link_.link();
  // A GPU needs no slices; other hosts do.
  if (signature.on_device && operation.execution->plan.hosts.size() == 1)
    operation.slice_bytes = kOneSlice;
  operation.sender = &data_;
  operation.mismatch = lifetime_.guard([this, op = start.op](int from) {
    follower_.on_mismatch(op, follower_.find(op.group)->hosts()[static_cast<size_t>(from)]);
    run_actions();
  });
  operation.done =
      lifetime_.guard([this, op = start.op](const Status& status) { on_done(op, status); });
  return operation;
}

void HostEpoch::on_done(const EpochOp& op, const Status& status) {
  measuring_.on_ended(op, Clock::now());
  parts_.local.on_ended(op, status.code());
  data_.on_ended(op);
  follower_.on_finished(op, with_job_rank(status, *follower_.find(op.group), roster_));
  run_actions();
}

// ---- Frames. A peer that sends an invalid one ends the epoch, by name. ----

void HostEpoch::add_link(const std::string& name, std::shared_ptr<Link> link,
                         std::shared_ptr<LoopHandler> handler) {
  for (int index = 0; index < static_cast<int>(hosts_.size()); ++index)
    if (hosts_[static_cast<size_t>(index)].name == name && index != self_)
      return links_.add_link(index, std::move(link), std::move(handler));
  link->close(unauthenticated("host " + name + " is not in this job's roster"));
}

void HostEpoch::on_frame(int from, Frame frame) {
  if (!cause().ok()) return;
  received_bytes_ += frame.payload.bytes() + sizeof(FrameHeader);
  const Status status = frame.header.kind == FrameKind::control
                            ? on_controls(from, frame)
                            : data_.on_frame(from, std::move(frame));
  if (!status.ok()) follower_.abort(failures::lost(hosts_[static_cast<size_t>(from)], status));
  run_actions();
}

void HostEpoch::on_lost(int host, Status cause) {
  if (follower_.on_lost(host, cause) && leader_) leader_->on_host_departed(host);
  run_actions();
}

// ---- Messages ----

Status HostEpoch::on_controls(int host, const Frame& frame) {
  const Result<v1::ControlBatch> read = read_controls(frame);
  if (!read.ok()) return read.status();
  for (const v1::Control& control : read->controls()) {
    if (!cause().ok()) return {};
    if (Status status = on_control(host, control); !status.ok()) return status;
    run_actions();
  }
  return {};
}

Status HostEpoch::on_control(int host, const v1::Control& control) {
  if (control.has_probe()) return measuring_.on_probe(host, control.probe(), Clock::now());
  if (control.has_nccl()) return gpu_link_.on_message(host, control.nccl());
  if (control.has_rates()) {
    const Status differ = compare_limits(roster_.job, {name_, limits_of(options_)},
                                         {hosts_[static_cast<size_t>(host)].name, control.rates()});
    if (!differ.ok()) follower_.abort(differ);
    return measuring_.on_rates(host, control.rates());
  }
  const Result<Message> message = read_message(control);
  return message.ok() ? on_message(host, *message) : message.status();
}

Status HostEpoch::on_message(int host, const Message& message) {
  if (const auto* const want = std::get_if<WantStarted>(&message))
    return data_.on_message(host, *want);
  if (const auto* const started = std::get_if<Started>(&message))
    return data_.on_message(host, *started);
  if (leader_) return leader_->on_message(host, message, Clock::now());
  if (host != 0) return data_loss("a message that only the leader sends");
  handle_as_follower(message);
  return {};
}

// ---- NCCL ----

GpuLink::Parts HostEpoch::gpu_link_parts() {
  const auto send = [this](int to, const v1::Nccl& message) {
    v1::Control control;
    *control.mutable_nccl() = message;
    batcher_.add(to, std::move(control));
    run_actions();
  };
  const auto adopt = [this] {
    leader_->use_nccl();
    run_actions();
  };
  const auto fail = [this](const Status& cause) {
    follower_.abort(cause);
    run_actions();
  };
  return {.loop = parts_.loop,
          .job = roster_.job,
          .hosts = hosts_,
          .self = self_,
          .choice = options_.gpu_link,
          .nccl = parts_.nccl,
          .failure = parts_.nccl_failure,
          .reserve =
              [this](const NcclLink& link) { return parts_.engine.reserve(*parts_.gpus(), link); },
          .send = send,
          .adopt = adopt,
          .fail = fail};
}

// With the first operation on GPUs of the whole job each host says whether it can use NCCL.
void HostEpoch::offer_gpus(const Start& start) {
  if (start.op.group != 0 || hosts_.size() == 1) return;
  std::set<int> gpus;
  for (const auto& [rank, call] : calls_.at(start.op))
    if (call.device) gpus.insert(call.device->gpu);
  gpu_link_.offer(parts_.gpus(), gpus);
}

// Another strategy than the one in use is proposed like any change.
void HostEpoch::choose_strategy(const Start& start) {
  const uint32_t number = start.op.group;
  const Strategies& named = start.signature.strategies;
  const Strategies& asked = named == Strategies() ? follower_.table(number).job : named;
  if (const auto better = measuring_.recommend(start.op, *follower_.find(number), start.signature,
                                               start.strategies, asked, Clock::now()))
    leader_->set_measured(number, start.signature.collective, size_class(start.signature), *better);
}

}  // namespace tutti
