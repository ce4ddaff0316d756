#include "daemon/group/world.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "daemon/group/verdicts.h"

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

// A number for a group that all its members compute alike (FNV-1a); never 0, which is the whole
// job.
uint32_t group_number(const Members& members, uint32_t nth) {
  uint32_t hash = 2166136261u;
  const auto add = [&](uint32_t word) { hash = (hash ^ word) * 16777619u; };
  for (const int rank : members) add(static_cast<uint32_t>(rank));
  add(~nth);
  return hash == 0 ? 1 : hash;
}

Strategies job_strategies(const Roster& roster) {
  const Result<Strategies> set = parse_strategies(roster.strategy);
  return set.ok() ? *set : Strategies();
}

Result<Members> members_from(const Roster& roster, int rank, const std::vector<uint32_t>& ranks) {
  Members members;
  for (const uint32_t member : ranks) {
    if (member >= roster.ranks.size())
      return invalid_argument("sub-group: there is no rank " + std::to_string(member) + " of " +
                              std::to_string(roster.ranks.size()));
    if (std::ranges::find(members, static_cast<int>(member)) != members.end())
      return invalid_argument("sub-group: rank " + std::to_string(member) + " is listed twice");
    members.push_back(static_cast<int>(member));
  }
  if (std::ranges::find(members, rank) == members.end())
    return invalid_argument("sub-group: rank " + std::to_string(rank) +
                            " makes a group it is not in");
  return members;
}

}  // namespace

PlainWorld::PlainWorld(WorldParts parts, Roster roster, const std::string& host,
                       const WorldOptions& options)
    : parts_(std::move(parts)),
      roster_(std::move(roster)),
      hosts_(hosts_of(roster_)),
      self_(find_host(hosts_, host)),
      options_(options),
      member_(roster_, hosts_, self_, rules(job_strategies(roster_))),
      early_(hosts_.size(), options_.early_bytes),
      rates_(hosts_.size()),
      outbox_(hosts_.size(), options_.slice_bytes,  // A frame takes one for sure.
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

PlainWorld::~PlainWorld() {
  *alive_ = false;
  const Status ended = cause().ok() ? aborted("the epoch has ended") : cause();
  parts_.engine.abort(roster_.epoch, ended);
  for (const auto& [key, calls] : std::exchange(calls_, {}))
    for (const auto& [rank, call] : calls) call.done(ended);
  parts_.loop.cancel(alarm_);
}

MemberRules PlainWorld::rules(const Strategies& job) {
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

void PlainWorld::submit(int job_rank, Call call) {
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

void PlainWorld::answer(const Call& call, const Status& status) {
  if (status.ok()) {
    ++stats_.operations;
    stats_.bytes += bytes_of(call.signature);
  } else {
    ++stats_.failures;
  }
  call.done(status);
}

Result<uint32_t> PlainWorld::subgroup(int rank, const std::vector<uint32_t>& ranks) {
  const Result<Members> members = members_from(roster_, rank, ranks);
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

void PlainWorld::leave(int rank, const Status& cause) {
  if (!cause.ok() && !member_.is_gone(rank))
    spdlog::warn("job {} epoch {}: {}", roster_.job, roster_.epoch, cause.message());
  member_.leave(rank, cause);
  pump();
}

void PlainWorld::abort(const Status& cause) {
  member_.abort(cause);
  pump();
}

void PlainWorld::set_strategy(const Strategies& strategies) {
  if (leader_) leader_->set_job(strategies);
  pump();
}

bool PlainWorld::needed() const {
  return cause().ok() && !over() && (leader_ || member_.pending() != 0);
}

WorldStats PlainWorld::stats() const {
  WorldStats stats = stats_;
  stats.sent_bytes = links_->sent_bytes();
  stats.sent_frames = links_->sent_frames();
  return stats;
}

// ---- What the core wants done ----

// Doing one thing may bring about the next, from inside: the outermost call does it all.
void PlainWorld::pump() {
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
  outbox_.flush();
  set_alarm();
}

// From the member to the leader.
void PlainWorld::act(const Tell& tell) {
  if (leader_) return take_up(self_, tell.message);
  outbox_.add(0, to_control(tell.message));
}

void PlainWorld::deliver(const Tell& tell) {
  if (tell.host == self_) return take_down(tell.message);
  outbox_.add(tell.host, to_control(tell.message));
}

void PlainWorld::take_up(int host, const Message& message) {
  if (const Status status = leader_->take(host, message, Clock::now()); !status.ok())
    member_.abort(verdicts::lost(hosts_[static_cast<size_t>(host)], status));
}

void PlainWorld::take_down(const Message& message) {
  const Gone* const gone = std::get_if<Gone>(&message);
  if (gone != nullptr && !gone->cause.ok() && !member_.is_gone(gone->rank))
    spdlog::warn("job {} epoch {}: {}", roster_.job, roster_.epoch, gone->cause.message());
  if (const Query* const query = std::get_if<Query>(&message); query != nullptr && parts_.gather)
    parts_.gather(query->key.group, query->key.number);
  if (const Status status = member_.take(message, Clock::now()); !status.ok())
    member_.abort(verdicts::lost(hosts_.front(), status));
}

void PlainWorld::act(const Answer& what) {
  const auto ended = calls_.extract(what.key);
  if (ended.empty()) return;
  for (const auto& [rank, call] : ended.mapped()) answer(call, what.status);
}

void PlainWorld::act(const End& end) {
  spdlog::warn("job {} epoch {} is over: {}", roster_.job, roster_.epoch, end.cause.to_string());
  parts_.engine.abort(roster_.epoch, end.cause);
  unmade_.clear();
  parts_.loop.at(Clock::now() + kGoodbye, [this, alive = alive_, cause = end.cause] {
    if (*alive && !calls_.empty()) links_->cut(cause);
  });
  if (parts_.on_over) parts_.on_over(end.cause);
}

// Deadlines that were met leave the timer as it is: it may wake for nothing, once.
void PlainWorld::set_alarm() {
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

std::unique_ptr<World> make_world(const WorldParts& parts, Roster roster, const std::string& host,
                                  const WorldOptions& options) {
  return std::make_unique<PlainWorld>(parts, std::move(roster), host, options);
}

}  // namespace tutti
