// The bytes of one TCP connection, plain or encrypted. What is above it - handshake, reader, writer
// and links - exists once and does not know which.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <memory>
#include <span>
#include <string>

#include "daemon/base/fd.h"
#include "daemon/base/status.h"

namespace tutti {

// Owns a non-blocking socket. Nothing blocks. Not thread-safe.
class Wire {
 public:
  explicit Wire(Fd socket) : socket_(std::move(socket)) {}
  virtual ~Wire() = default;
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;
  int descriptor() const { return socket_.get(); }

  // Goes on with what must precede the first byte. Returns true once nothing is left of it, and
  // false if it waits for the socket to be readable. UNAUTHENTICATED: the peer is not the one that
  // was dialled. UNAVAILABLE: it does not take part. read() does this by itself, write() does not.
  virtual Result<bool> secure() = 0;
  // As readv(): the number of bytes, 0 at the end of the stream, or -1 and errno. EAGAIN: nothing
  // is there before the socket is readable.
  virtual ssize_t read(std::span<const iovec> into) = 0;
  // Whether the last read() took all that is there before the socket is readable again.
  virtual bool is_drained() const = 0;
  // As writev(), but only reads the memory. EAGAIN: nothing is taken before the socket is writable.
  virtual ssize_t write(std::span<const iovec> from) = 0;
  // Whether bytes that write() took are not in the socket yet. Calling write(), with no bytes if
  // there are none, goes on with them.
  virtual bool has_unsent() const = 0;

 private:
  const Fd socket_;
};

std::unique_ptr<Wire> make_plain_wire(Fd socket);

// Reads until `into` has `wanted` bytes, and never more. `partial`: call again when the socket is
// readable.
enum class ReadResult { whole, partial, broken };
ReadResult read_exactly(Wire& wire, std::string& into, size_t wanted);
// Returns false unless the socket took all bytes at once, as a fresh one always does.
bool write_at_once(Wire& wire, const std::string& bytes);

}  // namespace tutti
