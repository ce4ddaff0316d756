#include "daemon/group/epoch.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <tuple>

#include "daemon/group/control.h"
#include "daemon/group/failures.h"

namespace tutti {
namespace {

// How long the links of an ended epoch may still deliver its cause and send what they borrowed.
constexpr Millis kDrainTime{20};

int find_host(const std::vector<Host>& hosts, const std::string& name) {
  const auto found = std::ranges::find(hosts, name, &Host::name);
  require(found != hosts.end(), "a worker is in the roster it was given");
  return static_cast<int>(found - hosts.begin());
}

uint32_t left_ms(uint32_t timeout_ms, uint32_t waited_ms) {
  return timeout_ms > waited_ms ? timeout_ms - waited_ms : 0;
}

Strategies job_strategies(const Roster& roster) {
  const Result<Strategies> set = parse_strategies(roster.strategy);
  return set.ok() ? *set : Strategies();
}

constexpr uint64_t kOneSlice = uint64_t{1} << 62;
constexpr size_t kExecutionPlansMax = 256;
constexpr uint64_t kProbeBytes = uint64_t{256} << 10;

// The same for all hosts on one machine: derived from its boot id.
uint64_t machine_number() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return boot.empty() ? 0 : std::hash<std::string>{}(boot) | 1;
}

}  // namespace

HostEpoch::HostEpoch(EpochParts parts, Roster roster, const std::string& host,
                     const EpochOptions& options)
    : parts_(std::move(parts)),
      roster_(std::move(roster)),
      hosts_(hosts_of(roster_)),
      self_(find_host(hosts_, host)),
      options_(options),
      member_(roster_, hosts_, self_, rules(job_strategies(roster_))),
      batcher_(hosts_.size(), options_.slice_bytes,  // Fits a frame.
               [this](int to, const v1::ControlBatch& batch) {
                 links_.send_control(to, control_frame(roster_.epoch, batch));
               }),
      data_(parts_.loop, parts_.engine, links_, member_, roster_, hosts_, options_.early_bytes),
      gpu_link_(gpu_link_parts()),
      links_(parts_.loop, parts_.transport, roster_, hosts_, self_, *this) {
  machine_.set_machine(machine_number());
  machine_.set_cores(static_cast<uint32_t>(sysconf(_SC_NPROCESSORS_ONLN)));  // Not only our own.
  if (self_ == 0) {
    leader_.emplace(roster_, hosts_, job_strategies(roster_));
    make_adviser();
  }
  links_.start();
  if (self_ != 0) send_limits();
}

HostEpoch::~HostEpoch() {
  *alive_ = false;
  const Status ended = cause().ok() ? aborted("the epoch has ended") : cause();
  const bool is_idle = member_.pending() == 0;
  gpu_link_.close();
  parts_.engine.abort(roster_.epoch, ended);
  if (!is_idle) gpu_link_.abort();
  for (const auto& [key, calls] : std::exchange(calls_, {}))
    parts_.local.complete(key.group, key.number, ended);
  parts_.loop.cancel(alarm_);
}

MemberRules HostEpoch::rules(const Strategies& job) {
  MemberRules rules;
  rules.slice_bytes = options_.slice_bytes;
  rules.job = job;
  rules.automatic = [](Collective collective, uint64_t bytes, const Communicator& group) {
    return choose({{StrategyKind::centralized}, {}}, collective, bytes, group.topology()).global;
  };
  rules.blocker = [this](const Key& key) {
    const Engine::Blocker blocker = parts_.engine.blocker(engine_key(key));
    return std::pair(blocker.what, blocker.rank);
  };
  return rules;
}

// ---- Ranks ----

