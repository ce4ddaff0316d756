// A bare ring over raw TCP: reduce-scatter and all-gather in 2(N-1) steps by one thread a rank that
// never waits while it can send or receive. What it receives is summed while hot in cache and goes
// on at once; the steps flow into each other. No daemon, no errors, no order by rank: a floor.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

#include "tests/bench/drivers/race.h"

namespace tutti::race {
namespace {

constexpr size_t kSendBytes = 1 << 20;
constexpr size_t kFoldBytes = 256 << 10;  // Received at once to be summed: stays in cache.
constexpr int kSpins = 100;               // Before it sleeps, where every rank has a core.
constexpr int kConnectTries = 1000;
constexpr int kRetryMs = 10;
constexpr char kCongestion[] = "cubic";

sockaddr_in address_of(const std::string& text) {
  const std::vector<std::string> parts = split(text, ':');
  sockaddr_in address{.sin_family = AF_INET};
  address.sin_port = htons(static_cast<uint16_t>(std::stoi(parts.at(1))));
  if (inet_pton(AF_INET, parts[0].c_str(), &address.sin_addr) != 1) fail("no address: " + text);
  return address;
}

int new_socket() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  // Where the kernel refuses, its default stays.
  setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kCongestion, sizeof kCongestion - 1);
  return fd;
}

int no_delay(int fd) {
  const int yes = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  return fd;
}

int listen_at(const sockaddr_in& address) {
  const int fd = new_socket();
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      listen(fd, 1) != 0)
    fail(std::string("cannot listen: ") + std::strerror(errno));
  return fd;
}

int connect_to(const sockaddr_in& address) {
  for (int i = 0; i < kConnectTries; ++i) {
    const int fd = new_socket();
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
      return no_delay(fd);
    close(fd);
    poll(nullptr, 0, kRetryMs);
  }
  fail("the next rank does not listen");
}

// A run of bytes that is sent from, or received into, `data`; summed with `addend` where there is.
struct Piece {
  char* data;
  size_t bytes;
  const char* addend = nullptr;
};

