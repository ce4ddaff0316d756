// Connects one epoch's leader with the job's tuner: passes measurements to it, and asks it for the
// strategy of each operation that leaves it open. Loop thread only.
//
// Measured are the duration of operations on the leader's host from the start of the operation
// there, the rate of data as reported by the hosts that receive it, and the delay of answers to
// probes, which the leader sends to each follower at the first operation with it, and again at
// least Prober::kAgainAfter later.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "daemon/base/signature.h"
#include "daemon/group/communicator.h"
#include "daemon/group/messages.h"
#include "daemon/tuning/tuning.h"
#include "proto/group.pb.h"

namespace tutti {

class Adviser {
 public:
  using SendProbe = std::function<void(int host, const v1::Probe& probe)>;
  // `padding_most`: bytes of a probe.
  Adviser(Tuner& tuner, const std::vector<Host>& hosts, int self, uint64_t padding_most,
          SendProbe send_probe);

  // An operation that left the strategy between hosts open starts with `used`. Returns the strategy
  // that operations of its kind should use, if that is another one and not recommended already.
  // `number`: the group's.
  std::optional<Strategy> recommend(uint32_t number, const Communicator& group,
                                    const Signature& signature, const Strategy& used);
  void on_started(const EpochOp& op, const Communicator& group, const Signature& signature,
                  const Strategies& used);
  // It ended, after that many microseconds; 0: not measured.
  void on_ended(const EpochOp& op, uint32_t us);

  void probe_if_due(int host, TimePoint now);
  void on_answer(int host, const v1::Probe& probe, TimePoint now);
  // The rates of data that the host receives; implausible ones are ignored. False: one is from a
  // host that does not exist.
  bool on_rates(int host, const v1::Rates& rates);

 private:
  // An operation whose end is awaited.
  struct Watched {
    uint64_t number = 0;
    Tuner::Case operation;
    Strategy used;
  };

  Tuner::Case case_of(uint32_t number, const Communicator& group, const Signature& signature);
  void probe(int host, TimePoint now);
  void send(int host, const Prober::Question& question);

  Tuner& tuner_;
  const std::vector<Host>& hosts_;
  const int self_;
  const uint64_t padding_most_;
  const SendProbe send_probe_;
  Prober prober_;
  std::map<uint32_t, int> host_sets_;    // By group.
  std::map<uint32_t, Watched> watched_;  // The last operation of each group.
  std::map<std::tuple<uint32_t, Collective, int>, Strategy>
      recommended_;  // By group and size class.
};

}  // namespace tutti