void HostEpoch::submit(int job_rank, Call call) {
  const Key key{call.group, call.number};
  const Communicator* const group = member_.find(key.group);
  const std::optional<int> rank = group == nullptr ? std::nullopt : group->rank_of(job_rank);
  if (!rank || group->host_of(*rank) != self_)
    return refuse(key, not_found("this rank has no group " + std::to_string(key.group)));
  if (!cause().ok()) return refuse(key, cause());
  const uint64_t next = member_.next(key.group, *rank);
  if (key.number < next)
    return refuse(key, invalid_argument(describe_rank(roster_, job_rank) + " makes call #" +
                                            std::to_string(key.number) + " where #" +
                                            std::to_string(next) + " is its next",
                                        {job_rank, host(self_).name}));
  const uint32_t timeout_ms = call.timeout_ms != 0 ? call.timeout_ms : options_.op_timeout_ms;
  const TimePoint now = Clock::now();
  const Member::Call asked{call.signature, call.invalid,
                           now + Millis(left_ms(timeout_ms, call.waited_ms)), timeout_ms,
                           call.number};
  calls_[key].emplace(*rank, std::move(call));
  send_rates();
  member_.on_call(key.group, *rank, asked, now);
  run_actions();
}

Result<uint32_t> HostEpoch::subgroup(int rank, const std::vector<uint32_t>& ranks) {
  const Result<Members> members = subgroup_members(roster_.ranks.size(), rank, ranks);
  if (!members.ok()) return members.status();
  const auto known = subgroup_counts_.find(*members);
  const std::map<int, uint32_t> none;
  const std::map<int, uint32_t>& asked = known == subgroup_counts_.end() ? none : known->second;
  const auto own = asked.find(rank);
  const uint32_t nth = own == asked.end() ? 0 : own->second;
  const bool fresh = std::ranges::all_of(
      asked, [&](const auto& other) { return other.first == rank || other.second <= nth; });
  // Checked first, so that a rank that asks for ever leaves nothing behind.
  if (Status s = check_room_for_group(); fresh && !s.ok()) return s;
  subgroup_counts_[*members][rank] = nth + 1;
  return make_group(group_number(*members, nth), *members, fresh);
}

Result<uint32_t> HostEpoch::channel(int rank, const std::vector<uint32_t>& ranks,
                                    uint64_t channel) {
  const Result<Members> members = subgroup_members(roster_.ranks.size(), rank, ranks);
  if (!members.ok()) return members.status();
  if (members->size() != 2)
    return invalid_argument("messages are between two ranks, not " +
                            std::to_string(members->size()));
  const uint32_t number = channel_number(*members, channel);
  const bool fresh = !channels_.contains(number);
  if (Status s = check_room_for_group(); fresh && !s.ok()) return s;
  channels_.insert(number);
  return make_group(number, *members, fresh);
}

Status HostEpoch::check_room_for_group() const {
  if (subgroups_ + 1 < kGroupsMax) return {};
  return resource_exhausted("this epoch has " + std::to_string(kGroupsMax) +
                            " groups already, of which each sub-group is one, and each pair of "
                            "ranks of which one sends to the other; make sub-groups once and keep "
                            "them");
}

Result<uint32_t> HostEpoch::make_group(uint32_t number, const Members& members, bool fresh) {
  if (Status made = member_.make_group(number, members); !made.ok()) return made;
  subgroups_ += fresh;
  if (const Status status = data_.on_group_made(number); !status.ok()) member_.abort(status);
  run_actions();
  return number;
}

void HostEpoch::leave(int rank, const Status& cause) {
  if (!cause.ok() && !member_.is_gone(rank))
    spdlog::warn("job {} epoch {}: {}", roster_.job, roster_.epoch, cause.message());
  member_.leave(rank, cause);
  run_actions();
}

void HostEpoch::abort(const Status& cause) {
  member_.abort(cause);
  run_actions();
}

void HostEpoch::set_strategy(const Strategies& strategies) {
  if (leader_) leader_->set_job(strategies);
  run_actions();
}

bool HostEpoch::needed() const {
  return cause().ok() && !all_ranks_left() && (leader_ || member_.pending() != 0);
}

