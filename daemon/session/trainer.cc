#include "daemon/session/trainer.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <cerrno>
#include <utility>

#include "daemon/base/framing.h"
#include "daemon/base/status_message.h"
#include "daemon/session/offer.h"
#include "daemon/session/session.h"
#include "proto/session.pb.h"

namespace tutti {
namespace {

// Of Linux 6.5, as its headers have it; those of older systems do not.
constexpr int kPeerPidFd = 77;  // SO_PEERPIDFD.

// A pidfd, which becomes readable when the process ends; the socket alone does not show that, as a
// forked child may hold it open. Linux gives one for the peer, also from another PID namespace. An
// older one knows visible processes only: an empty Fd where it is not (pid 0, or no permission),
// until the trainer shows its own.
Result<Fd> watch_process(int socket, pid_t pid) {
  int peer = -1;
  socklen_t size = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, kPeerPidFd, &peer, &size) == 0) return Fd(peer);
  if (pid == 0) return Fd();
  Fd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!process.valid() && errno == ESRCH)
    return unavailable("pid " + std::to_string(pid) + " ended while joining");
  return process;
}

}  // namespace

Result<std::unique_ptr<Trainer>> Trainer::open(Loop& loop, Fd socket, Events& events) {
  Fd doorbell(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  Status started = doorbell.valid() ? Status() : errno_status("cannot make a doorbell");
  auto trainer = std::make_unique<Trainer>(loop, std::move(socket), std::move(doorbell), events);
  if (started.ok()) started = trainer->start();
  if (started.ok()) return trainer;
  trainer->refuse(started);
  return started;
}

Trainer::Trainer(Loop& loop, Fd socket, Fd doorbell, Events& events)
    : loop_(loop), socket_(std::move(socket)), doorbell_(std::move(doorbell)), events_(events) {}

Status Trainer::start() {
  const Result<PeerCredentials> peer = peer_credentials(socket_.get());
  pid_ = peer.ok() ? static_cast<pid_t>(peer->pid) : 0;
  Result<Fd> process = watch_process(socket_.get(), pid_);
  if (!process.ok()) return process.status();
  process_ = *std::move(process);
  if (process_.valid()) {
    Status s = loop_.watch(process_.get(), EPOLLIN, [this](uint32_t) { on_hang_up(); });
    if (!s.ok()) return s;
  }
  return loop_.watch(socket_.get(), EPOLLIN, [this](uint32_t) { read_socket(); });
}

Status Trainer::welcome(std::shared_ptr<HostBoard> board, uint32_t rank, uint32_t epoch,
                        const std::vector<std::string>& hosts) {
  require(board_ == nullptr, "a trainer is welcomed once");
  board_ = std::move(board);
  rank_ = rank;
  v1::Welcome message;
  write_status({}, message);
  message.set_version(kProtocolVersion);
  message.set_epoch(epoch);
  for (const std::string& host : hosts) message.add_hosts(host);
  message.set_worker_pid(static_cast<uint32_t>(getpid()));
  // Edge-triggered and never read: the trainer shares the descriptor's flags, and could make a read
  // block.
  Status watched =
      loop_.watch(doorbell_.get(), EPOLLIN | EPOLLET, [this](uint32_t) { board_->poll(); });
  if (!watched.ok()) return watched;
  board_->set_descriptors(rank, [this] {
    read_socket();
    return std::exchange(received_, {});
  });
  std::vector<int> descriptors = board_->shared_descriptors();
  descriptors.insert(descriptors.begin(), {board_->segment(rank), doorbell_.get()});
  Status sent = send_packet(socket_.get(), framed(message.SerializeAsString()), descriptors);
  welcomed_ = sent.ok();
  return sent;
}

void Trainer::refuse(const Status& why) { refuse_trainer(socket_.get(), why); }

// After the hello a trainer sends a pidfd of itself, where it can make one, then descriptors of
// memory that it offers, and nothing else.
void Trainer::read_socket() {
  Fd process;
  if (receive_descriptors(socket_.get(), received_, process))
    return take_process(std::move(process));
  char byte = 0;
  const ssize_t left = recv(socket_.get(), &byte, 1, MSG_DONTWAIT | MSG_PEEK);
  if (left == 0 || (left < 0 && errno != EAGAIN && errno != EINTR)) return on_hang_up();
  end(false, invalid_argument(describe() +
                              " broke the protocol: it sent bytes on its socket after the hello"));
}

// Where Linux shows none for the socket. A trainer that shows another process harms itself alone.
void Trainer::take_process(Fd shown) {
  if (process_.valid() || !shown.valid()) return;
  process_ = std::move(shown);
  Status watched = loop_.watch(process_.get(), EPOLLIN, [this](uint32_t) { on_hang_up(); });
  if (!watched.ok()) process_ = Fd();  // The socket ends with most trainers all the same.
}

void Trainer::poll_end() {
  if (stopped_) return;
  pollfd process = {process_.get(), POLLIN, 0};  // A negative descriptor is never ready.
  if (poll(&process, 1, 0) > 0) return on_hang_up();
  read_socket();
}

// Requests that the trainer wrote before it ended still count.
void Trainer::on_hang_up() {
  if (welcomed_) board_->poll();
  if (stopped_) return;
  if (board_ != nullptr && board_->is_leaving(rank_)) return end(true, {});
  end(false, unavailable(describe() + (welcomed_ ? " died" : " died while joining")));
}

void Trainer::end(bool leaving, Status why) {
  if (std::exchange(ending_, true)) return;
  if (board_ != nullptr) board_->remove_rank(rank_, leaving ? Status() : why);
  stop();
  events_.on_end(*this, leaving, std::move(why));
}

void Trainer::stop() {
  if (std::exchange(stopped_, true)) return;
  if (board_ != nullptr) board_->detach(rank_);
  loop_.unwatch(socket_.get());
  loop_.unwatch(doorbell_.get());
  if (process_.valid()) loop_.unwatch(process_.get());
}

std::string Trainer::describe() const {
  return board_ == nullptr ? "the trainer" : board_->describe(rank_);
}

}  // namespace tutti
