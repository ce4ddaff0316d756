#include "daemon/schedule/prover.h"

#include <algorithm>
#include <numeric>

namespace tutti {
namespace {

std::string whose(int rank, int chunk) {
  return "rank " + std::to_string(rank) + ", chunk " + std::to_string(chunk) + ": ";
}

bool combines(Collective collective) {
  return reduces(collective) || collective == Collective::barrier;
}

}  // namespace

Prover::Prover(const Plan& plan)
    : plan_(plan),
      world_size_(world_size(plan)),
      chunks_(chunk_count(plan)),
      combines_(combines(plan.collective)),
      symbols_(world_size_),
      values_(static_cast<size_t>(world_size_) * chunks_),
      channels_(static_cast<size_t>(world_size_) * world_size_),
      finisher_(chunks_, -1),
      depth_(world_size_),
      sent_chunks_(world_size_),
      received_chunks_(world_size_) {
  for (int rank = 0; rank < world_size_; ++rank)
    for (int chunk = 0; chunk < chunks_; ++chunk) {
      value(rank, chunk).clock.resize(world_size_);
      if (contributes(plan, rank, chunk))
        value(rank, chunk).expression = symbols_.contribution(rank, chunk);
    }
}

int Prover::sent(int from, int to) const {
  return static_cast<int>(channel(from, to).messages.size());
}

int Prover::taken(int from, int to) const { return static_cast<int>(channel(from, to).taken); }

bool Prover::has_message(int from, int to) const { return taken(from, to) < sent(from, to); }

Status Prover::may_leave(int from, int chunk) const {
  const int expression = value(from, chunk).expression;
  if (expression == Symbols::kNothing)
    return internal_error(whose(from, chunk) + "a value is sent where there is none");
  if (combines_ && symbols_.count(expression) == world_size_ && !symbols_.is_finished(expression))
    return internal_error(whose(from, chunk) + "the complete value leaves unfinished");
  return {};
}

Status Prover::send(int from, int to, int chunk) {
  if (Status status = may_leave(from, chunk); !status.ok()) return status;
  Value& mine = value(from, chunk);
  mine.loans.push_back({to, 0});
  channels_[from * world_size_ + to].messages.push_back(
      {chunk, mine.expression, mine.clock, mine.loans.size() - 1, depth_[from]});
  ++sent_chunks_[from];
  return {};
}

Status Prover::receive(int at, int from, int chunk, bool reduces) {
  Channel& channel = channels_[from * world_size_ + at];
  Message& message = channel.messages[channel.taken++];
  if (message.chunk != chunk)
    return internal_error(whose(at, chunk) + "rank " + std::to_string(from) + " sent chunk " +
                          std::to_string(message.chunk) + " instead");
  const Value incoming{message.expression, std::move(message.clock), {}};
  if (Status status = change(at, chunk, incoming, reduces); !status.ok()) return status;
  value(from, chunk).loans[message.loan].taken_at = value(at, chunk).clock[at];
  depth_[at] = std::max(depth_[at], message.depth + 1);
  ++received_chunks_[at];
  return {};
}

Status Prover::copy(int at, int from, int chunk, bool reduces) {
  if (Status status = may_leave(from, chunk); !status.ok()) return status;
  ++sent_chunks_[from];
  ++received_chunks_[at];
  return change(at, chunk, value(from, chunk), reduces);
}

Status Prover::change(int rank, int chunk, const Value& incoming, bool reduces) {
  Value& mine = value(rank, chunk);
  for (int i = 0; i < world_size_; ++i) mine.clock[i] = std::max(mine.clock[i], incoming.clock[i]);
  if (Status status = unlent(rank, chunk); !status.ok()) return status;
  if (reduces && mine.expression == Symbols::kNothing)
    return internal_error(whose(rank, chunk) + "nothing is there to reduce into");
  if (reduces && symbols_.overlap(mine.expression, incoming.expression))
    return internal_error(whose(rank, chunk) + "a contribution is doubled");
  mine.expression =
      reduces ? symbols_.combine(mine.expression, incoming.expression) : incoming.expression;
  ++mine.clock[rank];
  return {};
}

Status Prover::unlent(int rank, int chunk) const {
  const Value& mine = value(rank, chunk);
  for (const Loan& loan : mine.loans)
    if (loan.taken_at == 0 || mine.clock[loan.to] < loan.taken_at)
      return internal_error(whose(rank, chunk) + "it is overwritten while its send to rank " +
                            std::to_string(loan.to) + " may still be under way");
  return {};
}

Status Prover::finish(int rank, int chunk) {
  Value& mine = value(rank, chunk);
  if (!combines_) return internal_error(whose(rank, chunk) + "nothing to finish was combined");
  if (finisher_[chunk] >= 0) return internal_error(whose(rank, chunk) + "it is finished twice");
  if (mine.expression == Symbols::kNothing || symbols_.count(mine.expression) != world_size_)
    return internal_error(whose(rank, chunk) + "it is finished before it is complete");
  if (Status status = unlent(rank, chunk); !status.ok()) return status;
  finisher_[chunk] = rank;
  mine.expression = symbols_.finish(mine.expression);
  ++mine.clock[rank];
  return {};
}

Status Prover::conclude() const {
  for (int from = 0; from < world_size_; ++from)
    for (int to = 0; to < world_size_; ++to)
      if (has_message(from, to))
        return internal_error("a message from rank " + std::to_string(from) + " to rank " +
                              std::to_string(to) + " is never taken");
  for (int chunk = 0; chunk < chunks_; ++chunk)
    if (Status status = conclude_chunk(chunk); !status.ok()) return status;
  return {};
}

// That all hold the same expression follows: a chunk is finished once, a finished value is combined
// no further, and where nothing is combined there is one contribution.
Status Prover::conclude_chunk(int chunk) const {
  const int contributions = combines_ ? world_size_ : 1;
  for (int rank = 0; rank < world_size_; ++rank) {
    if (!wants(plan_, rank, chunk)) continue;
    const int mine = value(rank, chunk).expression;
    if (mine == Symbols::kNothing || symbols_.count(mine) != contributions)
      return internal_error(whose(rank, chunk) + "a contribution is lost");
    if (combines_ && !symbols_.is_finished(mine))
      return internal_error(whose(rank, chunk) + "the result is unfinished");
  }
  return {};
}

Cost Prover::cost() const {
  return {*std::max_element(depth_.begin(), depth_.end()),
          *std::max_element(sent_chunks_.begin(), sent_chunks_.end()),
          *std::max_element(received_chunks_.begin(), received_chunks_.end()),
          std::accumulate(sent_chunks_.begin(), sent_chunks_.end(), int64_t{0})};
}

}  // namespace tutti
