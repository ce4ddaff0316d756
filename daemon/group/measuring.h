// A host's part in measuring: the leader's chooses strategies by what it measures and what hosts
// report (see adviser.h); the others answer its probes and report the rates of what they receive.
// Loop thread only.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "daemon/group/adviser.h"
#include "daemon/group/communicator.h"
#include "daemon/group/messages.h"
#include "daemon/tuning/tuning.h"
#include "proto/group.pb.h"

namespace tutti {

class Measuring {
 public:
  using SendControl = std::function<void(int host, v1::Control control)>;
  // `hosts` and `rates` must outlive it. The first host leads, with `tuner`; null: one of its own.
  Measuring(std::shared_ptr<Tuner> tuner, const std::vector<Host>& hosts, int self,
            uint64_t slice_bytes, RateMeter& rates, SendControl send);

  void on_started(const EpochOp& op, TimePoint now) { clock_.started(op, now); }
  void on_ended(const EpochOp& op, TimePoint now);

  // The leader's, at the start of an operation whose ranks asked for `asked`. Returns the strategy
  // between hosts that operations of its kind should use from now on, if that is another one.
  std::optional<Strategy> recommend(const EpochOp& op, const Communicator& group,
                                    const Signature& signature, const Strategies& used,
                                    const Strategies& asked, TimePoint now);

  // Sends the rates that changed. Called with each call, so that an idle job sends nothing.
  void report_rates(TimePoint now);

  // Messages from other hosts. Not OK: the host broke the protocol.
  Status on_probe(int host, const v1::Probe& probe, TimePoint now);
  Status on_rates(int host, const v1::Rates& rates);

 private:
  const int self_;
  RateMeter& rates_;
  const SendControl send_;
  v1::Probe machine_;  // Describes this host, as an answer to a probe.
  OpClock clock_;
  std::shared_ptr<Tuner> tuner_;    // Of the leader.
  std::optional<Adviser> adviser_;  // Of the leader.
};

}  // namespace tutti
