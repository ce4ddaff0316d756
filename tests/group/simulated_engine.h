// Stands in for the engine of one host: runs the steps of the real schedules over messages that
// carry a number in place of a tensor's slice.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "daemon/group/communicator.h"
#include "daemon/group/follower.h"
#include "daemon/schedule/schedule.h"

namespace tutti::simulated {

struct Frame {
  EpochOp op;
  int from = 0;  // Hosts.
  int ordinal = 0;
  int slice = 0;
  int chunk = 0;
  uint64_t agreement = 0;
  uint64_t value = 0;
};

// The plan among a group's hosts, one contributor each, and every host's moves.
struct HostPlan {
  Plan plan;
  int chunks = 0;
  struct Move : Step {
    int ordinal = 0;  // Of the message between the two.
  };
  std::vector<std::vector<Move>> moves;
};
const HostPlan& host_plan(const Signature& signature, const Strategy& among,
                          const Communicator& group);

class Engine {
 public:
  static constexpr int kSlices = 2;
  struct Hooks {
    std::function<bool(int host, const Frame& frame)> send;  // False: not now.
    std::function<void(const EpochOp& op, int from)> mismatch;
    // This host's contribution to a chunk.
    std::function<uint64_t(const EpochOp& op, int chunk, int slice)> contribution;
    // All slices have run. `values`: by slice, then chunk.
    std::function<void(const EpochOp& op, const std::vector<std::vector<uint64_t>>& values)> done;
  };
  Engine(Hooks hooks, int window) : hooks_(std::move(hooks)), window_(window) {}

  void start(const Start& start, const Communicator& group, const HostPlan& plan) {
    Run& run = runs_[start.op];
    run = {&group, &plan, start.agreement, {}};
    for (int slice = 0; slice < kSlices; ++slice) {
      std::vector<uint64_t> values(static_cast<size_t>(plan.chunks));
      for (int chunk = 0; chunk < plan.chunks; ++chunk)
        if (contributes(plan.plan, group.self_in_topology(), chunk))
          values[static_cast<size_t>(chunk)] = hooks_.contribution(start.op, chunk, slice);
      run.values.push_back(std::move(values));
    }
    std::vector<int> others;
    for (const Frame& frame : mail_[start.op])
      if (frame.agreement != run.agreement) others.push_back(frame.from);
    for (const int from : others) hooks_.mismatch(start.op, from);
  }

  void take(const Frame& frame) {
    const auto run = runs_.find(frame.op);
    if (run != runs_.end() && run->second.agreement != frame.agreement)
      return hooks_.mismatch(frame.op, frame.from);
    mail_[frame.op].push_back(frame);
  }

  void forget(const EpochOp& op) {
    runs_.erase(op);
    mail_.erase(op);
  }

  // Returns the operations that ran; a link may still send their data.
  std::vector<EpochOp> abort() {
    std::vector<EpochOp> lent;
    for (const auto& [op, run] : runs_) lent.push_back(op);
    runs_.clear();
    mail_.clear();
    return lent;
  }

  // Runs each group's oldest operations as far as possible.
  void pump() {
    for (bool more = true; more;) {
      more = false;
      std::vector<EpochOp> ended;
      int before = 0;
      uint32_t group = ~0u;
      for (auto& [op, run] : runs_) {
        before = op.group == group ? before + 1 : 0;
        group = op.group;
        if (before < window_ && advance(op, run)) ended.push_back(op);
      }
      for (const EpochOp& op : ended) {
        const auto values = std::move(runs_.at(op).values);
        forget(op);
        hooks_.done(op, values);
        more = true;
      }
    }
  }

  std::pair<std::string, int> blocker(const EpochOp& op) const {
    const auto found = runs_.find(op);
    if (found == runs_.end()) return {"an earlier operation", -1};
    for (const int next : found->second.next) {
      const std::vector<Move>& moves = moves_of(found->second);
      if (static_cast<size_t>(next) == moves.size()) continue;
      const int peer = moves[static_cast<size_t>(next)].peer;
      if (peer >= 0)
        return {"data", found->second.group->topology()[static_cast<size_t>(peer)].front()};
    }
    return {"an earlier operation", -1};
  }
  bool runs(const EpochOp& op) const { return runs_.contains(op); }
  size_t size() const { return runs_.size() + mail_.size(); }

 private:
  struct Run {
    const Communicator* group = nullptr;
    const HostPlan* plan = nullptr;
    uint64_t agreement = 0;
    std::vector<std::vector<uint64_t>> values;  // By slice, then chunk.
    std::vector<int> next = std::vector<int>(kSlices);
  };

  using Move = HostPlan::Move;
  static const std::vector<Move>& moves_of(const Run& run) {
    return run.plan->moves[static_cast<size_t>(run.group->self_in_topology())];
  }

  // Whether all steps are done.
  bool advance(const EpochOp& op, Run& run) {
    bool all = true;
    for (int slice = 0; slice < kSlices; ++slice) {
      int& next = run.next[static_cast<size_t>(slice)];
      const std::vector<Move>& moves = moves_of(run);
      while (static_cast<size_t>(next) < moves.size() &&
             take_move(op, run, slice, moves[static_cast<size_t>(next)]))
        ++next;
      all = all && static_cast<size_t>(next) == moves.size();
    }
    return all;
  }

  bool take_move(const EpochOp& op, Run& run, int slice, const Move& move) {
    if (move.kind == StepKind::finish) return true;
    uint64_t& value = run.values[static_cast<size_t>(slice)][static_cast<size_t>(move.chunk)];
    const auto& places = run.group->hosts();
    const int peer = places[static_cast<size_t>(move.peer)];
    if (move.kind == StepKind::send || move.kind == StepKind::notify)
      return hooks_.send(peer, {op, places[static_cast<size_t>(run.group->self_in_topology())],
                                move.ordinal, slice, move.chunk, run.agreement, value});
    std::vector<Frame>& mail = mail_[op];
    const auto found = std::find_if(mail.begin(), mail.end(), [&](const Frame& frame) {
      return frame.from == peer && frame.ordinal == move.ordinal && frame.slice == slice &&
             frame.agreement == run.agreement;
    });
    if (found == mail.end()) return false;
    if (move.kind == StepKind::recv_reduce) value += found->value;
    if (move.kind == StepKind::recv) value = found->value;
    mail.erase(found);
    return true;
  }

  const Hooks hooks_;
  const int window_;
  std::map<EpochOp, Run> runs_;
  std::map<EpochOp, std::vector<Frame>> mail_;
};

}  // namespace tutti::simulated