class Ring : public Contestant {
 public:
  Ring(int rank, const std::vector<std::string>& peers)
      : rank_(rank), world_size_(static_cast<int>(peers.size())), scratch_(kFoldBytes) {
    const auto at = [&](int r) { return address_of(peers.at(static_cast<size_t>(r))); };
    const int listener = listen_at(at(rank));
    next_ = connect_to(at((rank + 1) % world_size_));
    previous_ = no_delay(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    close(listener);
    spins_ = std::thread::hardware_concurrency() >= peers.size() ? kSpins : 0;
  }

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
  bool offers(Collective collective) const override {
    return collective != Collective::reduce && collective != Collective::broadcast;
  }
  void run(Collective collective, float* in, float* out, size_t count) override;

 private:
  void all_reduce(float* data, size_t count);
  void all_gather(const float* in, float* out, size_t count);
  void reduce_scatter(float* in, float* out, size_t count);
  void stream(float* data, size_t count);

  size_t chunk_of(int step) const {  // Which chunk is sent in a step; received in the one before.
    return static_cast<size_t>(((rank_ - 1 - step) % world_size_ + world_size_) % world_size_);
  }
  void exchange();
  bool try_send();
  bool try_receive();
  void fold(Piece& piece, size_t received);
  void wait() const;

  int rank_;
  int world_size_;
  int next_ = -1;
  int previous_ = -1;
  int spins_ = 0;
  std::vector<char> scratch_;
  std::vector<float> partial_;
  // For the exchange under way. All bytes of `outgoing_` but those of its first piece are what was
  // received as `incoming_`, in the same order: so many may be sent.
  std::vector<Piece> outgoing_;
  std::vector<Piece> incoming_;
  size_t sending_ = 0;
  size_t receiving_ = 0;
  size_t sent_ = 0;     // Of all pieces together.
  size_t arrived_ = 0;  // And summed.
  size_t first_ = 0;
  size_t in_scratch_ = 0;
};

bool Ring::try_send() {
  if (sending_ == outgoing_.size()) return false;
  Piece& piece = outgoing_[sending_];
  const size_t allowed = std::min({first_ + arrived_ - sent_, piece.bytes, kSendBytes});
  ssize_t bytes = 0;
  if (allowed > 0) bytes = send(next_, piece.data, allowed, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (bytes < 0 && errno != EAGAIN) fail(std::string("cannot send: ") + std::strerror(errno));
  if (bytes > 0) {
    sent_ += static_cast<size_t>(bytes);
    piece.data += bytes;
    piece.bytes -= static_cast<size_t>(bytes);
  }
  if (piece.bytes == 0) ++sending_;
  return bytes > 0 || piece.bytes == 0;
}

// Sums the whole elements that have come, and keeps the begun one.
void Ring::fold(Piece& piece, size_t received) {
  in_scratch_ += received;
  const size_t whole = in_scratch_ / sizeof(float);
  auto* to = reinterpret_cast<float*>(piece.data);
  const auto* addend = reinterpret_cast<const float*>(piece.addend);
  const auto* from = reinterpret_cast<const float*>(scratch_.data());
  for (size_t i = 0; i < whole; ++i) to[i] = addend[i] + from[i];
  const size_t bytes = whole * sizeof(float);
  in_scratch_ -= bytes;
  std::memmove(scratch_.data(), scratch_.data() + bytes, in_scratch_);
  piece.data += bytes;
  piece.addend += bytes;
  piece.bytes -= bytes;
  arrived_ += bytes;
}

bool Ring::try_receive() {
  if (receiving_ == incoming_.size()) return false;
  Piece& piece = incoming_[receiving_];
  ssize_t bytes = 0;
  if (piece.bytes > 0) {
    const bool sums = piece.addend != nullptr;
    char* to = sums ? scratch_.data() + in_scratch_ : piece.data;
    const size_t room = sums ? std::min(kFoldBytes, piece.bytes) - in_scratch_ : piece.bytes;
    bytes = recv(previous_, to, std::min(room, kSendBytes), MSG_DONTWAIT);
    if (bytes == 0 || (bytes < 0 && errno != EAGAIN)) fail("the previous rank is gone");
  }
  if (bytes > 0 && piece.addend != nullptr) {
    fold(piece, static_cast<size_t>(bytes));
  } else if (bytes > 0) {
    piece.data += bytes;
    piece.bytes -= static_cast<size_t>(bytes);
    arrived_ += static_cast<size_t>(bytes);
  }
  if (piece.bytes == 0) ++receiving_;
  return bytes > 0 || piece.bytes == 0;
}

void Ring::wait() const {
  std::array<pollfd, 2> fds = {{{previous_, 0, 0}, {next_, 0, 0}}};
  if (receiving_ < incoming_.size()) fds[0].events = POLLIN;
  if (sending_ < outgoing_.size() && first_ + arrived_ > sent_) fds[1].events = POLLOUT;
  poll(fds.data(), fds.size(), -1);
}

void Ring::exchange() {
  sending_ = receiving_ = sent_ = arrived_ = 0;
  first_ = outgoing_.empty() ? 0 : outgoing_[0].bytes;
  int idle = 0;
  while (sending_ < outgoing_.size() || receiving_ < incoming_.size()) {
    const bool received = try_receive();
    if (try_send() || received)
      idle = 0;
    else if (++idle > spins_)
      wait();
  }
  outgoing_.clear();
  incoming_.clear();
}

void Ring::all_reduce(float* data, size_t count) {
  const auto ranks = static_cast<size_t>(world_size_);
  const auto piece_of = [&](int step, bool sums) {
    const size_t chunk = chunk_of(step);
    const size_t begin = chunk * count / ranks;
    char* at = reinterpret_cast<char*>(data + begin);
    return Piece{at, ((chunk + 1) * count / ranks - begin) * sizeof(float), sums ? at : nullptr};
  };
  for (int step = 0; step < 2 * (world_size_ - 1); ++step) {
    outgoing_.push_back(piece_of(step, false));
    incoming_.push_back(piece_of(step + 1, step < world_size_ - 1));
  }
  exchange();
}

void Ring::all_gather(const float* in, float* out, size_t count) {
  std::memcpy(out + static_cast<size_t>(rank_) * count, in, count * sizeof(float));
  const auto piece_of = [&](int step) {
    return Piece{reinterpret_cast<char*>(out + chunk_of(step) * count), count * sizeof(float)};
  };
  for (int step = -1; step < world_size_ - 2; ++step) {
    outgoing_.push_back(piece_of(step));
    incoming_.push_back(piece_of(step + 1));
  }
  exchange();
}

void Ring::reduce_scatter(float* in, float* out, size_t count) {
  partial_.resize(std::max(partial_.size(), count * static_cast<size_t>(world_size_)));
  const auto at = [&](float* base, int step) {
    return reinterpret_cast<char*>(base + chunk_of(step) * count);
  };
  const size_t bytes = count * sizeof(float);
  for (int step = 0; step < world_size_ - 1; ++step) {
    outgoing_.push_back({at(step == 0 ? in : partial_.data(), step), bytes});
    const bool last = step == world_size_ - 2;
    char* to = last ? reinterpret_cast<char*>(out) : at(partial_.data(), step + 1);
    incoming_.push_back({to, bytes, at(in, step + 1)});
  }
  exchange();
}

// One way, rank 0 to rank 1, which says when it has all: what raw TCP reaches here.
void Ring::stream(float* data, size_t count) {
  char* bytes = reinterpret_cast<char*>(data);
  char done = 0;
  if (rank_ == 0) {
    outgoing_.push_back({bytes, count * sizeof(float)});
    exchange();
    if (recv(next_, &done, 1, MSG_WAITALL) != 1) fail("the next rank is gone");
  } else if (rank_ == 1) {
    incoming_.push_back({bytes, count * sizeof(float)});
    exchange();
    if (send(previous_, &done, 1, MSG_NOSIGNAL) != 1) fail("the previous rank is gone");
  }
}

void Ring::run(Collective collective, float* in, float* out, size_t count) {
  if (collective == Collective::all_reduce) return all_reduce(out, count);
  if (collective == Collective::all_gather) return all_gather(in, out, count);
  if (collective == Collective::reduce_scatter) return reduce_scatter(in, out, count);
  stream(out, count);
}

}  // namespace
}  // namespace tutti::race

int main(int argc, char** argv) {
  const tutti::race::Arguments arguments(argc, argv);
  tutti::race::Ring ring(std::stoi(arguments.get("rank")),
                         tutti::race::split(arguments.get("peers"), ','));
  return run_race(ring, arguments.options());
}
