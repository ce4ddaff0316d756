#include "tests/group/simulated_job.h"

#include <algorithm>

namespace tutti::simulated {
namespace {

constexpr Us kSilence = 5'000'000;  // After which links of a stopped host are given up.

struct Describe {
  std::string operator()(const Announce& m) const { return "Announce " + std::to_string(m.group); }
  std::string operator()(const Report& m) const {
    static const char* const kReasons[] = {"answer", "waiting", "late", "mismatch", "refusal"};
    static const char* const kPhases[] = {"refused", "started", "over", "gathering"};
    return std::string("Report ") + kReasons[static_cast<int>(m.reason)] + " " +
           kPhases[static_cast<int>(m.phase)] + name(m.op);
  }
  std::string operator()(const Fence& m) const { return "Fence at " + std::to_string(m.number); }
  std::string operator()(const Query& m) const { return "Query" + name(m.op); }
  std::string operator()(const Fail& m) const {
    return "Fail" + name(m.op) + " " + m.status.to_string();
  }
  std::string operator()(const Propose& m) const { return "Propose " + std::to_string(m.version); }
  std::string operator()(const Adopt& m) const { return "Adopt from " + std::to_string(m.from); }
  std::string operator()(const RankGone& m) const { return "RankGone " + std::to_string(m.rank); }
  std::string operator()(const Abort& m) const { return "Abort " + m.cause.to_string(); }
  std::string operator()(const WantStarted& m) const { return "WantStarted" + name(m.op); }
  std::string operator()(const Started& m) const { return "Started" + name(m.op); }
  static std::string name(const EpochOp& op) {
    return " " + std::to_string(op.group) + "#" + std::to_string(op.number);
  }
};

}  // namespace

Job::Job(const Script& script, uint64_t seed, const Tampering& tampering, bool traces)
    : script_(script),
      tampering_(tampering),
      traces_(traces),
      random_(seed ^ 0x5eed),
      homes_(hosts_of(script.roster)),
      home_(script.roster.ranks.size()),
      hosts_(homes_.size()),
      ranks_(script.ranks.size()) {
  for (size_t index = 0; index < hosts_.size(); ++index) {
    for (const int rank : homes_[index].ranks)
      home_[static_cast<size_t>(rank)] = static_cast<int>(index);
    SimHost& host = hosts_[index];
    host.engine = std::make_unique<Engine>(hooks(static_cast<int>(index)), script.window);
    FollowerRules rules;
    rules.job = script.job;
    rules.fence_ahead = script.fence_ahead;
    rules.automatic = [](Collective, uint64_t, const Communicator&) {
      return Strategy{StrategyKind::ring, 0};
    };
    rules.blocker = [engine = host.engine.get()](const EpochOp& op) { return engine->blocker(op); };
    host.follower =
        std::make_unique<Follower>(script.roster, homes_, static_cast<int>(index), rules);
    host.early = std::make_unique<EarlyBudget>(hosts_.size(), script.budget_frames);
    host.made.resize(script.groups.size());
  }
  hosts_.front().leader = std::make_unique<Leader>(script.roster, homes_, script.job);
}

void Job::at(Us when, int host, std::function<void()> run) {
  events_.push({when, order_++, host, std::move(run)});
}

void Job::say(int host, const std::string& text) {
  if (!traces_) return;
  trace_.push_back(std::to_string(now_) + " us, host " + homes_[static_cast<size_t>(host)].name +
                   ": " + text);
}

void Job::wrong(const std::string& text) {
  if (wrong_.empty()) wrong_ = "at " + std::to_string(now_) + " us: " + text;
}

std::string Job::run() {
  schedule_script();
  while (!events_.empty() && wrong_.empty() && now_ < kLatestEnd) {
    Event event = events_.top();
    events_.pop();
    now_ = std::max(now_, event.at);
    SimHost& where = host(event.host);
    if (where.dead || where.stopped_until == Script::kNever) continue;
    if (where.stopped_until > now_) {  // It comes to it when it goes on, in the same order.
      event.at = where.stopped_until;
      events_.push(std::move(event));
      continue;
    }
    ++counts_.events;
    event.run();
    drain(event.host);
  }
  if (wrong_.empty()) check_rest();
  return wrong_;
}

// ---- The script ----

void Job::schedule_script() {
  for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) schedule_call(rank, now_);
  for (const Script::Stop& each : script_.stops)
    at(each.at, each.host, [this, &each] { stop(each); });
  for (const Script::Change& each : script_.changes)
    at(each.at, 0, [this, &each] { change(each); });
}

void Job::schedule_call(int rank, Us when) {
  const Script::Rank& mine = script_.ranks[static_cast<size_t>(rank)];
  const size_t next = ranks_[static_cast<size_t>(rank)].next;
  const int home = home_[static_cast<size_t>(rank)];
  if (next < mine.calls.size())
    at(when + mine.calls[next].after, home, [this, rank] { call(rank); });
  else if (mine.goes)
    at(when + mine.goes_after, home, [this, rank] { go(rank); });
}

