#include "daemon/schedule/prover.h"

#include <algorithm>
#include <numeric>

namespace tutti {
namespace {

std::string whose(int host, int chunk) {
  return "host " + std::to_string(host) + ", chunk " + std::to_string(chunk) + ": ";
}

bool combines(Collective collective) {
  return reduces(collective) || collective == Collective::barrier;
}

}  // namespace

Prover::Prover(const Plan& plan)
    : plan_(plan),
      hosts_(static_cast<int>(plan.hosts.size())),
      chunks_(chunk_count(plan)),
      combines_(combines(plan.collective)),
      symbols_(plan.reproducible ? world_size(plan) : hosts_),
      values_(static_cast<size_t>(hosts_) * chunks_),
      channels_(static_cast<size_t>(hosts_) * hosts_),
      finisher_(chunks_, -1),
      past_(hosts_),
      sent_chunks_(hosts_),
      received_chunks_(hosts_) {
  for (int host = 0; host < hosts_; ++host) {
    past_[host].started.resize(hosts_);
    past_[host].started[host] = true;
    for (int chunk = 0; chunk < chunks_; ++chunk) {
      value(host, chunk).clock.resize(hosts_);
      if (!plan.reproducible && host_contributes(plan, host, chunk))
        value(host, chunk).expression = symbols_.contribution(host, chunk);
    }
  }
}

bool Prover::has_message(int from, int to) const {
  return channel(from, to).taken < channel(from, to).messages.size();
}

// To a value that is reduced: one a host, or one a rank where each is combined by itself.
int Prover::all_contributions() const { return plan_.reproducible ? world_size(plan_) : hosts_; }

int Prover::contributions(int chunk) const {
  if (combines_) return all_contributions();
  int count = 0;
  for (int host = 0; host < hosts_; ++host) count += host_contributes(plan_, host, chunk) ? 1 : 0;
  return count;
}

Status Prover::may_leave(int from, int chunk) const {
  if (!value(from, chunk).packed.empty()) return {};
  const int expression = value(from, chunk).expression;
  if (expression == Symbols::kNothing)
    return internal_error(whose(from, chunk) + "a value is sent where there is none");
  if (combines_ && symbols_.count(expression) == all_contributions() &&
      !symbols_.is_finished(expression))
    return internal_error(whose(from, chunk) + "the complete value leaves unfinished");
  if (plan_.raw && symbols_.is_finished(expression))
    return internal_error(whose(from, chunk) + "the complete value leaves in a raw plan");
  return {};
}

Status Prover::send(int from, const Step& step) {
  const int to = step.peer, chunk = step.chunk;
  if (Status status = may_leave(from, chunk); !status.ok()) return status;
  const bool from_root =
      plan_.collective == Collective::broadcast || plan_.collective == Collective::scatter;
  if (from_root && !past_[from].started[to])
    return internal_error(whose(from, chunk) + "it is sent before host " + std::to_string(to) +
                          " is ready");
  Value& mine = value(from, chunk);
  const bool packed = !mine.packed.empty();
  if (step.ranks != static_cast<int>(mine.packed.size()))
    return internal_error(whose(from, chunk) +
                          "another number of contributions is sent side by side");
  if (!packed) mine.loans.push_back({to, 0});
  channels_[from * hosts_ + to].messages.push_back(
      {chunk, packed ? mine.packed : std::vector<int>{mine.expression}, mine.clock,
       packed ? kNoLoan : mine.loans.size() - 1, past_[from]});
  sent_chunks_[from] += std::max(1, step.ranks);
  return {};
}

Status Prover::notify(int from, int to) {
  channels_[from * hosts_ + to].messages.push_back({kEmpty, {}, {}, kNoLoan, past_[from]});
  return {};
}

Status Prover::await(int at, int from) {
  Channel& channel = channels_[from * hosts_ + at];
  const Message& message = channel.messages[channel.taken++];
  if (message.chunk != kEmpty)
    return internal_error(whose(at, message.chunk) + "it comes where an empty message is awaited");
  learn(at, message);
  return {};
}

Status Prover::receive(int at, const Step& step) {
  const int from = step.peer, chunk = step.chunk;
  Channel& channel = channels_[from * hosts_ + at];
  const Message& message = channel.messages[channel.taken++];
  if (message.chunk == kEmpty)
    return internal_error(whose(at, chunk) + "an empty message comes in its stead");
  if (message.chunk != chunk)
    return internal_error(whose(at, chunk) + "host " + std::to_string(from) + " sent chunk " +
                          std::to_string(message.chunk) + " instead");
  const int several = message.loan == kNoLoan ? static_cast<int>(message.expressions.size()) : 0;
  if (step.ranks != several)
    return internal_error(whose(at, chunk) + "another number of contributions comes side by side");
  if (Status status = change(at, step, message); !status.ok()) return status;
  if (several == 0) value(from, chunk).loans[message.loan].taken_at = value(at, chunk).clock[at];
  learn(at, message);
  received_chunks_[at] += std::max(1, several);
  return {};
}

// A chunk that may be empty proves nothing about the hosts that have started.
void Prover::learn(int host, const Message& message) {
  Past& mine = past_[host];
  const bool data = message.chunk != kEmpty;
  mine.depth = std::max(mine.depth, message.past.depth + 1);
  mine.data_depth = std::max(mine.data_depth, message.past.data_depth + (data ? 1 : 0));
  if (message.chunk > 0 && !has_blocks(plan_.collective)) return;
  for (int i = 0; i < hosts_; ++i)
    if (message.past.started[i]) mine.started[i] = true;
}

Status Prover::change(int host, const Step& step, const Message& incoming) {
  const int chunk = step.chunk;
  const bool reduces = step.kind == StepKind::recv_reduce;
  Value& mine = value(host, chunk);
  for (int i = 0; i < hosts_; ++i) mine.clock[i] = std::max(mine.clock[i], incoming.clock[i]);
  if (Status status = unlent(host, chunk); !status.ok()) return status;
  if (reduces && mine.expression == Symbols::kNothing)
    return internal_error(whose(host, chunk) + "nothing is there to reduce into");
  int expression = reduces ? mine.expression : Symbols::kNothing;
  for (const int next : incoming.expressions) {
    if (expression != Symbols::kNothing && symbols_.overlap(expression, next))
      return internal_error(whose(host, chunk) + "a contribution is doubled");
    expression = expression == Symbols::kNothing ? next : symbols_.combine(expression, next);
  }
  mine.expression = expression;
  mine.packed.clear();
  ++mine.clock[host];
  return {};
}

Status Prover::unlent(int host, int chunk) const {
  const Value& mine = value(host, chunk);
  for (const Loan& loan : mine.loans)
    if (loan.taken_at == 0 || mine.clock[loan.to] < loan.taken_at)
      return internal_error(whose(host, chunk) + "it is overwritten while its send to host " +
                            std::to_string(loan.to) + " may still be under way");
  return {};
}

Status Prover::finish(int host, int chunk) {
  Value& mine = value(host, chunk);
  if (!combines_) return internal_error(whose(host, chunk) + "nothing to finish was combined");
  const bool again =
      plan_.raw ? mine.expression != Symbols::kNothing && symbols_.is_finished(mine.expression)
                : finisher_[chunk] >= 0;
  if (again) return internal_error(whose(host, chunk) + "it is finished twice");
  if (Status status = complete(host, chunk); !status.ok()) return status;
  if (Status status = unlent(host, chunk); !status.ok()) return status;
  finisher_[chunk] = host;
  mine.expression = symbols_.finish(mine.expression);
  ++mine.clock[host];
  return {};
}

Status Prover::complete(int host, int chunk) {
  const int expression = value(host, chunk).expression;
  if (expression == Symbols::kNothing || symbols_.count(expression) != all_contributions())
    return internal_error(whose(host, chunk) + "it is finished before it is complete");
  if (plan_.reproducible && expression != in_rank_order(chunk))
    return internal_error(whose(host, chunk) + "it is not combined in the order of the ranks");
  return {};
}

// ((x0 op x1) op x2) ...
int Prover::in_rank_order(int chunk) {
  int expression = symbols_.contribution(0, chunk);
  for (int rank = 1; rank < world_size(plan_); ++rank)
    expression = symbols_.combine(expression, symbols_.contribution(rank, chunk));
  return expression;
}

// A contribution that is taken by itself stays where it is: nothing is overwritten, and what was
// lent before stays lent.
Status Prover::contribute(int host, const Step& step) {
  const bool takes = step.kind == StepKind::take;
  if (Status status = in_range(host, step); !status.ok()) return status;
  Value& mine = value(host, step.chunk);
  int expression = takes ? Symbols::kNothing : mine.expression;
  if (!takes && expression == Symbols::kNothing)
    return internal_error(whose(host, step.chunk) + "nothing is there to add to");
  if (!takes || step.ranks > 1)
    if (Status status = unlent(host, step.chunk); !status.ok()) return status;
  for (int place = step.first; place < step.first + step.ranks; ++place) {
    const int own = symbols_.contribution(plan_.hosts[host][place], step.chunk);
    if (expression != Symbols::kNothing && symbols_.overlap(expression, own))
      return internal_error(whose(host, step.chunk) + "a contribution is doubled");
    expression = expression == Symbols::kNothing ? own : symbols_.combine(expression, own);
  }
  mine.expression = expression;
  mine.packed.clear();
  ++mine.clock[host];
  return {};
}

Status Prover::in_range(int host, const Step& step) const {
  const auto here = static_cast<int>(plan_.hosts[host].size());
  if (!plan_.reproducible)
    return internal_error(whose(host, step.chunk) + "its ranks were combined already");
  if (step.first < 0 || step.ranks < 1 || step.first + step.ranks > here)
    return internal_error(whose(host, step.chunk) + "no such ranks");
  return {};
}

// Nothing is overwritten: the copies are elsewhere, and the host has no value then.
Status Prover::pack(int host, const Step& step) {
  if (!plan_.raw) return internal_error(whose(host, step.chunk) + "only a raw plan packs");
  if (Status status = in_range(host, step); !status.ok()) return status;
  Value& mine = value(host, step.chunk);
  mine.expression = Symbols::kNothing;
  mine.packed.clear();
  for (int place = step.first; place < step.first + step.ranks; ++place)
    mine.packed.push_back(symbols_.contribution(plan_.hosts[host][place], step.chunk));
  ++mine.clock[host];
  return {};
}

Status Prover::conclude() const {
  for (int from = 0; from < hosts_; ++from)
    for (int to = 0; to < hosts_; ++to)
      if (has_message(from, to))
        return internal_error("a message from host " + std::to_string(from) + " to host " +
                              std::to_string(to) + " is never taken");
  for (int chunk = 0; hosts_ > 1 && chunk < chunks_; ++chunk)
    if (Status status = conclude_chunk(chunk); !status.ok()) return status;
  return conclude_agreement();
}

// That all hold the same expression follows: a chunk is finished once, or each time in the order of
// the ranks; a finished value is combined no further; and where nothing is combined there is one
// contribution.
Status Prover::conclude_chunk(int chunk) const {
  for (int host = 0; host < hosts_; ++host) {
    if (!host_wants(plan_, host, chunk)) continue;
    const int mine = value(host, chunk).expression;
    if (mine == Symbols::kNothing || symbols_.count(mine) != contributions(chunk))
      return internal_error(whose(host, chunk) + "a contribution is lost");
    if (combines_ && !symbols_.is_finished(mine))
      return internal_error(whose(host, chunk) + "the result is unfinished");
  }
  return {};
}

Status Prover::conclude_agreement() const {
  for (int host = 0; host < hosts_; ++host)
    for (int other = 0; other < hosts_; ++other)
      if (!past_[host].started[other])
        return internal_error("host " + std::to_string(host) + " is through before host " +
                              std::to_string(other) + " has started");
  return {};
}

Cost Prover::cost() const {
  const auto deepest = [&](int Past::*depth) {
    int most = 0;
    for (const Past& past : past_) most = std::max(most, past.*depth);
    return most;
  };
  return {deepest(&Past::depth), deepest(&Past::depth) - deepest(&Past::data_depth),
          *std::max_element(sent_chunks_.begin(), sent_chunks_.end()),
          *std::max_element(received_chunks_.begin(), received_chunks_.end()),
          std::accumulate(sent_chunks_.begin(), sent_chunks_.end(), int64_t{0})};
}

}  // namespace tutti
