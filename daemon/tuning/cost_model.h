// Predicts the duration of an operation by a model of messages and bytes, in the manner of the
// alpha-beta (Hockney) model. Pure; no history.
//
// An operation's tensor travels in slices. One slice takes
//   rounds x message + path x (frame + piece x (byte + 2 copy))
// from the first rank's contribution to the last rank's result, and each further slice ends one
// interval later. The interval is the time that the busiest host's link, worker thread, data
// streams, folding ranks, memory or cores need per slice, whichever needs most, but at least a
// slice's time divided by the slices in flight. Where hosts share a machine, their work together
// must fit its cores. So
//   time = slice + (slices - 1) x interval
// The ranks of a host add one pass over their tensors, the same for all strategies between hosts.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "daemon/schedule/schedule.h"

namespace tutti {

// The cost of a message and of a byte between two hosts.
struct LinkCost {
  double message_us = 60.0;  // Dominated by the wake-up of the receiver.
  double byte_us = 0.0005;   // 2 GB/s.
  bool operator==(const LinkCost&) const = default;
};

// The cost of work within a host, each on one core, and how many share it. By default the worker's
// one thread does everything; that is what `auto` compares strategies by.
struct HostCost {
  double hop_us = 30.0;          // From a trainer to its worker, or back.
  double frame_us = 6.0;         // To send or receive a frame, whatever its size.
  double copy_byte_us = 0.0001;  // Into a socket or out of it: 10 GB/s.
  double fold_byte_us = 0.0001;  // Per byte of each tensor read or written.
  // For all cores together, per byte read or written: 100 GB/s. A socket's copy does both.
  double memory_byte_us = 0.00001;
  int cores = 1;
  // Threads that carry payloads of kStreamedBytesMin or more; 0: the worker's thread does.
  int streams = 0;
  int folding_ranks = 0;  // That wait, and fold meanwhile; 0: the worker's thread folds.
};

struct Pipeline {
  uint64_t slice_bytes = uint64_t{1} << 20;
  int slices_in_flight = 4;
};

// The operation to predict. `bytes`: of a rank's block in all_gather and reduce_scatter, else of
// the whole tensor.
struct Workload {
  Collective collective = Collective::all_reduce;
  uint64_t bytes = 0;
  int hosts = 1;
  int ranks = 1;
  double hosts_a_core = 0;  // Hosts per core of the machine that most of them share; 0: none.
};

// The messages of a strategy among the work's hosts, one rank each.
struct Traffic {
  int rounds = 0;
  int sent_chunks = 0;      // By the host that sends most.
  int received_chunks = 0;  // By the host that receives most.
  int path_chunks = 0;      // Sent one after the other until the last host has its result.
  double all_chunks = 0;    // Sent by all hosts together.
  int chunks = 1;
};
Traffic traffic_of(const Workload& work, const Strategy& global);

// The tensors of all ranks have at most so many bytes together where an operation goes by a raw
// plan (daemon/schedule/schedule.h), whose one round is for all of them.
constexpr uint64_t kRawBytesMax = 64 * 1024;
// The same of two hosts with a rank each, for one of the tensors: both send it whole at once, which
// are as many bytes as two rounds of halves have, and fold all of it. Hosts derive the plan alike:
// another limit is another protocol (proto/segment.h).
constexpr uint64_t kLoneRawBytesMax = 128 * 1024;
// Whether one does that need not be reproducible: an all_reduce of two hosts with a rank each under
// Centralized. With more ranks the bits would be others than under other strategies; with more
// hosts it would take more messages in all, and a link between any two.
bool goes_raw(const Workload& work, const Strategy& global);

// What most of a predicted time is spent on.
//   worker   the worker's thread: headers, and what no other thread carries or folds
//   rounds   waiting for one message after the other
//   wire     bytes between hosts
//   streams  copying into and out of the sockets of data streams
//   folds    the ranks that fold
//   memory   reading and writing, by all cores together
//   cores    all of a host's threads, or all hosts of a machine, on its cores
enum class Bound : uint8_t { worker, rounds, wire, streams, folds, memory, cores };
inline constexpr std::array<std::string_view, 7> kBoundNames = {
    "worker", "rounds", "wire", "streams", "folds", "memory", "cores"};
constexpr std::string_view name_of(Bound bound) { return kBoundNames[static_cast<size_t>(bound)]; }

struct Prediction {
  double start_us = 0;  // From the trainers to their workers, and back.
  double us = 0;        // From then on, to the last host's end.
  int rounds = 0;
  double sent_bytes = 0;  // By the host that sends most, to other hosts.
  Bound bound = Bound::worker;
};
Prediction predict(const Workload& work, const Traffic& traffic, const LinkCost& link,
                   const HostCost& host = {}, const Pipeline& pipeline = {});

// The strategies between hosts that `auto` chooses from: those that differ for that many hosts.
// Never empty.
std::vector<Strategy> candidates(Collective collective, int hosts);

// Replaces every `automatic` level of `asked` by prediction alone, for tensors of that many bytes.
// `hosts`: the ranks of each host. The local level becomes centralized: the ranks of a host are
// then folded in one pass over memory, which no other local strategy can beat. The global level
// becomes the candidate with the least predicted time.
Strategies choose(const Strategies& asked, Collective collective, uint64_t bytes,
                  const std::vector<std::vector<int>>& hosts, const LinkCost& link = {});

}  // namespace tutti
