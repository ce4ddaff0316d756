// One trainer as its worker serves it: its Unix socket, its shared-memory segment, and its seat on
// the board of its host.
//
// All calls and events are on the loop's thread. A trainer cannot crash, block or corrupt the
// worker by what it writes: a request is copied out of shared memory once, checked, and only the
// copy is used.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/base/call.h"
#include "daemon/base/fd.h"
#include "daemon/base/loop.h"
#include "daemon/session/host_recorder.h"  // IWYU pragma: export
#include "proto/board.h"
#include "proto/session.pb.h"
#include "proto/types.h"

namespace tutti {

// ---- Messages on Unix sockets ----

// Sockets are non-blocking. `type`: SOCK_STREAM or SOCK_SEQPACKET.

// Replaces the file of a socket that no process serves any more. ALREADY_EXISTS: one serves it, or
// the file is no socket. `mode`: permissions of the file.
Result<Fd> listen_unix(const std::string& path, int type, int mode);
Result<Fd> connect_unix(const std::string& path, int type);

// Sends one message with descriptors (borrowed). Does not block: UNAVAILABLE where the peer is gone
// or its queue is full.
Status send_packet(int socket, const std::string& bytes, std::span<const int> descriptors);
struct Packet {
  std::string bytes;
  std::vector<Fd> descriptors;
};
// Receives one message of a SEQPACKET socket. nullopt: there is none now. UNAVAILABLE: the peer
// closed.
Result<std::optional<Packet>> receive_packet(int socket);

struct PeerCredentials {
  uint32_t uid = 0;
  uint32_t gid = 0;
  uint32_t pid = 0;
};
Result<PeerCredentials> peer_credentials(int socket);  // SO_PEERCRED
// Its supplementary groups when it connected (SO_PEERGROUPS).
Result<std::vector<uint32_t>> peer_groups(int socket);

// Reads one hello from a new connection without blocking the loop. Calls `done` once, with the
// hello or an error (no hello, too long, closed, past `deadline`), unless the reader is destroyed
// before. The socket is borrowed.
class HelloReader {
 public:
  using Done = std::function<void(Result<v1::Hello>)>;
  virtual ~HelloReader() = default;
};
std::unique_ptr<HelloReader> read_hello(Loop& loop, int socket, TimePoint deadline,
                                        HelloReader::Done done);

// Tells a connected trainer that it is refused, and why. Never blocks. The caller closes the socket
// then.
void refuse_trainer(int socket, const Status& status);

// ---- The session ----

// Whether this machine gives memory as segments are made of: a sealed memfd.
Status check_sealed_memory();

// Memory that a rank offers to its worker, as in MemoryOffer of proto/board.h; copied and checked
// as far as that goes without a driver.
struct OfferedMemory {
  OfferKind kind = OfferKind::ipc;
  uint64_t number = 0;
  uint64_t bytes = 0;
  uint64_t offset = 0;  // Of words and staging: from the start of the segment.
  std::array<char, sizeof(MemoryOffer::gpu)> gpu{};
  std::vector<std::byte> ipc;
  std::vector<uint64_t> chunk_bytes;
  std::vector<Fd> descriptors;        // Of the chunks.
  std::byte* pinned = nullptr;        // Words and staging, as mapped here.
  std::shared_ptr<const void> keeps;  // What `pinned` lies in.
};

class Session {
 public:
  // Called on the loop's thread. A session must not be destroyed inside its own event: post that.
  class Events {
   public:
    virtual ~Events() = default;
    // A checked request of an operation that the ranks of the host do not settle among themselves;
    // `done` is empty. Called once for each; those of one group come in any order.
    virtual void on_request(Session& session, Call call) = 0;
    // More of the operation's tensor is in its window.
    virtual void on_window_filled(Session& session, uint32_t group, uint64_t number) = 0;
    // The rank asks for a sub-group of these ranks of the job; `channel` is as in
    // BoardSubgroupRequest. Answer with answer_subgroup(), once.
    virtual void on_subgroup_request(Session& session, std::vector<uint32_t> ranks,
                                     uint64_t channel) = 0;
    // The rank offers memory. Answer with answer_offer(), once. In requests, device memory is named
    // by the offers' numbers, and words by their offsets from the start of the segment.
    virtual void on_offer(Session& session, OfferedMemory offer) = 0;
    // The trainer is gone: `leaving` on purpose, else it died or broke the protocol (`why` says
    // how). The session makes no further call.
    virtual void on_end(Session& session, bool leaving, Status why) = 0;
    // The trainer stopped while it wrote to the other ranks' memory, and may go on at any time: the
    // epoch must end.
    virtual void on_stuck(Session& session, Status why) = 0;
  };

