#include "daemon/group/epoch.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "daemon/group/failures.h"

namespace tutti {
namespace {

// Of an epoch that is over: for its cause to reach the others, and for links to send what they
// borrowed, before they are cut.
constexpr Millis kGoodbye{20};

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

constexpr size_t kExecutionPlansMost = 256;
constexpr Millis kFullLinkPause{1};  // Before a message is offered to it again.
constexpr uint64_t kProbeBytes = uint64_t{256} << 10;

// The same for all hosts of one machine, whatever their networks and names: it was booted once.
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
      early_(hosts_.size(), options_.early_bytes),
      rates_(hosts_.size()),
      batcher_(hosts_.size(), options_.slice_bytes,  // A frame takes one for sure.
               [this](int to, const v1::ControlBatch& batch) {
                 links_->send_control(to, control_frame(roster_.epoch, batch));
               }) {
  find_machine();
  if (self_ == 0) {
    leader_.emplace(roster_, hosts_, job_strategies(roster_));
    make_adviser();
  }
  links_ = std::make_unique<Links>(parts_.loop, parts_.transport, roster_, hosts_, self_, *this);
}

HostEpoch::~HostEpoch() {
  *alive_ = false;
  const Status ended = cause().ok() ? aborted("the epoch has ended") : cause();
  parts_.engine.abort(roster_.epoch, ended);
  for (const auto& [key, calls] : std::exchange(calls_, {}))
    for (const auto& [rank, call] : calls) call.done(ended);
  parts_.loop.cancel(alarm_);
}

MemberRules HostEpoch::rules(const Strategies& job) {
  MemberRules rules;
  rules.slice_bytes = options_.slice_bytes;
  rules.job = job;
  rules.automatic = [](Collective collective, uint64_t bytes, const Communicator& group) {
    return choose({{StrategyKind::centralized}, {}}, collective, bytes, group.topology()).global;
  };
  rules.waiting = [this](const Key& key) { return waiting(key); };
  return rules;
}

// ---- Ranks ----

void HostEpoch::submit(int job_rank, Call call) {
  const uint32_t number = call.group;
  const Communicator* const group = member_.find(number);
  const std::optional<int> rank = group == nullptr ? std::nullopt : group->rank_of(job_rank);
  if (!rank || group->host_of(*rank) != self_)
    return answer(call, not_found("this rank has no group " + std::to_string(number)));
  if (!cause().ok()) return answer(call, cause());
  const Key key{number, call.number};
  const uint64_t next = member_.next(number, *rank);
  if (call.number < next)
    return answer(call, invalid_argument(describe_rank(roster_, job_rank) + " makes call #" +
                                             std::to_string(call.number) + " where #" +
                                             std::to_string(next) + " is its next",
                                         {job_rank, name_of_host(self_)}));
  member_.skip(number, *rank, call.number);
  const uint32_t timeout_ms = call.timeout_ms != 0 ? call.timeout_ms : options_.op_timeout_ms;
  const TimePoint now = Clock::now();
  const Member::Call asked{call.signature, call.invalid,
                           now + Millis(left_ms(timeout_ms, call.waited_ms)), timeout_ms};
  calls_[key].emplace(*rank, std::move(call));
  tell_rates();
  member_.arrive(number, *rank, asked, now);
  pump();
}

void HostEpoch::answer(const Call& call, const Status& status) {
  if (status.ok()) {
    ++stats_.operations;
    stats_.bytes += bytes_of(call.signature);
  } else {
    ++stats_.failures;
  }
  call.done(status);
}

Result<uint32_t> HostEpoch::subgroup(int rank, const std::vector<uint32_t>& ranks) {
  const Result<Members> members = subgroup_members(roster_.ranks.size(), rank, ranks);
  if (!members.ok()) return members.status();
  if (subgroups_ + 1 >= kGroupsMost)
    return resource_exhausted("sub-group: this epoch has " + std::to_string(kGroupsMost) +
                              " groups already; make them once and keep them");
  std::map<int, uint32_t>& asked = subgroup_counts_[*members];
  const uint32_t nth = asked[rank]++;
  const bool fresh = std::ranges::all_of(
      asked, [&](const auto& other) { return other.first == rank || other.second <= nth; });
  const uint32_t number = group_number(*members, nth);
  if (Status made = member_.make(number, *members); !made.ok()) return made;
  subgroups_ += fresh;
  take_unmade(number);
  pump();
  return number;
}

void HostEpoch::leave(int rank, const Status& cause) {
  if (!cause.ok() && !member_.is_gone(rank))
    spdlog::warn("job {} epoch {}: {}", roster_.job, roster_.epoch, cause.message());
  member_.leave(rank, cause);
  pump();
}

void HostEpoch::abort(const Status& cause) {
  member_.abort(cause);
  pump();
}

void HostEpoch::set_strategy(const Strategies& strategies) {
  if (leader_) leader_->set_job(strategies);
  pump();
}

bool HostEpoch::needed() const {
  return cause().ok() && !over() && (leader_ || member_.pending() != 0);
}

EpochStats HostEpoch::stats() const {
  EpochStats stats = stats_;
  stats.sent_bytes = links_->sent_bytes();
  stats.sent_frames = links_->sent_frames();
  return stats;
}

// ---- What the core wants done ----

// Doing one thing may bring about the next, from inside: the outermost call does it all.
void HostEpoch::pump() {
  if (std::exchange(pumping_, true)) return;
  for (bool more = true; more;) {
    const std::vector<Action> actions = member_.take_actions();
    const std::vector<Tell> tells = leader_ ? leader_->take_tells() : std::vector<Tell>();
    more = !actions.empty() || !tells.empty();
    for (const Tell& tell : tells) deliver(tell);
    for (const Action& action : actions)
      std::visit([this](const auto& what) { act(what); }, action);
    if (early_.take_news()) parts_.engine.wake();
  }
  pumping_ = false;
  batcher_.flush();
  set_alarm();
}

// From the member to the leader.
void HostEpoch::act(const Tell& tell) {
  if (leader_) return take_up(self_, tell.message);
  batcher_.add(0, to_control(tell.message));
}

void HostEpoch::deliver(const Tell& tell) {
  if (tell.host == self_) return take_down(tell.message);
  batcher_.add(tell.host, to_control(tell.message));
}

void HostEpoch::take_up(int host, const Message& message) {
  if (const Status status = leader_->take(host, message, Clock::now()); !status.ok())
    member_.abort(failures::lost(hosts_[static_cast<size_t>(host)], status));
}

void HostEpoch::take_down(const Message& message) {
  const Gone* const gone = std::get_if<Gone>(&message);
  if (gone != nullptr && !gone->cause.ok() && !member_.is_gone(gone->rank))
    spdlog::warn("job {} epoch {}: {}", roster_.job, roster_.epoch, gone->cause.message());
  if (const Query* const query = std::get_if<Query>(&message); query != nullptr && parts_.gather)
    parts_.gather(query->key.group, query->key.number);
  if (const Status status = member_.take(message, Clock::now()); !status.ok())
    member_.abort(failures::lost(hosts_.front(), status));
}

void HostEpoch::act(const Answer& what) {
  const auto ended = calls_.extract(what.key);
  if (ended.empty()) return;
  for (const auto& [rank, call] : ended.mapped()) answer(call, what.status);
}

void HostEpoch::act(const End& end) {
  spdlog::warn("job {} epoch {} is over: {}", roster_.job, roster_.epoch, end.cause.to_string());
  parts_.engine.abort(roster_.epoch, end.cause);
  unmade_.clear();
  parts_.loop.at(Clock::now() + kGoodbye, [this, alive = alive_, cause = end.cause] {
    if (*alive && !calls_.empty()) links_->cut(cause);
  });
  if (parts_.on_over) parts_.on_over(end.cause);
}

// Deadlines that were met leave the timer as it is: it may wake for nothing, once.
void HostEpoch::set_alarm() {
  std::optional<TimePoint> next = member_.next_wake();
  const std::optional<TimePoint> other = leader_ ? leader_->next_wake() : std::nullopt;
  if (other && (!next || *other < *next)) next = other;
  if (!next || (alarm_ != 0 && alarm_at_ <= *next)) return;
  parts_.loop.cancel(alarm_);
  alarm_at_ = *next;
  alarm_ = parts_.loop.at(*next, [this] {
    alarm_ = 0;
    const TimePoint now = Clock::now();
    member_.expire(now);
    if (leader_) leader_->expire(now);
    pump();
  });
}

std::unique_ptr<Epoch> make_epoch(const EpochParts& parts, Roster roster, const std::string& host,
                                  const EpochOptions& options) {
  return std::make_unique<HostEpoch>(parts, std::move(roster), host, options);
}

// ---- Operations of a Epoch: the ranks' tensors go to the engine, and its end completes their
// calls.

void HostEpoch::act(const Start& start) {
  if (calls_.at(start.key).size() != member_.find(start.key.group)->local_ranks().size())
    return member_.abort(
        internal_error("a rank's call of an operation is missing; the board of "
                       "host " +
                       hosts_[self_].name + " was overwritten"));
  if (fold_here(start)) return;
  op_clock_.started({start.key.group, start.key.number}, Clock::now());
  if (leader_) advise(start);
  tell_started(start.key);
  parts_.engine.start(operation_of(start, calls_.at(start.key)));
}

// What the ranks fold they end themselves.
bool HostEpoch::fold_here(const Start& start) {
  if (member_.find(start.key.group)->places().size() != 1 || !parts_.fold) return false;
  const Calls& calls = calls_.at(start.key);
  const bool ranks_only =
      std::ranges::any_of(calls, [](const auto& call) { return call.second.ranks_only; });
  const bool folded = parts_.fold(start.key.group, start.key.number);
  if (!folded && !ranks_only) return false;
  if (folded) calls_.erase(start.key);
  member_.finished(start.key, folded ? Status()
                                     : internal_error("the ranks' requests changed after they "
                                                      "agreed"));
  return true;
}

void HostEpoch::act(const Cancel& cancel) {
  tell_started(cancel.key);
  early_.over(cancel.key);
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
  operation.slice_bytes = options_.slice_bytes;
  operation.agreement = start.agreement;
  for (const auto& [rank, call] : calls) {
    operation.local.push_back({rank, call.in, call.out, call.window_bytes, call.filled});
    operation.memory.push_back(call.memory);
    if (call.window_bytes != 0 && !operation.passed)
      operation.passed = [passed = parts_.passed, key = start.key](uint64_t bytes) {
        passed(key.group, key.number, bytes);
      };
  }
  operation.mismatch = [this, alive = alive_, key = start.key](const OpKey&, int from) {
    if (!*alive) return;
    member_.mismatched(key, member_.find(key.group)->places()[static_cast<size_t>(from)]);
    pump();
  };
  operation.done = [this, alive = alive_, key = start.key](const Status& status) {
    if (*alive) finish(key, status);
  };
  return operation;
}

std::shared_ptr<const ExecutionPlan> HostEpoch::execution(const Start& start) {
  const Communicator& group = *member_.find(start.key.group);
  const Plan plan{start.signature.collective, static_cast<int>(start.signature.root),
                  start.strategies, group.topology()};
  if (executions_.size() >= kExecutionPlansMost)
    executions_.clear();  // Operations under way keep theirs.
  std::shared_ptr<const ExecutionPlan>& cached = executions_[{start.key.group, plan}];
  if (cached == nullptr) cached = make_execution_plan(plan, group.self_in_topology());
  return cached;
}

void HostEpoch::finish(const Key& key, const Status& status) {
  op_clock_.ended({key.group, key.number}, Clock::now());
  if (adviser_) adviser_->took(key.group, key.number, op_clock_.take_us({key.group, key.number}));
  early_.over(key);
  member_.finished(key, of_the_job(status, *member_.find(key.group)));
  pump();
}

// The engine names ranks of the group; people know those of the job.
Status HostEpoch::of_the_job(const Status& status, const Communicator& group) const {
  const int rank = status.culprit().rank;
  if (status.ok() || rank < 0 || rank >= group.size()) return status;
  const int job_rank = group.members()[static_cast<size_t>(rank)];
  return {status.code(),
          status.message(),
          {job_rank, roster_.ranks[static_cast<size_t>(job_rank)].host}};
}

std::pair<std::string, int> HostEpoch::waiting(const Key& key) const {
  const Engine::Waiting waiting = parts_.engine.waiting(engine_key(key));
  return {waiting.what, waiting.rank};
}

// ---- The frames of a Epoch: data to and from the engine, and messages to and from the core. What
// a peer says is believed in nothing: what makes no sense ends the epoch, in the peer's name.

void HostEpoch::adopt(const std::string& host, std::shared_ptr<Link> link,
                      std::shared_ptr<LoopHandler> handler) {
  for (int index = 0; index < static_cast<int>(hosts_.size()); ++index)
    if (name_of_host(index) == host && index != self_)
      return links_->adopt(index, std::move(link), std::move(handler));
  link->close(unauthenticated("host " + host + " is not in this job's roster"));
}

void HostEpoch::on_frame(int host, Frame frame) {
  if (!cause().ok()) return;
  stats_.received_bytes += frame.payload.bytes() + sizeof(FrameHeader);
  const Status status = frame.header.kind == FrameKind::control ? on_controls(host, frame)
                                                                : on_data(host, std::move(frame));
  if (!status.ok()) member_.abort(failures::lost(hosts_[static_cast<size_t>(host)], status));
  pump();
}

void HostEpoch::on_lost(int host, Status cause) {
  if (member_.lost(host, cause) && leader_) leader_->departed(host);
  pump();
}

// ---- Data out ----

Status HostEpoch::send(const OpKey& key, int place, Outgoing frame) {
  const Key operation{key.group, key.seq};
  const Communicator& group = *member_.find(key.group);
  const int host = group.places()[static_cast<size_t>(place)];
  const uint64_t bytes = frame.bytes.size() + sizeof(FrameHeader);
  const EarlyBudget::Way way = early_.admit(host, operation, bytes);
  if (way == EarlyBudget::Way::ask) tell_host(host, Want{operation});
  if (way != EarlyBudget::Way::go)
    return resource_exhausted("enough was sent to a host that has not started");
  Status status = links_->send_data(host, std::move(frame));
  if (status.ok()) return status;
  early_.take_back(host, operation, bytes);
  if (status.code() == Code::resource_exhausted) return status;
  return unavailable(failures::lost(hosts_[static_cast<size_t>(host)], status).message(),
                     {group.topology()[static_cast<size_t>(place)].front(), name_of_host(host)});
}

// Over the link of data, since members have no other. Where that is full, soon again; where it is
// broken, its loss tells.
void HostEpoch::tell_host(int host, const Message& message) {
  v1::ControlBatch batch;
  *batch.add_controls() = to_control(message);
  const Status sent = links_->send_data(host, control_frame(roster_.epoch, batch));
  if (sent.code() != Code::resource_exhausted) return;
  parts_.loop.at(Clock::now() + kFullLinkPause, [this, alive = alive_, host, message] {
    if (*alive && cause().ok()) tell_host(host, message);
  });
}

// To those who asked, when it has started or is over.
void HostEpoch::tell_started(const Key& key) {
  for (const int host : early_.take_wanting(key)) tell_host(host, Started{key});
}

// ---- Data in ----

// The engine trusts headers to name hosts of the group, and senders to be who they say.
Status HostEpoch::check_data(int host, const FrameHeader& header) const {
  const Communicator* const group = member_.find(header.group);
  if (header.epoch != roster_.epoch || group == nullptr)
    return data_loss("a frame of another epoch or group");
  const std::vector<int>& places = group->places();
  if (header.from >= places.size() || places[header.from] != host)
    return data_loss("a frame that says it is from another host");
  return {};
}

Status HostEpoch::on_data(int host, Frame frame) {
  const Key key{frame.header.group, frame.header.op_seq};
  if (frame.header.epoch == roster_.epoch && member_.find(key.group) == nullptr)
    return keep_unmade(host, std::move(frame));
  if (Status good = check_data(host, frame.header); !good.ok()) return good;
  if (member_.is_over(key)) return {};
  rates_.frame(host, engine_key(key), frame.payload.bytes(), Clock::now());
  early_.known(host, key);
  return parts_.engine.on_frame(std::move(frame));
}

// No more than the budgets of all others allow.
Status HostEpoch::keep_unmade(int host, Frame frame) {
  unmade_bytes_ += frame.payload.bytes() + sizeof(FrameHeader);
  if (unmade_bytes_ > options_.early_bytes * hosts_.size())
    return data_loss("too many frames of groups that nobody here has made");
  unmade_[frame.header.group].emplace_back(host, std::move(frame));
  return {};
}

void HostEpoch::take_unmade(uint32_t group) {
  auto kept = unmade_.extract(group);
  if (kept.empty()) return;
  for (auto& [host, frame] : kept.mapped()) {
    unmade_bytes_ -= frame.payload.bytes() + sizeof(FrameHeader);
    if (const Status status = on_data(host, std::move(frame)); !status.ok())
      return member_.abort(failures::lost(hosts_[static_cast<size_t>(host)], status));
  }
}

std::shared_ptr<RecvBuffer> HostEpoch::recv_buffer_for(int host, const FrameHeader& header) {
  const bool expected = cause().ok() && check_data(host, header).ok();
  return expected ? parts_.engine.recv_buffer_for(header) : nullptr;
}

// ---- Messages ----

Status HostEpoch::on_controls(int host, const Frame& frame) {
  const Result<v1::ControlBatch> read = read_controls(frame);
  if (!read.ok()) return read.status();
  for (const v1::Control& control : read->controls()) {
    if (!cause().ok()) return {};
    if (Status status = on_control(host, control); !status.ok()) return status;
    pump();
  }
  return {};
}

Status HostEpoch::on_control(int host, const v1::Control& control) {
  if (control.has_probe()) return on_probe(host, control.probe());
  if (control.has_rates()) {
    const bool taken = adviser_ && adviser_->learn(host, control.rates());
    return taken ? Status() : data_loss("rates that make no sense here");
  }
  const Result<Message> message = read_message(control);
  return message.ok() ? on_message(host, *message) : message.status();
}

Status HostEpoch::on_message(int host, const Message& message) {
  if (const Want* const want = std::get_if<Want>(&message)) {
    if (early_.size() > kFailedMost) return data_loss("it wants to know too much");
    early_.want(host, want->key);
    if (member_.can_take(want->key)) tell_started(want->key);
    return {};
  }
  if (const Started* const started = std::get_if<Started>(&message)) {
    if (calls_.contains(started->key) && !member_.is_over(started->key))
      early_.known(host, started->key);
    return {};
  }
  if (leader_) return leader_->take(host, message, Clock::now());
  if (host != 0) return data_loss("a message that only the leader sends");
  take_down(message);
  return {};
}

// ---- What a Epoch measures for `auto`, and how the leader gets to know it.

void HostEpoch::find_machine() {
  machine_.set_machine(machine_number());
  machine_.set_cores(static_cast<uint32_t>(sysconf(_SC_NPROCESSORS_ONLN)));  // Not only our own.
}

void HostEpoch::make_adviser() {
  if (parts_.tuner == nullptr)
    parts_.tuner = std::make_shared<Tuner>(Pipeline{.slice_bytes = options_.slice_bytes});
  const Adviser::Options options{options_.auto_tries_all,
                                 std::min(kProbeBytes, options_.slice_bytes)};
  adviser_ = std::make_unique<Adviser>(*parts_.tuner, hosts_, self_, options,
                                       [this](int host, const v1::Probe& probe) {
                                         v1::Control control;
                                         *control.mutable_probe() = probe;
                                         batcher_.add(host, std::move(control));
                                       });
  if (machine_.machine() != 0)
    parts_.tuner->set_machine(hosts_[static_cast<size_t>(self_)].name, machine_.machine(),
                              machine_.cores());
}

// What operations of the kind should run by is asked of the tuner as they start; what is wished
// goes the way of every change.
void HostEpoch::advise(const Start& start) {
  const Communicator& group = *member_.find(start.key.group);
  const uint32_t number = start.key.group;
  for (const int host : group.places())
    if (host != self_) adviser_->heard_from(host, Clock::now());
  adviser_->started(number, start.key.number, group, start.signature, start.strategies);
  const Strategies& named = start.signature.strategies;
  const Strategies asked = named == Strategies() ? member_.table(number).job : named;
  if (asked.global.kind != StrategyKind::automatic) return;
  if (const auto recommend =
          adviser_->recommend(number, group, start.signature, start.strategies.global))
    leader_->set_measured(number, start.signature.collective, size_class(start.signature),
                          *recommend);
}

// A member answers at once, and without the padding; the leader takes the answer.
Status HostEpoch::on_probe(int host, const v1::Probe& probe) {
  if (leader_) {
    adviser_->answered(host, probe, Clock::now());
    return {};
  }
  if (host != 0) return data_loss("a probe that is not the leader's");
  v1::Control answer;
  *answer.mutable_probe() = machine_;
  answer.mutable_probe()->set_number(probe.number());
  batcher_.add(0, std::move(answer));
  return {};
}

// With a call, so that an idle job is silent.
void HostEpoch::tell_rates() {
  const std::vector<int> news = rates_.take_news(Clock::now());
  if (news.empty()) return;
  v1::Control control;
  for (const int host : news) {
    v1::Rate& rate = *control.mutable_rates()->add_rates();
    rate.set_from(static_cast<uint32_t>(host));
    rate.set_byte_us(rates_.byte_us(host));
  }
  if (adviser_)
    adviser_->learn(self_, control.rates());
  else
    batcher_.add(0, std::move(control));
}

}  // namespace tutti