void Job::call(int rank) {
  const Script::Rank& mine = script_.ranks[static_cast<size_t>(rank)];
  RankState& state = ranks_[static_cast<size_t>(rank)];
  const Script::Call& what = mine.calls[state.next++];
  const int home = home_[static_cast<size_t>(rank)];
  SimHost& here = host(home);
  if (!here.follower->cause().ok()) return;  // The epoch is over: it would join the next.
  const uint32_t group = Script::number(what.group);
  if (group != 0 && !here.made[what.group])
    if (!here.follower->make_group(group, script_.groups[what.group]).ok()) wrong("no group");
  here.made[what.group] = true;
  const int place = *here.follower->find(group)->rank_of(rank);
  const EpochOp op{group, here.follower->next(group, place)};
  const Us deadline = now_ + what.timeout_ms * 1000;
  truths_[op].calls[place] = {rank, now_, deadline, canonical(what.signature), what.invalid, {}};
  ++state.calls[group];
  say(home, "rank " + std::to_string(rank) + " calls " + std::to_string(group) + "#" +
                std::to_string(op.number) + " " + to_string(what.signature));
  if (mine.waits) state.waits = op;
  here.follower->on_call(
      group, place, {what.signature, what.invalid, time(deadline), what.timeout_ms}, time(now_));
  if (!mine.waits) schedule_call(rank, now_);
}

void Job::go(int rank) {
  const int home = home_[static_cast<size_t>(rank)];
  say(home, "rank " + std::to_string(rank) + " goes");
  ranks_[static_cast<size_t>(rank)].gone = true;
  host(home).follower->leave(rank, script_.ranks[static_cast<size_t>(rank)].cause, time(now_));
}

void Job::stop(const Script::Stop& stop) {
  SimHost& here = host(stop.host);
  say(stop.host, stop.dies ? "dies" : "stops until " + std::to_string(stop.until));
  here.dead = stop.dies;
  here.was_stopped = true;
  here.last_stop = now_;
  here.stopped_until = here.last_stop_end = stop.until;
  if (stop.until != Script::kNever) return;
  const Us noticed = stop.dies ? 0 : kSilence;
  for (int other = 0; other < static_cast<int>(hosts_.size()); ++other)
    if (other != stop.host)
      at(now_ + noticed + random_.below(20'000), other, [this, other, whose = stop.host] {
        const bool missed = !host(other).follower->on_lost(whose, unavailable("the link broke"));
        if (!missed && host(other).leader) host(other).leader->on_host_departed(whose);
      });
}

void Job::change(const Script::Change& change) {
  say(0, "changes the strategy to " + to_string(change.strategy));
  if (!change.measured)
    return host(0).leader->set_job({{StrategyKind::centralized, 0}, change.strategy});
  for (const Collective collective : {Collective::all_reduce, Collective::all_gather})
    host(0).leader->set_measured(Script::number(change.group), collective, 9, change.strategy);
}

// ---- Hosts ----

void Job::drain(int index) {
  SimHost& here = host(index);
  std::vector<Action> actions = here.follower->take_actions();
  do {
    for (Action& action : actions) {
      if (tampering_.action && !tampering_.action(index, action)) continue;
      std::visit([&](const auto& what) { perform(index, what); }, action);
    }
    if (here.leader)
      for (const Send& send : here.leader->take_sends()) deliver(0, send.host, false, send.message);
    if (here.early->take_unblocked()) here.engine->pump();
    actions = here.follower->take_actions();
  } while (!actions.empty() && wrong_.empty());
  set_alarm(index);
}

void Job::set_alarm(int index) {
  SimHost& here = host(index);
  std::optional<TimePoint> next = here.follower->next_timer();
  if (here.leader)
    if (const auto other = here.leader->next_timer(); other && (!next || *other < *next))
      next = other;
  if (!next) return;
  const Us when =
      std::chrono::duration_cast<std::chrono::microseconds>(next->time_since_epoch()).count();
  if (when >= here.wakes) return;
  here.wakes = when;
  at(std::max(when, now_), index, [this, index] {
    SimHost& here = host(index);
    here.wakes = Script::kNever;
    here.follower->on_time(time(now_));
    if (here.leader) here.leader->on_time(time(now_));
  });
}

void Job::perform(int index, const Send& send) { deliver(index, send.host, true, send.message); }

// `up`: from a follower to the leader.
void Job::deliver(int from, int to, bool up, const Message& message) {
  Message sent = message;
  if (tampering_.message && !tampering_.message(from, to, sent)) return;
  if (traces_)
    say(from, "to " + homes_[static_cast<size_t>(to)].name + ": " + std::visit(Describe(), sent));
  if (from == to) return hear(from, to, up, sent);
  post(from, to, false, [this, from, to, up, sent = std::move(sent)] { hear(from, to, up, sent); });
}