EpochStats HostEpoch::stats() const {
  return {.sent_bytes = links_.sent_bytes(),
          .sent_frames = links_.sent_frames(),
          .received_bytes = received_bytes_};
}

// ---- Actions of Member and Leader ----

// Performing an action may cause further ones; only the outermost call runs them, in order.
void HostEpoch::run_actions() {
  if (std::exchange(running_actions_, true)) return;
  for (bool more = true; more;) {
    const std::vector<Action> actions = member_.take_actions();
    const std::vector<Send> sends = leader_ ? leader_->take_sends() : std::vector<Send>();
    more = !actions.empty() || !sends.empty();
    for (const Send& send : sends) send_to_member(send);
    for (const Action& action : actions)
      std::visit([this](const auto& what) { perform(what); }, action);
    data_.retry_sends();
  }
  running_actions_ = false;
  batcher_.flush();
  set_alarm();
}

// From the member to the leader.
void HostEpoch::perform(const Send& send) {
  if (!leader_) return batcher_.add(0, to_control(send.message));
  if (const Status status = leader_->on_message(self_, send.message, Clock::now()); !status.ok())
    member_.abort(failures::lost(host(self_), status));
}

void HostEpoch::send_to_member(const Send& send) {
  if (send.host == self_) return handle_as_member(send.message);
  batcher_.add(send.host, to_control(send.message));
}

void HostEpoch::handle_as_member(const Message& message) {
  const RankGone* const gone = std::get_if<RankGone>(&message);
  if (gone != nullptr && !gone->cause.ok() && !member_.is_gone(gone->rank))
    spdlog::warn("job {} epoch {}: {}", roster_.job, roster_.epoch, gone->cause.message());
  if (const Query* const query = std::get_if<Query>(&message); query != nullptr)
    parts_.local.collect_requests(query->key.group, query->key.number);
  if (const Status status = member_.on_message(message, Clock::now()); !status.ok())
    member_.abort(failures::lost(hosts_.front(), status));
}

void HostEpoch::perform(const Complete& complete) {
  const auto ended = calls_.extract(complete.key);
  if (!ended.empty())
    parts_.local.complete(complete.key.group, complete.key.number, complete.status);
}

void HostEpoch::perform(const EndEpoch& end) {
  spdlog::warn("job {} epoch {} is over: {}", roster_.job, roster_.epoch, end.cause.to_string());
  gpu_link_.close();
  parts_.engine.abort(roster_.epoch, end.cause);
  gpu_link_.abort();  // After it: work that NCCL lets go on finds that it is cancelled.
  data_.drop_kept_frames();
  parts_.loop.at(Clock::now() + kDrainTime, [this, alive = alive_, cause = end.cause] {
    if (*alive && !calls_.empty()) links_.abort(cause);
  });
  parts_.local.on_over(end.cause);
}

