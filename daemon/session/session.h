// One trainer: its socket, its segment, its seat. The only room that knows memfd, Unix sockets and
// futex.
//
// All calls and events on the loop's thread. Nothing a trainer writes may crash, block or corrupt:
// a request is copied out of shared memory once, checked, and only the copy is used.
#pragma once

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
#include "proto/session.pb.h"
#include "proto/types.h"

namespace tutti {

// ---- Messages on Unix sockets ----

// A listening SOCK_STREAM or SOCK_SEQPACKET socket; replaces a dead socket file, refuses a live one
// (ALREADY_EXISTS). `mode`: permissions of the file. Both sockets are non-blocking.
Result<Fd> listen_unix(const std::string& path, int type, int mode);
Result<Fd> connect_unix(const std::string& path, int type);

// One datagram with descriptors, on a SEQPACKET socket. Does not block: UNAVAILABLE where the peer
// is gone or its queue is full.
Status send_packet(int socket, const std::string& bytes, std::span<const int> descriptors);
struct Packet {
  std::string bytes;
  std::vector<Fd> descriptors;
};
// nullopt: nothing there now. UNAVAILABLE: the peer closed.
Result<std::optional<Packet>> receive_packet(int socket);

struct PeerCredentials {
  uint32_t uid = 0;
  uint32_t gid = 0;
  uint32_t pid = 0;
};
Result<PeerCredentials> peer_credentials(int socket);  // SO_PEERCRED

// Reads one hello from a fresh connection without blocking the loop. Calls `done` once: with the
// hello, or with why there is none (garbage, too long, closed, past `deadline`). The socket stays
// the caller's; destroying the reader cancels it.
class HelloReader {
 public:
  using Done = std::function<void(Result<v1::Hello>)>;
  virtual ~HelloReader() = default;
};
std::unique_ptr<HelloReader> read_hello(Loop& loop, int socket, TimePoint deadline,
                                        HelloReader::Done done);

// Tells a connected trainer that it is refused, and why; never blocks. The caller then closes the
// socket.
void refuse_trainer(int socket, const Status& status);

// ---- The session ----

class Session {
 public:
  // Destroy no session inside its own event: post that.
  class Events {
   public:
    virtual ~Events() = default;
    // A checked request of an operation that the ranks of the host do not settle among themselves;
    // `done` is empty. Each comes once; those of one group in any order.
    virtual void on_request(Session& session, Call call) = 0;
    // More of a tensor has come to its window.
    virtual void on_window_filled(Session& session, uint32_t group, uint64_t number) = 0;
    // Answer with answer_subgroup(), once.
    virtual void on_subgroup_request(Session& session, std::vector<uint32_t> ranks) = 0;
    // The trainer is gone: `leaving` on purpose, else it died or broke the protocol (`why` says
    // how). The session makes no further call.
    virtual void on_end(Session& session, bool leaving, Status why) = 0;
    // The trainer stopped while it worked on the other ranks' memory, and may go on any time: the
    // epoch cannot.
    virtual void on_stuck(Session& session, Status why) = 0;
  };

  virtual ~Session() = default;
  // Calls on_end() where the trainer is gone and the loop has not come to it yet.
  virtual void poll_end() = 0;
  // The trainer's process as seen from here; 0: it is not.
  virtual pid_t pid() const = 0;
  // Whether the ranks of the host may settle operations among themselves.
  virtual void set_ranks_decide(bool let) = 0;
  // What this rank did, as it says.
  struct Counters {
    uint64_t operations = 0;  // That ended OK.
    uint64_t failures = 0;
    uint64_t bytes = 0;  // Of the tensors of those that ended OK.
  };
  virtual Counters counters() const = 0;
  // Hands the trainer its descriptors and starts serving. Once, after create_board().
  virtual Status welcome(uint32_t epoch, const std::vector<std::string>& hosts) = 0;
  // Instead of welcome(): tells the trainer why not. Destroy the session then.
  virtual void refuse(const Status& why) = 0;
  // Ends an operation, for all ranks of this host, whichever of their sessions is asked; wakes who
  // waits. Does nothing where it is over, or no rank has begun it.
  virtual void complete(uint32_t group, uint64_t number, const Status& status) = 0;
  // Of all windows of an operation so many bytes hold results and may be used again.
  virtual void release_window(uint32_t group, uint64_t number, uint64_t bytes) = 0;
  // Hands on at once what ranks of this host have asked for up to this operation.
  virtual void collect_requests(uint32_t group, uint64_t number) = 0;
  // Lets the ranks fold an operation all of whose requests came and agree. False: they cannot.
  virtual bool let_ranks_fold(uint32_t group, uint64_t number) = 0;
  virtual void answer_subgroup(const Result<uint32_t>& group,
                               const std::vector<uint32_t>& ranks) = 0;
};

// Makes the segment and watches the socket (for an early end) but serves nothing until welcome().
// Takes the socket where a session is made, else leaves it.
// UNAVAILABLE: the trainer has ended already. INVALID_ARGUMENT: no such `segment_bytes`.
Result<std::unique_ptr<Session>> open_session(Loop& loop, Fd& socket, uint64_t segment_bytes,
                                              Session::Events& events);

// Where the ranks of a host meet: makes their board. `sessions`: those of the host's ranks, in the
// order of their ranks, none welcomed yet (nullptr: it ended already); then welcome all. `ranks`:
// their ranks in the job. `window_bytes`: see BoardHeader. RESOURCE_EXHAUSTED: more than
// kSeatsMax.
Status create_board(Loop& loop, std::span<Session* const> sessions, std::span<const uint32_t> ranks,
                    uint32_t world_size, uint64_t window_bytes = 0);

}  // namespace tutti
