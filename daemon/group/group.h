// Who takes part: one epoch of a job, as seen by the worker of one host. Loop thread only.
//
// AGREEMENT WITHOUT A WORD. An operation is the number-th call of every rank of its group. A host
// starts it as soon as all its own ranks have called it and ask for the same, and from then on
// takes part in it whatever it hears. Every data frame carries a hash of what its sender runs:
// signature, strategies, slices, members. A frame whose hash is another's is not used. Schedules
// are such that no host completes an operation before all have started it and their hashes were
// compared, neighbour by neighbour (daemon/schedule/checker.h proves it of each). Hence the one
// sentence everything rests on:
//
//     While a host has not started an operation, or runs another, nobody has completed it.
//
// So it can still fail for everyone; and once all have started the same, only the data can be slow.
//
// FAILURES have one author: the leader, the worker of rank 0's host. It hears from hosts that
// refuse an operation (their ranks disagree, or one asks for nonsense), that met another hash, or
// whose deadline has passed, and tells every host of the group the same Fail, each in the same
// order. A host keeps the first that it hears of an operation, for ranks that call it later as
// well, and ignores others. Why nobody can have been told OK: whoever refuses has not started, and
// a mismatch is two hashes.
//   Late: the leader asks all hosts (Query). One that has not started refuses from then on, and
// says which of its ranks have not called: they are named. Where all have started the same, data
// moves too slowly, and the epoch ends. A host that does not answer within kHostsAnswer is to
// blame; and so is the leader for a member that hears nothing within kLeaderAnswers.
//   Who waits in vain for hosts that run or want something else, and wait as well, without a frame
// between them: after kCompareAfter each says what it was asked for, and the leader compares.
//   Gone: a rank that dies or leaves has called a known number of operations of each group. Its
// host starts no later one, so those fail for all, in the order in which the leader tells who is
// gone; what it had called goes on.
//   A host, worker or link that is lost ends the epoch: once, with the cause, for everyone.
//
// STRATEGIES in force are a table per group, at first as the roster says, the same everywhere. A
// change is proposed by the leader; every host answers with a fence, a number that it will not
// start before it hears more; the new table is adopted from the highest fence on, so every host
// runs each operation by the same table, and none stops to wait while all answer soon.
//
// MEMORY is bounded: data for a host that has yet to start its operation has a budget (early.h).
//
// Member (member.h) and Leader (leader.h) are these rules and nothing else; Epoch gives them links,
// an engine, a clock and a log. tests/group/simulation_test.cc runs them through random histories.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/base/call.h"
#include "daemon/base/loop.h"
#include "daemon/base/roster.h"
#include "daemon/engine/engine.h"
#include "daemon/group/links.h"
#include "daemon/group/messages.h"
#include "daemon/transport/transport.h"
#include "daemon/tuning/tuning.h"

namespace tutti {

struct EpochOptions {
  uint32_t op_timeout_ms = 30'000;
  uint64_t slice_bytes = uint64_t{1} << 20;
  uint64_t early_bytes = uint64_t{8} << 20;  // To a host, of operations it has not started.
  bool auto_tries_all = false;  // Also where the bits of a result depend on the strategy.
};

struct EpochStats {
  uint64_t operations = 0;  // Calls of local ranks that ended OK.
  uint64_t failures = 0;    // ... with an error.
  uint64_t bytes = 0;       // Of the tensors of those that ended OK.
  uint64_t sent_bytes = 0;
  uint64_t sent_frames = 0;
  uint64_t received_bytes = 0;
};

class Epoch {
 public:
  virtual ~Epoch() = default;
  // Group 0 is the whole job; its ranks are the job's. A rank's calls of a group come in the order
  // of their numbers; those that are left out are over, or settled among the ranks of this host.
  // One that comes late ends with INVALID_ARGUMENT and changes nothing.
  virtual void submit(int rank, Call call) = 0;
  // A rank's window has more of the operation's tensor.
  virtual void filled(uint32_t group, uint64_t number) = 0;
  // The group of these ranks of group 0, in this order, as seen by local rank `rank`, which must be
  // one of them. Ranks that ask for the same list the same number of times get the same group.
  // INVALID_ARGUMENT.
  virtual Result<uint32_t> subgroup(int rank, const std::vector<uint32_t>& ranks) = 0;
  // A local rank takes part no more; OK: on purpose.
  virtual void leave(int rank, const Status& cause) = 0;
  virtual void abort(const Status& cause) = 0;
  virtual void set_strategy(const Strategies& strategies) = 0;

  // A link that `host` dialled and that showed this epoch's secret.
  virtual void adopt(const std::string& host, std::shared_ptr<Link> link,
                     std::shared_ptr<LoopHandler> handler) = 0;
  // The engine's way out, for keys of this epoch, to a host by its place in the group's plans.
  virtual Status send(const OpKey& key, int place, Outgoing frame) = 0;

  virtual const Roster& roster() const = 0;
  // Other hosts may still need this one: for its verdicts, or for what is under way.
  virtual bool needed() const = 0;
  // Every rank of the job is gone: nothing will come any more.
  virtual bool over() const = 0;
  // Some rank is gone or the epoch was aborted: its ranks may want to form the next one.
  virtual bool broken() const = 0;
  virtual const Status& cause() const = 0;  // Of the abort; OK: none.
  // The ranks that are gone, in the order in which this host learned of it.
  virtual const std::vector<int>& departures() const = 0;
  virtual EpochStats stats() const = 0;
};

struct EpochParts {
  Loop& loop;
  Transport& transport;
  Engine& engine;
  std::shared_ptr<Tuner> tuner = nullptr;  // Of all epochs of the job. Null: one of its own.
  // Lets the ranks of this host fold an operation of a group that has no others. False: they
  // cannot. Null: they never do.
  std::function<bool(uint32_t group, uint64_t number)> fold = nullptr;
  // So many bytes of the ranks' windows hold results and may be used again. May be null.
  std::function<void(uint32_t group, uint64_t number, uint64_t bytes)> passed = nullptr;
  // Brings what ranks of this host have called of the operation and not told yet: submit() comes
  // from inside. May be null.
  std::function<void(uint32_t group, uint64_t number)> gather = nullptr;
  // The epoch ends, whatever the cause and wherever it began. Called once, perhaps from inside
  // another call; before the ranks' calls end.
  std::function<void(const Status& cause)> on_over = nullptr;
};
// `host` must be in the roster.
std::unique_ptr<Epoch> make_epoch(const EpochParts& parts, Roster roster, const std::string& host,
                                  const EpochOptions& options);

}  // namespace tutti
