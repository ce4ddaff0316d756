// A host's part in measuring: each reports the rates of what it receives, and answers the probes of
// the leader's, which passes what is measured to the job's tuner, and asks that for the strategy of
// each operation that leaves it open. Loop thread only.
//
// Measured are the duration of operations on the leader's host from the start of the operation
// there, unless they are reproducible, the rate of data as reported by the hosts that receive it,
// and the delay of answers to probes, which the leader sends to each follower at the first
// operation with it, and again at least Prober::kAgainAfter later.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "daemon/base/signature.h"
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
  // between hosts that operations of its kind should use from now on, if that is another one and
  // not recommended already. For a reproducible one: the strategy in any order, which it goes by.
  std::optional<Strategy> recommend(const EpochOp& op, const Communicator& group,
                                    const Signature& signature, const Strategies& used,
                                    const Strategies& asked, TimePoint now);

  // Sends the rates that changed. Called with each call, so that an idle job sends nothing.
  void report_rates(TimePoint now);

  // Messages from other hosts. Not OK: the host broke the protocol.
  Status on_probe(int host, const v1::Probe& probe, TimePoint now);
  // Implausible rates are ignored.
  Status on_rates(int host, const v1::Rates& rates);

 private:
  // An operation whose end is awaited.
  struct Watched {
    uint64_t number = 0;
    Tuner::Case operation;
    Strategy used;
  };

  const std::string& name_of(int host) const { return hosts_[static_cast<size_t>(host)].name; }
  Tuner::Case case_of(uint32_t number, const Communicator& group, const Signature& signature);
  void watch(const EpochOp& op, const Communicator& group, const Signature& signature,
             const Strategies& used);
  void send_probe(int host, const Prober::Question& question);
  void on_answer(int host, const v1::Probe& answer, TimePoint now);

  const std::vector<Host>& hosts_;
  const int self_;
  RateMeter& rates_;
  const SendControl send_;
  v1::Probe machine_;  // Describes this host, as an answer to a probe.
  OpClock clock_;
  // The leader's alone.
  std::shared_ptr<Tuner> tuner_;
  const uint64_t padding_;  // Bytes of a probe.
  Prober prober_;
  std::map<uint32_t, int> host_sets_;    // By group.
  std::map<uint32_t, Watched> watched_;  // The last operation of each group.
  std::map<std::tuple<uint32_t, Collective, int>, Strategy>
      recommended_;  // By group and size class.
};

}  // namespace tutti