// Messages of one channel arrive in order.
void Job::post(int from, int to, bool data, std::function<void()> run) {
  Us& busy = busy_[{from, to, data}];
  const int most = static_cast<int>(script_.link_delay_most);
  busy = std::max(busy, now_ + 20 + random_.below(random_.chance(80) ? most / 4 : most));
  at(busy, to, std::move(run));
}

void Job::hear(int from, int to, bool up, const Message& message) {
  SimHost& here = host(to);
  const Status status = up ? here.leader->on_message(from, message, time(now_))
                           : here.follower->on_message(message, time(now_));
  if (!status.ok()) wrong("a message was refused: " + status.to_string());
}

void Job::perform(int index, const Start& start) {
  SimHost& here = host(index);
  say(index, "starts" + Describe::name(start.op) + " by " + to_string(start.strategies));
  Truth& truth = truths_[start.op];
  const Communicator& group = *here.follower->find(start.op.group);
  const Called& mine = truth.calls.at(group.ranks_here().front());
  const bool all_agree = std::ranges::all_of(
      truth.calls, [&](const auto& other) { return other.second.signature == mine.signature; });
  if (truth.strategies && *truth.strategies != start.strategies && all_agree)
    wrong("two hosts run" + Describe::name(start.op) + " by different strategies");
  truth.strategies = start.strategies;
  here.engine->start(start, group, host_plan(start.signature, start.strategies.global, group));
  notify_waiters(index, start.op);
  here.engine->pump();
}

void Job::perform(int index, const Cancel& cancel) {
  SimHost& here = host(index);
  say(index, "cancels" + Describe::name(cancel.op));
  const bool ran = here.engine->runs(cancel.op);
  here.engine->forget(cancel.op);
  here.early->on_ended(cancel.op);
  notify_waiters(index, cancel.op);
  if (ran) here.follower->on_finished(cancel.op, cancel.cause);
  here.engine->pump();
}

void Job::perform(int index, const Complete& complete) {
  if (lent_.contains({index, complete.op}))
    wrong("ranks learn of" + Describe::name(complete.op) + " whose memory a link still reads");
  const Communicator& group = *host(index).follower->find(complete.op.group);
  for (auto& [place, called] : truths_[complete.op].calls)
    if (group.host_of(place) == index && !called.end)
      judge(index, complete.op, called, complete.status);
}

void Job::perform(int index, const EndEpoch& end) {
  say(index, "ends the epoch: " + end.cause.to_string());
  for (const EpochOp& op : host(index).engine->abort()) {
    lent_.insert({index, op});
    at(now_ + 1 + random_.below(2'000), index, [this, index, op, cause = end.cause] {
      lent_.erase({index, op});
      host(index).follower->on_finished(op, cause);
    });
  }
  if (counts_.epochs_ended++ == 0) check_end(end.cause);
}

// ---- Data ----

Engine::Hooks Job::hooks(int index) {
  Engine::Hooks hooks;
  hooks.send = [this, index](int to, const Frame& frame) { return send(index, to, frame); };
  hooks.mismatch = [this, index](const EpochOp& op, int from) {
    host(index).follower->on_mismatch(op, from);
  };
  hooks.contribution = [this, index](const EpochOp& op, int chunk, int slice) {
    const Communicator& group = *host(index).follower->find(op.group);
    uint64_t sum = 0;
    for (const int rank : group.ranks_here()) sum += contribution(op, rank, chunk, slice);
    return sum;
  };
  hooks.done = [this, index](const EpochOp& op, const auto& values) {
    completed(index, op, values);
  };
  return hooks;
}

// The budget is in frames here.
bool Job::send(int from, int to, const Frame& frame) {
  const EarlyBudget::Admission admission = host(from).early->admit(to, frame.op, 1);
  if (admission == EarlyBudget::Admission::wait_and_ask) {
    say(from, "wants started" + Describe::name(frame.op));
    post(from, to, true, [this, from, to, op = frame.op] {
      SimHost& here = host(to);
      here.early->add_waiter(from, op);
      if (accepts_data(*here.follower, op)) notify_waiters(to, op);
    });
  }
  if (admission != EarlyBudget::Admission::granted) return false;
  post(from, to, true, [this, to, frame] { hear(to, frame); });
  return true;
}

void Job::notify_waiters(int index, const EpochOp& op) {
  for (const int to : host(index).early->take_waiters(op))
    post(index, to, true, [this, index, to, op] {
      if (host(to).follower->is_running(op)) host(to).early->on_peer_started(index, op);
    });
}

void Job::hear(int to, const Frame& frame) {
  SimHost& here = host(to);
  if (here.follower->is_over(frame.op)) return;
  here.early->on_peer_started(frame.from, frame.op);
  here.engine->take(frame);
  here.engine->pump();
}

void Job::completed(int index, const EpochOp& op,
                    const std::vector<std::vector<uint64_t>>& values) {
  check_values(index, op, values);
  host(index).early->on_ended(op);
  host(index).follower->on_finished(op, {});
}

}  // namespace tutti::simulated
