// What an operation should cost, by a small model of messages and bytes. Pure; no history.
//
// An operation's tensor travels in slices. One slice takes
//   rounds x message + path x (frame + piece x (byte + 2 copy))
// from the first rank's contribution to the last rank's result, and in its wake the next one ends
// an interval later: as long as the busiest host's link, or its worker's thread, is busy with a
// slice, and never less than a slice's time divided by the slices in flight. Where hosts share a
// machine, all their work together has to fit its cores. So
//   time = slice + (slices - 1) x interval
// To this the ranks of a host add one pass over their tensors; that is the same for all strategies
// between hosts.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/schedule/schedule.h"

namespace tutti {

// What a message and a byte cost between two hosts.
struct LinkCost {
  double message_us = 60.0;  // A wake-up at the other end.
  double byte_us = 0.0005;   // 2 GB/s.
  bool operator==(const LinkCost&) const = default;
};

// What work costs within a host.
struct HostCost {
  double hop_us = 30.0;          // From a trainer to its worker, or back.
  double frame_us = 6.0;         // To send or receive a frame, whatever its size.
  double copy_byte_us = 0.0001;  // Into a socket or out of it: 10 GB/s.
  double fold_byte_us = 0.0001;  // Of each tensor that is read or written.
};

struct Pipeline {
  uint64_t slice_bytes = uint64_t{1} << 20;
  int slices_in_flight = 4;
};

// An operation as the model sees it. `bytes` as a call counts them: of a rank's block in all_gather
// and reduce_scatter, else of the whole tensor.
struct Work {
  Collective collective = Collective::all_reduce;
  uint64_t bytes = 0;
  int hosts = 1;
  int ranks = 1;
  double hosts_a_core = 0;  // Of the machine that most of them share, where any do.
};

// What one strategy among the leaders of so many hosts sends, whatever the bytes.
struct Traffic {
  int rounds = 0;
  int sent_chunks = 0;      // Of the host that sends most; a chunk is a leader's here.
  int received_chunks = 0;  // Of the host that receives most.
  int path_chunks = 0;      // Sent one after the other until the last host has its result.
  double all_chunks = 0;    // Sent by all hosts together.
  int chunks = 1;
};
Traffic traffic_of(Collective collective, const Strategy& global, int hosts);

struct Prediction {
  double start_us = 0;  // Until all have told the leader, and it has told all.
  double us = 0;        // From then on, to the last host's end.
  int rounds = 0;
  double sent_bytes = 0;  // Between hosts, by the host that sends most.
};
Prediction predict(const Work& work, const Traffic& traffic, const LinkCost& link,
                   const HostCost& host = {}, const Pipeline& pipeline = {});

// The strategies between hosts that `auto` chooses from: those that differ for so many hosts. Never
// empty.
std::vector<Strategy> candidates(Collective collective, int hosts);

// `asked` with every `automatic` level decided by prediction alone, for tensors of that many bytes
// on hosts so occupied. Local auto is always centralized: the engine folds all ranks of a host in
// one pass over memory, which no other local plan can beat. Global auto is the candidate with the
// least predicted time.
Strategies choose(const Strategies& asked, Collective collective, uint64_t bytes,
                  const std::vector<std::vector<int>>& hosts, const LinkCost& link = {});

}  // namespace tutti
