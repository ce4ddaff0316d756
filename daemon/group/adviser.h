// The leader's dealings with the tuner, for one epoch: what it is asked, told and shown.
//
// WHAT IS MEASURED. How long operations take on the leader's own host, from where its ranks were
// ready. Hosts that receive data say how fast it came. The leader asks each member, when it first
// works with it and again after a minute's rest or when reality drifts, how soon it answers.
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
  using Ask = std::function<void(int host, const v1::Probe& probe)>;
  struct Options {
    bool tries_all = false;     // Also where the bits of a result depend on the strategy.
    uint64_t padding_most = 0;  // Of a probe.
  };
  Adviser(Tuner& tuner, const std::vector<Host>& hosts, int self, const Options& options, Ask ask);

  // An operation starts, by this strategy between hosts, which it left open. Answers with the one
  // that operations of its kind should run by, where that is another and not asked for already.
  std::optional<Strategy> recommend(uint32_t number, const Communicator& group,
                                    const Signature& signature, const Strategy& used);
  // It was started; its time is waited for.
  void started(uint32_t number, uint64_t seq, const Communicator& group, const Signature& signature,
               const Strategies& used);
  void took(uint32_t number, uint64_t seq, uint32_t us);

  void heard_from(int host, TimePoint now);
  void answered(int host, const v1::Probe& probe, TimePoint now);
  // How fast data comes in there; figures that cannot be are not taken. False: of no host.
  bool learn(int host, const v1::Rates& rates);

 private:
  struct Watched {
    uint64_t seq = 0;
    Tuner::Case operation;
    Strategy used;
  };

  Tuner::Case case_of(uint32_t number, const Communicator& group, const Signature& signature);
  bool may_try(const Signature& signature, const Communicator& group) const;
  void ask(int host, const Prober::Question& question);
  uint64_t padding() const;  // Of probes in a job of this size.

  Tuner& tuner_;
  const std::vector<Host>& hosts_;
  const int self_;
  const Options options_;
  const Ask ask_;
  Prober prober_;
  std::map<uint32_t, int> host_sets_;    // By group.
  std::map<uint32_t, Watched> watched_;  // By group: its last operation.
  std::map<std::tuple<uint32_t, Collective, int>, Strategy>
      recommended_;  // By group and size class.
};

}  // namespace tutti
