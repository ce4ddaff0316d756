#include "daemon/transport/tls_wire.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

namespace tutti {
namespace {

constexpr size_t kRecordBytes = 16 << 10;   // The most that one record of TLS carries.
constexpr size_t kReadBytes = 64 << 10;     // Read from the socket at a time.
constexpr size_t kUnsentBytes = 256 << 10;  // Written to the socket at a time.

// What OpenSSL reads from and writes to: a socket, by few large calls. OpenSSL itself would make
// two calls to read each record, and one to write it.
class RecordStream {
 public:
  explicit RecordStream(int socket) : socket_(socket) {}

  // Returns what recv() does.
  ssize_t read(char* to, size_t bytes);
  void write(std::span<const char> bytes) {
    unsent_.insert(unsent_.end(), bytes.begin(), bytes.end());
  }
  // Returns false, and errno, unless all is sent.
  bool flush();
  size_t unsent() const { return unsent_.size() - sent_; }
  bool at_end() const { return at_end_; }
  int error() const { return error_; }  // The errno of a read that failed for good.

 private:
  const int socket_;
  std::vector<char> received_;  // Its bytes [taken_, filled_) are not read yet.
  size_t taken_ = 0;
  size_t filled_ = 0;
  bool at_end_ = false;
  int error_ = 0;
  std::vector<char> unsent_;  // Its first sent_ bytes are in the socket.
  size_t sent_ = 0;
};

ssize_t RecordStream::read(char* to, size_t bytes) {
  if (taken_ == filled_) {
    received_.resize(kReadBytes);
    ssize_t got = 0;
    do {
      got = recv(socket_, received_.data(), received_.size(), MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    at_end_ = got == 0;
    if (got < 0 && errno != EAGAIN) error_ = errno;
    if (got <= 0) return got;
    taken_ = 0;
    filled_ = static_cast<size_t>(got);
  }
  const size_t count = std::min(bytes, filled_ - taken_);
  std::memcpy(to, received_.data() + taken_, count);
  taken_ += count;
  return static_cast<ssize_t>(count);
}

bool RecordStream::flush() {
  while (unsent() > 0) {
    const ssize_t sent =
        ::send(socket_, unsent_.data() + sent_, unsent(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EINTR) return false;
    sent_ += static_cast<size_t>(std::max<ssize_t>(sent, 0));
  }
  unsent_.clear();
  sent_ = 0;
  return true;
}

// ---- OpenSSL's view of a RecordStream ----

int read_stream(BIO* bio, char* to, int bytes) {
  BIO_clear_retry_flags(bio);
  auto& stream = *static_cast<RecordStream*>(BIO_get_data(bio));
  const ssize_t got = stream.read(to, static_cast<size_t>(bytes));
  if (got < 0 && stream.error() == 0) BIO_set_retry_read(bio);
  return static_cast<int>(got);
}

int write_stream(BIO* bio, const char* from, int bytes) {
  BIO_clear_retry_flags(bio);
  static_cast<RecordStream*>(BIO_get_data(bio))->write({from, static_cast<size_t>(bytes)});
  return bytes;
}

long control_stream(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_EOF) return static_cast<RecordStream*>(BIO_get_data(bio))->at_end();
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

// The table of the three functions above, for the rest of the process.
const BIO_METHOD* stream_method() {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "tutti link");
    const bool set = made != nullptr && BIO_meth_set_read(made, read_stream) == 1 &&
                     BIO_meth_set_write(made, write_stream) == 1 &&
                     BIO_meth_set_ctrl(made, control_stream) == 1;
    require(set, "OpenSSL takes a stream");
    return made;
  }();
  return method;
}

// ---- The wire ----

class TlsWire final : public Wire {
 public:
  TlsWire(Fd socket, const TlsIdentity& own, uint64_t records_per_key);
  // A dialler demands this certificate of the listener.
  void dial(const std::string& fingerprint);

  Result<bool> secure() override;
  ssize_t read(std::span<const iovec> into) override;
  bool is_drained() const override { return is_drained_; }
  ssize_t write(std::span<const iovec> from) override;
  bool has_unsent() const override { return stream_.unsent() > 0; }

 private:
  struct Free {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };

  Status why_insecure(int error) const;
  bool is_pinned_peer() const;
  ssize_t stop_reading(int error);
  std::span<const char> next_record(std::span<const iovec>& parts, size_t& skip);
  bool write_record(std::span<const char> record);

  const uint64_t records_per_key_;
  RecordStream stream_;
  std::unique_ptr<SSL, Free> ssl_;
  std::string fingerprint_;  // Of a listener.
  bool is_secure_ = false;
  bool is_drained_ = false;
  uint64_t records_ = 0;  // Written with the current key.
  std::array<char, kRecordBytes> record_;
};

TlsWire::TlsWire(Fd socket, const TlsIdentity& own, uint64_t records_per_key)
    : Wire(std::move(socket)),
      records_per_key_(records_per_key),
      stream_(descriptor()),
      ssl_(SSL_new(own.context())) {
  BIO* bio = BIO_new(stream_method());
  require(ssl_ != nullptr && bio != nullptr, "memory for a connection");
  BIO_set_data(bio, &stream_);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_.get(), bio, bio);
  SSL_set_accept_state(ssl_.get());
}

void TlsWire::dial(const std::string& fingerprint) {
  fingerprint_ = fingerprint;
  SSL_set_connect_state(ssl_.get());
}

// ---- The handshake ----

Result<bool> TlsWire::secure() {
  if (is_secure_) return true;
  ERR_clear_error();
  const int done = SSL_do_handshake(ssl_.get());
  const int error = SSL_get_error(ssl_.get(), done);
  const bool sent = stream_.flush();
  if (done != 1 && error != SSL_ERROR_WANT_READ) return why_insecure(error);
  if (!sent) return unavailable("it takes no handshake of TLS");
  if (done != 1) return false;
  if (!is_pinned_peer())
    return unauthenticated("it is not the worker of the roster: its certificate is another one");
  is_secure_ = true;
  return true;
}

Status TlsWire::why_insecure(int error) const {
  if (error == SSL_ERROR_ZERO_RETURN || stream_.at_end())
    return unavailable("it hung up during the handshake of TLS");
  if (stream_.error() != 0) return unavailable(std::strerror(stream_.error()));
  const char* reason = ERR_reason_error_string(ERR_peek_last_error());
  return unavailable(std::string("no TLS 1.3 with it: ") + (reason ? reason : "a broken record"));
}

// TLS has proven that the listener has the certificate's key.
bool TlsWire::is_pinned_peer() const {
  if (SSL_is_server(ssl_.get()) == 1) return true;
  const X509* certificate = SSL_get0_peer_certificate(ssl_.get());
  return certificate != nullptr && fingerprint_of(certificate) == fingerprint_;
}

// ---- Reading ----

ssize_t TlsWire::read(std::span<const iovec> into) {
  if (const Result<bool> secured = secure(); !secured.ok() || !*secured) {
    is_drained_ = secured.ok();
    errno = secured.ok() ? EAGAIN : EPROTO;
    return -1;
  }
  is_drained_ = false;
  ERR_clear_error();
  size_t sum = 0;
  for (const iovec& part : into) {
    for (size_t filled = 0; filled < part.iov_len;) {
      size_t got = 0;
      const int done = SSL_read_ex(ssl_.get(), static_cast<char*>(part.iov_base) + filled,
                                   part.iov_len - filled, &got);
      filled += got;
      sum += got;
      if (done == 1) continue;
      const ssize_t end = stop_reading(SSL_get_error(ssl_.get(), done));
      return sum > 0 ? static_cast<ssize_t>(sum) : end;
    }
  }
  return static_cast<ssize_t>(sum);
}

// OpenSSL repeats what ends a stream, but not what it waits for.
ssize_t TlsWire::stop_reading(int error) {
  is_drained_ = error == SSL_ERROR_WANT_READ;
  if (error == SSL_ERROR_ZERO_RETURN) return 0;
  errno = is_drained_ ? EAGAIN : stream_.error() != 0 ? stream_.error() : EBADMSG;
  return -1;
}

// ---- Writing ----

ssize_t TlsWire::write(std::span<const iovec> from) {
  if (!stream_.flush()) return -1;
  size_t sum = 0;
  size_t skip = 0;
  while (stream_.unsent() < kUnsentBytes) {
    const std::span<const char> record = next_record(from, skip);
    if (record.empty()) break;
    if (!write_record(record)) {
      errno = EBADMSG;
      return -1;
    }
    sum += record.size();
  }
  (void)stream_.flush();  // The next call says what is wrong.
  return static_cast<ssize_t>(sum);
}

// Cuts the next record from `parts`, of which the first `skip` bytes are used up. Small parts are
// put together, because a record costs as much as some hundred bytes.
std::span<const char> TlsWire::next_record(std::span<const iovec>& parts, size_t& skip) {
  size_t filled = 0;
  while (!parts.empty() && filled < kRecordBytes) {
    const char* from = static_cast<const char*>(parts.front().iov_base) + skip;
    const size_t left = parts.front().iov_len - skip;
    const size_t count = std::min(left, kRecordBytes - filled);
    skip = count < left ? skip + count : 0;
    if (count == left) parts = parts.subspan(1);
    if (count == kRecordBytes) return {from, count};
    std::memcpy(record_.data() + filled, from, count);
    filled += count;
  }
  return {record_.data(), filled};
}

bool TlsWire::write_record(std::span<const char> record) {
  if (++records_ >= records_per_key_) {
    records_ = 0;
    SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED);
  }
  ERR_clear_error();
  size_t written = 0;
  return SSL_write_ex(ssl_.get(), record.data(), record.size(), &written) == 1 &&
         written == record.size();
}

}  // namespace

std::unique_ptr<Wire> make_tls_listener_wire(Fd socket, const TlsIdentity& own) {
  return std::make_unique<TlsWire>(std::move(socket), own, kRecordsPerKey);
}

std::unique_ptr<Wire> make_tls_dialler_wire(Fd socket, const TlsIdentity& own,
                                            const std::string& fingerprint,
                                            uint64_t records_per_key) {
  auto wire = std::make_unique<TlsWire>(std::move(socket), own, records_per_key);
  wire->dial(fingerprint);
  return wire;
}

}  // namespace tutti
