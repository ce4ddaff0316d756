// The leader's side of a World, and the frames between the two sides.
#include <algorithm>
#include <utility>

#include "daemon/group/world.h"

namespace tutti {

// ---- The leader ----

void PlainWorld::judge(const Arrival& arrival, int host) {
  if (!cause_.ok()) return;
  Result<std::optional<Verdict>> verdict = matcher_.arrive(arrival);
  if (!verdict.ok()) return abort(host_lost(host, verdict.status()));
  // Deadlines that were met leave the timer as it is: it may wake for nothing, once.
  if (matcher_timer_ == 0 || arrival.deadline < matcher_wakes_) rearm_matcher();
  if (verdict->has_value()) proclaim(**verdict);
}

void PlainWorld::proclaim(const Verdict& verdict) {
  const Communicator& group =
      led_.try_emplace(verdict.group, verdict.members, hosts_, self_).first->second;
  if (!verdict.status.ok()) return proclaim_failure(verdict, group);
  Strategies strategies = verdict.signature.strategies;
  if (strategies == Strategies{}) strategies = job_strategies_;
  strategies = adviser_->decide(verdict.group, group, verdict.signature, strategies);
  adviser_->started(verdict.group, verdict.seq, group, verdict.signature, strategies);
  const StartOrder order{verdict.group, {verdict.seq}, strategies, options_.slice_bytes};
  if (group.places().size() == 1 || !fuser_.takes(verdict.signature, strategies))
    return launch(order);
  fuser_.add(order, verdict.signature);
  if (std::exchange(fusing_, true)) return;
  parts_.loop.post([this, alive = alive_] {
    if (*alive) launch_fused();
  });
}

void PlainWorld::proclaim_failure(const Verdict& verdict, const Communicator& group) {
  v1::Control control;
  control.set_group(verdict.group);
  control.set_op_seq(verdict.seq);
  write_status(verdict.status, *control.mutable_fail());
  for (const int host : group.places())
    if (host != self_) outbox_.add(host, control, Hurry::this_turn);
  if (group.places().front() == self_ && cause_.ok())
    obey_fail({verdict.group, verdict.seq}, verdict.status);
}

void PlainWorld::rearm_matcher() {
  parts_.loop.cancel(matcher_timer_);
  matcher_timer_ = 0;
  const std::optional<TimePoint> next = matcher_.next_deadline();
  if (!next) return;
  matcher_wakes_ = *next;
  matcher_timer_ = parts_.loop.at(*next, [this] {
    matcher_timer_ = 0;
    for (const Verdict& verdict : matcher_.expire(Clock::now())) proclaim(verdict);
    rearm_matcher();
  });
}

void PlainWorld::lead_gone(int rank, const Status& cause) {
  if (!cause_.ok()) return;
  v1::Control control;
  control.mutable_gone()->set_rank(static_cast<uint32_t>(rank));
  write_status(cause, *control.mutable_gone()->mutable_cause());
  to_others(control);
  const Status left = unavailable(describe_rank(roster_, rank) + " left");
  for (const Verdict& verdict : matcher_.gone(rank, cause.ok() ? left : cause)) proclaim(verdict);
  rearm_matcher();
}

// ---- Frames ----

void PlainWorld::adopt(const std::string& host, std::shared_ptr<Link> link,
                       std::shared_ptr<LoopHandler> handler) {
  for (int index = 0; index < static_cast<int>(hosts_.size()); ++index)
    if (hosts_[index].name == host && index != self_)
      return links_->adopt(index, std::move(link), std::move(handler));
  link->close(unauthenticated("host " + host + " is not in this job's roster"));
}

Status PlainWorld::send(const OpKey& key, int rank, Outgoing frame) {
  const int host = groups_.at(key.group).host_of(rank);
  Status status = links_->send_data(host, std::move(frame));
  if (status.ok() || status.code() == Code::resource_exhausted) return status;
  return unavailable(host_lost(host, status).message(), {rank, hosts_[host].name});
}

void PlainWorld::to_others(const v1::Control& control) {
  for (int host = 1; host < static_cast<int>(hosts_.size()); ++host)
    outbox_.add(host, control, Hurry::now);
}

void PlainWorld::on_frame(int host, Frame frame) {
  if (!cause_.ok()) return;
  stats_.received_bytes += frame.payload.bytes() + sizeof(FrameHeader);
  if (frame.header.kind == FrameKind::control) return on_controls(host, frame);
  const OpKey key{frame.header.epoch, frame.header.group, frame.header.op_seq};
  rates_.frame(host, key, frame.payload.bytes(), Clock::now());
  if (const Status status = on_data(host, std::move(frame)); !status.ok())
    abort(host_lost(host, status));
}

// The engine trusts headers to name ranks of the group, and senders to be who they say.
Status PlainWorld::check_data(int host, const FrameHeader& header) const {
  const auto group = groups_.find(header.group);
  if (header.epoch != roster_.epoch || group == groups_.end())
    return data_loss("a frame of another epoch or group");
  if (header.from >= group->second.size() || group->second.host_of(header.from) != host)
    return data_loss("a frame from a rank that lives elsewhere");
  return {};
}

Status PlainWorld::on_data(int host, Frame frame) {
  if (Status good = check_data(host, frame.header); !good.ok()) return good;
  return parts_.engine.on_frame(std::move(frame));
}

std::shared_ptr<Landing> PlainWorld::place(int host, const FrameHeader& header) {
  const bool expected = cause_.ok() && check_data(host, header).ok();
  return expected ? parts_.engine.place(header) : nullptr;
}

void PlainWorld::on_controls(int host, const Frame& frame) {
  const Result<v1::ControlBatch> read = read_controls(frame);
  if (!read.ok()) return abort(host_lost(host, read.status()));
  for (const v1::Control& control : read->controls())
    if (cause_.ok()) on_control(host, control);
}

void PlainWorld::on_control(int host, const v1::Control& control) {
  const Key key{control.group(), control.op_seq()};
  if (control.has_arrive() && leads()) return on_arrive(host, control);
  if (control.has_gone()) return on_gone(host, control.gone());
  if (control.has_abort() && control.abort().code() != 0) {
    const Status cause = read_status(control.abort());
    return host == 0 ? end_epoch(cause) : abort(cause);
  }
  if (control.has_probe() && on_probe(host, control.probe())) return;
  if (control.has_rates() && leads() && adviser_->learn(host, control.rates())) return;
  if (host == 0 && on_verdict(key, control)) return;
  abort(host_lost(host, data_loss("a control frame that makes no sense here")));
}

// False: it is no verdict, or none that could be.
bool PlainWorld::on_verdict(const Key& key, const v1::Control& control) {
  const auto pending = pending_.find(key);
  const bool started = pending != pending_.end() && pending->second.started;
  if (control.has_fail()) {
    if (control.fail().code() == 0 || started) return false;
    obey_fail(key, read_status(control.fail()));
    return true;
  }
  return control.has_start() && groups_.contains(key.first) && on_start(key, control.start());
}

bool PlainWorld::on_start(const Key& key, const v1::Start& start) {
  const Result<Strategy> local = unpacked(start.local_strategy());
  const Result<Strategy> global = unpacked(start.global_strategy());
  const auto decided = [](const Result<Strategy>& strategy) {
    return strategy.ok() && strategy->kind != StrategyKind::automatic;
  };
  if (!decided(local) || !decided(global)) return false;
  StartOrder order{key.first, {key.second}, {*local, *global}, start.slice_bytes()};
  order.seqs.insert(order.seqs.end(), start.also().begin(), start.also().end());
  obey_start(order);
  return true;
}

// A member speaks for its own ranks, the leader for all.
void PlainWorld::on_gone(int host, const v1::Gone& gone) {
  const bool known = gone.rank() < roster_.ranks.size();
  if (!known || (host != 0 && roster_.ranks[gone.rank()].host != hosts_[host].name))
    return abort(host_lost(host, data_loss("word of a rank that is not its own")));
  const Status cause = read_status(gone.cause());
  note_gone(static_cast<int>(gone.rank()), cause);
  if (leads()) lead_gone(static_cast<int>(gone.rank()), cause);
}

// Ranks of the job, each once. What a verdict named before was looked at then.
bool PlainWorld::could_be_group(uint32_t number, const std::vector<int>& members) const {
  if (number == 0) return true;  // All of them: not taken from the frame.
  const auto led = led_.find(number);
  if (led != led_.end() && led->second.members() == members) return true;
  const std::set<int> distinct(members.begin(), members.end());
  return !members.empty() && distinct.size() == members.size() && *distinct.begin() >= 0 &&
         *distinct.rbegin() < static_cast<int>(roster_.ranks.size());
}

bool PlainWorld::is_sound(int host, const v1::Control& control,
                          const std::vector<int>& members) const {
  const v1::Arrive& arrive = control.arrive();
  if (!could_be_group(control.group(), members)) return false;
  // A refused request may hold any root; it will not run.
  const bool rooted = arrive.has_invalid() || arrive.signature().root() < members.size();
  return rooted && arrive.rank() < members.size() &&
         roster_.ranks[members[arrive.rank()]].host == hosts_[host].name;
}

void PlainWorld::on_arrive(int host, const v1::Control& control) {
  const v1::Arrive& arrive = control.arrive();
  const Result<Signature> signature = read_signature(arrive.signature());
  std::vector<int> members(control.members().begin(), control.members().end());
  if (control.group() == 0) members = groups_.at(0).members();
  if (!signature.ok() || !is_sound(host, control, members))
    return abort(host_lost(host, data_loss("an arrival that makes no sense")));
  const TimePoint now = Clock::now();
  adviser_->heard_from(host, now);
  adviser_->took(control.group(), control.op_seq() - 1, arrive.before_us());
  const TimePoint deadline = now + Millis(arrive.timeout_ms());
  judge({control.group(), control.op_seq(), std::move(members), static_cast<int>(arrive.rank()),
         *signature, read_status(arrive.invalid()), deadline, arrive.timeout_ms()},
        host);
}

Status PlainWorld::host_lost(int host, const Status& why) const {
  std::string ranks;
  for (const int rank : hosts_[host].ranks)
    ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
  return unavailable("the worker of host " + hosts_[host].name + " (ranks " + ranks +
                         ") is lost: " + why.message() + "; join again to form a new group",
                     {hosts_[host].ranks.front(), hosts_[host].name});
}

// A host whose ranks have all left may close its links, but not the leader, nor in the middle of an
// operation; any other loss ends the epoch.
void PlainWorld::on_lost(int host, Status cause) {
  if (over()) return;
  const bool left =
      std::ranges::all_of(hosts_[host].ranks, [&](int rank) { return gone_.contains(rank); });
  const auto takes_part = [&](uint32_t group) {
    return std::ranges::any_of(
        hosts_[host].ranks, [&](int rank) { return groups_.at(group).rank_of(rank).has_value(); });
  };
  const bool running = std::ranges::any_of(pending_, [&](const auto& entry) {
    return entry.second.started && takes_part(entry.first.first);
  });
  if (!left || host == 0 || running) abort(host_lost(host, cause));
}

std::unique_ptr<World> make_world(const WorldParts& parts, Roster roster, const std::string& host,
                                  const WorldOptions& options) {
  return std::make_unique<PlainWorld>(parts, std::move(roster), host, options);
}

}  // namespace tutti
