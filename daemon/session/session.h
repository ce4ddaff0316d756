// One trainer: its socket, its segment, its rings. The only room that knows memfd, Unix sockets and
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

#include "daemon/base/fd.h"
#include "daemon/base/loop.h"
#include "daemon/base/status.h"
#include "daemon/schedule/schedule.h"
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

// The trainer's greeting, without its protobuf.
struct TrainerHello {
  uint32_t version = 0;
  std::string job;
  std::string token;
  uint32_t rank = 0;
  uint32_t world_size = 0;
  uint32_t timeout_ms = 0;
  uint32_t pid = 0;
};

// Reads one hello from a fresh connection without blocking the loop. Calls `done` once: with the
// hello, or with why there is none (garbage, too long, closed, past `deadline`). The socket stays
// the caller's; destroying the reader cancels it.
class HelloReader {
 public:
  using Done = std::function<void(Result<TrainerHello>)>;
  virtual ~HelloReader() = default;
};
std::unique_ptr<HelloReader> read_hello(Loop& loop, int socket, TimePoint deadline,
                                        HelloReader::Done done);

// Tells a connected trainer that it is refused, and why; never blocks. The caller then closes the
// socket.
void refuse_trainer(int socket, const Status& status);

// ---- The session ----

// A checked request. `in` and `out` point into the segment and hold the sizes the collective asks
// for (see tensor_bytes); nullptr where the rank has no such side or count is 0.
struct OpRequest {
  uint32_t slot = 0;
  uint32_t group = 0;
  Collective collective = Collective::barrier;
  Dtype dtype = Dtype::f32;
  Op op = Op::sum;
  uint32_t root = 0;
  uint64_t count = 0;
  Strategies strategies;
  uint64_t layout = 0;     // Of the list of tensors this is a part of; 0: none.
  uint32_t following = 0;  // Requests of that list to come.
  std::byte* in = nullptr;
  std::byte* out = nullptr;
  uint32_t timeout_ms = 0;  // 0: the session's default.
  uint32_t waited_ms = 0;   // Of that, before the request came.
  // Not OK: the request is refused, but it takes its place in the group's order so that all ranks
  // learn of it.
  Status invalid;
  std::shared_ptr<const void> memory;  // Keeps the mapping while `in` and `out` are in use.
};

class Session {
 public:
  // Destroy no session inside its own event: post that.
  class Events {
   public:
    virtual ~Events() = default;
    virtual void on_request(Session& session, OpRequest request) = 0;
    virtual void on_subgroup(Session& session, uint32_t slot, std::vector<uint32_t> ranks) = 0;
    // The trainer is gone: `leaving` on purpose, else it died or broke the protocol (`why` says
    // how). The session makes no further call.
    virtual void on_end(Session& session, bool leaving, Status why) = 0;
    // The trainer stopped while it worked on the other ranks' memory, and may go on any time: the
    // epoch cannot.
    virtual void on_stuck(Session& session, Status why) = 0;
  };

  virtual ~Session() = default;
  // The trainer's process as seen from here; 0: it is not.
  virtual pid_t process() const = 0;
  // Group sizes decide how large a side must be: announce them before the first request of a group
  // can come.
  virtual void set_group(uint32_t group, uint32_t rank_in_group, uint32_t group_size) = 0;
  // Whether operations may be settled on the board, where there is one (see share_board).
  virtual void use_board(bool use) = 0;
  // What this rank did there.
  struct Figures {
    uint64_t operations = 0;  // That ended OK.
    uint64_t failures = 0;
    uint64_t bytes = 0;  // Of the tensors of those that ended OK.
  };
  virtual Figures board_figures() const = 0;
  // Hands the trainer its descriptors and starts serving. Once.
  virtual Status welcome(uint32_t epoch, const std::vector<std::string>& hosts) = 0;
  // Instead of welcome(): tells the trainer why not. Destroy the session then.
  virtual void refuse(const Status& why) = 0;
  // Answers a request: at most once a slot and request; wakes who waits. `value`: of kVerbSubgroup.
  virtual void complete(uint32_t slot, const Status& status, uint32_t value = 0) = 0;
};

// Makes the segment and watches the socket (for an early end) but serves nothing until welcome().
// Takes the socket where a session is made, else leaves it.
// UNAVAILABLE: the trainer has ended already. INVALID_ARGUMENT: no such `segment_bytes`.
Result<std::unique_ptr<Session>> open_session(Loop& loop, Fd& socket, uint64_t segment_bytes,
                                              Session::Events& events);

// Lets the ranks of a job whose ranks are all on this host settle ordinary operations among
// themselves (proto/board.h). `sessions`: all of them, by rank, none welcomed yet; then welcome
// all. More than kBoardRanks: they do without.
Status share_board(Loop& loop, std::span<Session* const> sessions);

}  // namespace tutti