// The alarm is only ever moved forward, so it may fire once for a timer that was withdrawn.
void HostEpoch::set_alarm() {
  std::optional<TimePoint> next = member_.next_timer();
  const std::optional<TimePoint> other = leader_ ? leader_->next_timer() : std::nullopt;
  if (other && (!next || *other < *next)) next = other;
  if (!next || (alarm_ != 0 && alarm_at_ <= *next)) return;
  parts_.loop.cancel(alarm_);
  alarm_at_ = *next;
  alarm_ = parts_.loop.at(*next, [this] {
    alarm_ = 0;
    const TimePoint now = Clock::now();
    member_.on_time(now);
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
  if (calls_.at(start.key).size() != member_.find(start.key.group)->local_ranks().size())
    return member_.abort(
        internal_error("a rank's call of an operation is missing; the board of host " +
                       host(self_).name + " was overwritten"));
  if (let_ranks_fold(start)) return;
  if (!have_equal_counts(calls_.at(start.key)))
    return member_.on_finished(
        start.key, internal_error("the ranks' counts differ though their layouts agree"));
  if (start.by_nccl && gpu_link_.link() == nullptr)
    return member_.on_finished(start.key,
                               internal_error("the leader asks for NCCL, which is not set up"));
  op_clock_.started({start.key.group, start.key.number}, Clock::now());
  parts_.local.on_started(start.key.group, start.key.number, start.signature, start.strategies);
  if (leader_ && !start.signature.on_device) ask_adviser(start);
  if (start.signature.on_device) offer_gpus(start);
  data_.on_started(start.key);
  parts_.engine.start(operation_of(start, calls_.at(start.key)));
}

// A layout is a hash: the tensors of one rank must not be used with the counts of another unless
// those are the same.
bool HostEpoch::have_equal_counts(const Calls& calls) const {
  const auto& first = calls.begin()->second.counts;
  return std::ranges::all_of(calls, [&](const auto& call) {
    const auto& counts = call.second.counts;
    return (counts == nullptr) == (first == nullptr) && (first == nullptr || *counts == *first);
  });
}

// Hands an operation of ranks of this host alone to them. They complete their calls themselves.
bool HostEpoch::let_ranks_fold(const Start& start) {
  if (member_.find(start.key.group)->hosts().size() != 1) return false;
  const Calls& calls = calls_.at(start.key);
  const bool ranks_only =
      std::ranges::any_of(calls, [](const auto& call) { return call.second.ranks_only; });
  const bool folded = parts_.local.let_ranks_fold(start.key.group, start.key.number);
  if (!folded && !ranks_only) return false;
  if (folded) calls_.erase(start.key);
  member_.on_finished(start.key, folded ? Status()
                                        : internal_error("the ranks' requests changed after they "
                                                         "agreed"));
  return true;
}

void HostEpoch::perform(const Cancel& cancel) {
  data_.on_cancelled(cancel.key);
  parts_.engine.cancel(engine_key(cancel.key), cancel.cause);
}

Operation HostEpoch::operation_of(const Start& start, const Calls& calls) {
  const Signature& signature = start.signature;
  Operation operation;
  operation.key = engine_key(start.key);
  operation.execution = execution(start);
  operation.dtype = signature.dtype;
  operation.op = signature.op;
  operation.count = signature.collective == Collective::barrier ? 0 : signature.count;
  operation.counts = calls.begin()->second.counts;
  operation.slice_bytes = options_.slice_bytes;
  operation.agreement = start.agreement;
  for (const auto& [rank, call] : calls) {
    operation.local.push_back({rank, call.in, call.out, call.window_bytes, call.filled});
    if (call.device) {
      operation.local.back().gpu = call.device->gpu;
      operation.local.back().words = call.device->words;
      operation.local.back().factor = call.device->asked.factor;
      operation.local.back().listed = call.device->tensors;
    }
    operation.memory.push_back(call.memory);
    if (call.window_bytes != 0 && !operation.release_window)
      operation.release_window = [this, alive = alive_, key = start.key](uint64_t bytes) {
        if (*alive) parts_.local.release_window(key.group, key.number, bytes);
      };
  }
  if (signature.on_device) operation.gpus = parts_.gpus();
  if (start.by_nccl) operation.nccl = gpu_link_.link();
  // A GPU needs no slices; other hosts do.
  if (signature.on_device && operation.execution->plan.hosts.size() == 1)
    operation.slice_bytes = kOneSlice;
  operation.sender = &data_;
  operation.mismatch = [this, alive = alive_, key = start.key](int from) {
    if (!*alive) return;
    member_.on_mismatch(key, member_.find(key.group)->hosts()[static_cast<size_t>(from)]);
    run_actions();
  };
  operation.done = [this, alive = alive_, key = start.key](const Status& status) {
    if (*alive) on_done(key, status);
  };
  return operation;
}

std::shared_ptr<const ExecutionPlan> HostEpoch::execution(const Start& start) {
  const Communicator& group = *member_.find(start.key.group);
  const Plan plan{start.signature.collective, static_cast<int>(start.signature.root),
                  start.strategies, group.topology()};
  if (executions_.size() >= kExecutionPlansMax)
    executions_.clear();  // Operations in progress share ownership of theirs.
  std::shared_ptr<const ExecutionPlan>& cached = executions_[{start.key.group, plan}];
  if (cached == nullptr) cached = make_execution_plan(plan, group.self_in_topology());
  return cached;
}

void HostEpoch::on_done(const Key& key, const Status& status) {
  const uint32_t us = op_clock_.ended({key.group, key.number}, Clock::now());
  if (adviser_) adviser_->on_ended(key.group, key.number, us);
  parts_.local.on_ended(key.group, key.number, status.code());
  data_.on_ended(key);
  member_.on_finished(key, with_job_rank(status, *member_.find(key.group)));
  run_actions();
}

// Replaces the culprit, a rank of the group, by the rank of the job.
Status HostEpoch::with_job_rank(const Status& status, const Communicator& group) const {
  const int rank = status.culprit().rank;
  if (status.ok() || rank < 0 || rank >= group.size()) return status;
  const int job_rank = group.members()[static_cast<size_t>(rank)];
  return {status.code(),
          status.message(),
          {job_rank, roster_.ranks[static_cast<size_t>(job_rank)].host}};
}

// ---- Frames. A peer that sends an invalid one ends the epoch, by name. ----

void HostEpoch::adopt(const std::string& name, std::shared_ptr<Link> link,
                      std::shared_ptr<LoopHandler> handler) {
  for (int index = 0; index < static_cast<int>(hosts_.size()); ++index)
    if (host(index).name == name && index != self_)
      return links_.adopt(index, std::move(link), std::move(handler));
  link->close(unauthenticated("host " + name + " is not in this job's roster"));
}

void HostEpoch::on_frame(int from, Frame frame) {
  if (!cause().ok()) return;
  received_bytes_ += frame.payload.bytes() + sizeof(FrameHeader);
  const Status status = frame.header.kind == FrameKind::control
                            ? on_controls(from, frame)
                            : data_.on_frame(from, std::move(frame));
  if (!status.ok()) member_.abort(failures::lost(host(from), status));
  run_actions();
}

void HostEpoch::on_lost(int host, Status cause) {
  if (member_.on_lost(host, cause) && leader_) leader_->on_host_departed(host);
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
  if (control.has_probe()) return on_probe(host, control.probe());
  if (control.has_nccl()) return gpu_link_.on_message(host, control.nccl());
  if (control.has_rates()) {
    check_limits(host, control.rates());
    if (adviser_ && adviser_->on_rates(host, control.rates())) return {};
    return data_loss("Rates of an unknown host, or sent to a host that is not the leader");
  }
  const Result<Message> message = read_message(control);
  return message.ok() ? on_message(host, *message) : message.status();
}

void HostEpoch::send_limits() {
  v1::Control control;
  v1::Rates& told = *control.mutable_rates();
  told.set_slice_bytes(options_.slice_bytes);
  told.set_slices_in_flight(options_.slices_in_flight);
  told.set_ops_in_flight(options_.ops_in_flight);
  told.set_early_bytes(options_.early_bytes);
  batcher_.add(0, std::move(control));
  batcher_.flush();
}

// Hosts whose slices differ would take equal requests for different ones. One that may send more
// than another does could fill the links of that one, and both would wait for good.
void HostEpoch::check_limits(int from, const v1::Rates& told) {
  if (told.slice_bytes() == 0) return;
  const std::tuple<std::string, uint64_t, uint64_t> limits[] = {
      {"slice_bytes", options_.slice_bytes, told.slice_bytes()},
      {"slices_in_flight", options_.slices_in_flight, told.slices_in_flight()},
      {"ops_in_flight", options_.ops_in_flight, told.ops_in_flight()},
      {"early_bytes", options_.early_bytes, told.early_bytes()}};
  for (const auto& [name, own, other] : limits)
    if (own != other)
      return member_.abort(failed_precondition(
          "job " + roster_.job + ": the hosts differ in " + name + ": it is " +
              std::to_string(own) + " on host " + host(self_).name + ", " + std::to_string(other) +
              " on host " + host(from).name + "; set " +
              (name == "slice_bytes" ? "it and frame_bytes_max" : "it") + " alike on all hosts",
          {}));  // No host is more to blame than the other.
}

Status HostEpoch::on_message(int host, const Message& message) {
  if (const auto* const want = std::get_if<WantStarted>(&message))
    return data_.on_message(host, *want);
  if (const auto* const started = std::get_if<Started>(&message))
    return data_.on_message(host, *started);
  if (leader_) return leader_->on_message(host, message, Clock::now());
  if (host != 0) return data_loss("a message that only the leader sends");
  handle_as_member(message);
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
    member_.abort(cause);
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
  if (start.key.group != 0 || hosts_.size() == 1) return;
  std::set<int> gpus;
  for (const auto& [rank, call] : calls_.at(start.key))
    if (call.device) gpus.insert(call.device->gpu);
  gpu_link_.offer(parts_.gpus(), gpus);
}

// ---- Tuning ----

void HostEpoch::make_adviser() {
  if (parts_.tuner == nullptr)
    parts_.tuner = std::make_shared<Tuner>(Pipeline{.slice_bytes = options_.slice_bytes});
  const uint64_t padding_most = std::min(kProbeBytes, options_.slice_bytes);
  adviser_ = std::make_unique<Adviser>(*parts_.tuner, hosts_, self_, padding_most,
                                       [this](int host, const v1::Probe& probe) {
                                         v1::Control control;
                                         *control.mutable_probe() = probe;
                                         batcher_.add(host, std::move(control));
                                       });
  if (machine_.machine() != 0)
    parts_.tuner->set_machine(host(self_).name, machine_.machine(), machine_.cores());
}

// Asks for the strategy of operations of this kind; another one is proposed like any change.
void HostEpoch::ask_adviser(const Start& start) {
  const Communicator& group = *member_.find(start.key.group);
  const uint32_t number = start.key.group;
  for (const int host : group.hosts())
    if (host != self_) adviser_->probe_if_due(host, Clock::now());
  adviser_->on_started(number, start.key.number, group, start.signature, start.strategies);
  const Strategies& named = start.signature.strategies;
  const Strategies asked = named == Strategies() ? member_.table(number).job : named;
  if (asked.global.kind != StrategyKind::automatic) return;
  if (const auto recommend =
          adviser_->recommend(number, group, start.signature, start.strategies.global))
    leader_->set_measured(number, start.signature.collective, size_class(start.signature),
                          *recommend);
}

// A member answers at once, without the padding; the leader receives the answer.
Status HostEpoch::on_probe(int host, const v1::Probe& probe) {
  if (leader_) {
    adviser_->on_answer(host, probe, Clock::now());
    return {};
  }
  if (host != 0) return data_loss("a probe that is not the leader's");
  v1::Control answer;
  *answer.mutable_probe() = machine_;
  answer.mutable_probe()->set_number(probe.number());
  batcher_.add(0, std::move(answer));
  return {};
}

// Called with each call, so that an idle job sends nothing.
void HostEpoch::send_rates() {
  const std::vector<int> changed = data_.rates().take_changed(Clock::now());
  if (changed.empty()) return;
  v1::Control control;
  for (const int host : changed) {
    v1::Rate& rate = *control.mutable_rates()->add_rates();
    rate.set_from(static_cast<uint32_t>(host));
    rate.set_byte_us(data_.rates().byte_us(host));
  }
  if (adviser_)
    adviser_->on_rates(self_, control.rates());
  else
    batcher_.add(0, std::move(control));
}

}  // namespace tutti