  virtual ~Session() = default;
  // Calls on_end() at once where the trainer is gone and the loop has not handled that yet.
  virtual void poll_end() = 0;
  // The trainer's process; 0: it is not visible from here.
  virtual pid_t pid() const = 0;
  // Makes the segment smaller than open_session() was given; before create_board().
  virtual void set_segment_bytes(uint64_t bytes) = 0;
  // Whether the ranks of the host may settle operations among themselves.
  virtual void set_ranks_decide(bool let) = 0;
  // The rank's own counters; not checked.
  struct Counters {
    uint64_t operations = 0;  // Ended OK.
    uint64_t failures = 0;
    uint64_t bytes = 0;  // Of the tensors of operations that ended OK.
  };
  virtual Counters counters() const = 0;
  // For the segment: what has been touched.
  virtual uint64_t memory_bytes() const = 0;
  // Sends the trainer its descriptors and starts serving it. `hosts`: by rank of the job. Call
  // once, after create_board().
  virtual Status welcome(uint32_t epoch, const std::vector<std::string>& hosts) = 0;
  // Instead of welcome(): tells the trainer why not. Destroy the session then.
  virtual void refuse(const Status& why) = 0;
  // Ends an operation for all ranks of this host, and wakes those that wait; any of their sessions
  // may be called. Does nothing where the operation is over, ranks fold it, or none has begun it.
  virtual void complete(uint32_t group, uint64_t number, const Status& status) = 0;
  // The first `bytes` of the operation's tensor are reduced: results lie in every window in their
  // place, and the ranks may use that place again.
  virtual void release_window(uint32_t group, uint64_t number, uint64_t bytes) = 0;
  // Calls on_request() at once for what ranks of this host asked for up to this operation.
  virtual void collect_requests(uint32_t group, uint64_t number) = 0;
  // Lets the ranks fold an operation whose requests all came. False: they disagree, or the group
  // has members on other hosts.
  virtual bool let_ranks_fold(uint32_t group, uint64_t number) = 0;
  // Answers on_subgroup_request(): the new group and its ranks, or why there is none.
  virtual void answer_subgroup(const Result<uint32_t>& group,
                               const std::vector<uint32_t>& ranks) = 0;
  // Answers on_offer().
  virtual void answer_offer(const Status& status) = 0;
};

// Watches the socket for an early end, but serves nothing until welcome(). create_board() makes the
// segment, of `segment_bytes`. Takes the socket where it returns a session, else leaves it to the
// caller. UNAVAILABLE: the trainer has ended already. INVALID_ARGUMENT: no such `segment_bytes`.
// `told_pid`: for messages, where the trainer's process is not visible from here.
Result<std::unique_ptr<Session>> open_session(Loop& loop, Fd& socket, uint64_t segment_bytes,
                                              Session::Events& events, pid_t told_pid = 0);

// Makes the board of a host's ranks and their flight recorder, which it returns. `sessions`:
// theirs, in the order of the ranks, none welcomed yet (nullptr: the rank ended already); welcome
// all afterwards. `ranks`: the same ranks of the job. `window_bytes`: see BoardHeader. `epoch`: for
// the recorder. RESOURCE_EXHAUSTED: more than kSeatsMax ranks.
Result<std::shared_ptr<HostRecorder>> create_board(Loop& loop, std::span<Session* const> sessions,
                                                   std::span<const uint32_t> ranks,
                                                   uint32_t world_size, uint64_t window_bytes = 0,
                                                   uint32_t epoch = 0);

}  // namespace tutti
