// The worker's side of the trainers of one host: their Unix sockets and hellos, the board where
// their ranks meet, and each one's life.
//
// All calls and events are on the loop's thread.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/loop.h"
#include "daemon/session/host_board.h"  // IWYU pragma: export
#include "daemon/session/trainer.h"     // IWYU pragma: export
#include "proto/session.pb.h"

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

// The descriptors that came with a message, which the caller owns from now on.
std::vector<Fd> descriptors_of(msghdr& message);

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
// before; `done` may destroy it. The socket is borrowed.
class HelloReader {
 public:
  using Done = std::function<void(Result<v1::Hello>)>;
  HelloReader(Loop& loop, int socket, TimePoint deadline, Done done);
  ~HelloReader() { stop(); }
  HelloReader(const HelloReader&) = delete;
  HelloReader& operator=(const HelloReader&) = delete;

 private:
  void read_some();
  uint32_t length() const;
  size_t bytes_wanted() const;
  bool length_ok();
  void decode();
  void stop();
  void finish(Result<v1::Hello> result);

  Loop& loop_;
  const int socket_;
  Done done_;
  Loop::TimerId timer_ = 0;
  std::string bytes_;
};

// Tells a connected trainer that it is refused, and why. Never blocks. The caller closes the socket
// then.
void refuse_trainer(int socket, const Status& status);

// Whether this machine gives memory as segments are made of: a sealed memfd.
Status check_sealed_memory();

}  // namespace tutti
