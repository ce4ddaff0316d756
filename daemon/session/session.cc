// Serves one trainer: its doorbell, requests, completions and end.
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "daemon/base/status_message.h"
#include "daemon/session/message.h"
#include "daemon/session/offer.h"
#include "daemon/session/request.h"
#include "daemon/session/socket_session.h"
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

Status too_many_seats(size_t seats) {
  return resource_exhausted("a job has at most " + std::to_string(kSeatsMax) +
                            " ranks on one host, not " + std::to_string(seats));
}

}  // namespace

Status SocketSession::start() {
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

Status SocketSession::welcome(uint32_t epoch, const std::vector<std::string>& hosts) {
  require(!welcomed_ && board_ != nullptr, "a session welcomes once, with a board");
  v1::Welcome message;
  write_status({}, message);
  message.set_version(kProtocolVersion);
  message.set_epoch(epoch);
  for (const std::string& host : hosts) message.add_hosts(host);
  hosts_ = hosts;
  message.set_worker_pid(static_cast<uint32_t>(getpid()));
  // Edge-triggered and never read: the trainer shares the descriptor's flags, and could make a read
  // block.
  Status watched =
      loop_.watch(doorbell_.get(), EPOLLIN | EPOLLET, [this](uint32_t) { board_->poll(); });
  if (!watched.ok()) return watched;
  std::vector<int> descriptors = {segment_.get(), doorbell_.get()};
  std::ranges::copy(board_->descriptors(), std::back_inserter(descriptors));
  Status sent = send_packet(socket_.get(), framed(message), descriptors);
  welcomed_ = sent.ok();
  board_->on_descriptors_sent();
  return sent;
}

// After the hello a trainer sends a pidfd of itself, where it can make one, then descriptors of
// memory that it offers, and nothing else.
void SocketSession::read_socket() {
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
void SocketSession::take_process(Fd shown) {
  if (process_.valid() || !shown.valid()) return;
  process_ = std::move(shown);
  Status watched = loop_.watch(process_.get(), EPOLLIN, [this](uint32_t) { on_hang_up(); });
  if (!watched.ok()) process_ = Fd();  // The socket ends with most trainers all the same.
}

void SocketSession::poll_end() {
  if (stopped_) return;
  pollfd process = {process_.get(), POLLIN, 0};  // A negative descriptor is never ready.
  if (poll(&process, 1, 0) > 0) return on_hang_up();
  read_socket();
}

// ---- On the board ----

Status SocketSession::attach(std::shared_ptr<HostBoard> board, uint32_t seat, uint32_t rank,
                             uint32_t world_size) {
  Result<SealedMemory> made = make_segment(segment_bytes_);
  if (!made.ok()) return made.status();
  Fd segment(fcntl(made->memory.get(), F_DUPFD_CLOEXEC, 0));
  if (!segment.valid()) return errno_status("cannot share a segment");
  segment_ = std::move(made->memory);
  mapping_ = std::move(made->mapping);
  board->attach(seat, *this, std::move(segment), mapping_);
  board_ = std::move(board);
  seat_ = seat;
  rank_ = rank;
  world_size_ = world_size;
  return {};
}

void SocketSession::set_ranks_decide(bool let) {
  if (board_ != nullptr) board_->set_ranks_decide(let);
}

Session::Counters SocketSession::counters() const {
  if (board_ == nullptr) return {};
  const BoardCounters& own = board_->counters(seat_);
  return {own.operations.load(), own.failures.load(), own.bytes.load()};
}

uint64_t SocketSession::memory_bytes() const {
  return segment_.valid() ? trace::touched_bytes(segment_.get()) : 0;
}

void SocketSession::complete(uint32_t group, uint64_t number, const Status& status) {
  board_->complete(group, number, status);
}

void SocketSession::release_window(uint32_t group, uint64_t number, uint64_t bytes) {
  board_->release_window(group, number, bytes);
}

void SocketSession::collect_requests(uint32_t group, uint64_t number) {
  board_->collect_requests(group, number);
}

bool SocketSession::let_ranks_fold(uint32_t group, uint64_t number) {
  return board_->let_ranks_fold(group, number);
}

void SocketSession::answer_subgroup(const Result<uint32_t>& group,
                                    const std::vector<uint32_t>& ranks) {
  board_->answer_subgroup(seat_, group, ranks);
}

void SocketSession::on_request(uint32_t group, uint64_t number, GroupPlace place,
                               const Request& request, uint32_t waited_ms) {
  const uint64_t window_bytes = board_->is_local(group) ? 0 : board_->window_bytes();
  Call call = read_request(request, place, mapping_->base(), mapping_->bytes(), window_bytes);
  if (call.window_bytes != 0)
    call.filled = [board = board_, group, number, seat = seat_] {
      return board->filled_bytes(group, number, seat);
    };
  if (call.invalid.ok() && call.ranks_only && !board_->is_local(group))
    call.invalid = invalid_argument("windows and lists are for groups of one host");
  if (!call.invalid.ok())
    call.invalid = blame(call.invalid.code(), describe() + " asked for " +
                                                  std::string(name_of(call.signature.collective)) +
                                                  ": " + call.invalid.message());
  call.group = group;
  call.number = number;
  call.memory = mapping_;
  call.waited_ms = waited_ms;
  events_.on_request(*this, std::move(call));
}

void SocketSession::on_subgroup_request(const BoardSubgroupRequest& request) {
  Result<std::vector<uint32_t>> ranks =
      read_ranks(std::atomic_ref(const_cast<uint32_t&>(request.ranks)).load(),
                 std::atomic_ref(const_cast<uint64_t&>(request.list_offset)).load());
  const uint64_t channel = std::atomic_ref(const_cast<uint64_t&>(request.channel)).load();
  if (ranks.ok()) return events_.on_subgroup_request(*this, *std::move(ranks), channel);
  answer_subgroup(
      blame(ranks.status().code(), describe() + " asked for subgroup: " + ranks.status().message()),
      {});
}

void SocketSession::on_offer(uint64_t offset) {
  read_socket();
  if (stopped_) return;
  Result<OfferedMemory> offer = read_offer(mapping_, offset, received_);
  received_.clear();  // Those of a refused offer serve no other.
  if (offer.ok()) return events_.on_offer(*this, *std::move(offer));
  answer_offer(
      blame(offer.status().code(), describe() + " offers memory: " + offer.status().message()));
}

void SocketSession::answer_offer(const Status& status) { board_->answer_offer(seat_, status); }

Result<std::vector<uint32_t>> SocketSession::read_ranks(uint32_t count, uint64_t offset) const {
  if (count == 0 || count > world_size_)
    return invalid_argument("a sub-group of a job of " + std::to_string(world_size_) +
                            " cannot have " + std::to_string(count) + " ranks");
  const uint64_t bytes = count * sizeof(uint32_t);
  if (!in_arena(offset, bytes, mapping_->bytes()))
    return invalid_argument("the list of ranks lies outside the segment");
  std::vector<uint32_t> ranks(count);
  std::memcpy(ranks.data(), mapping_->base() + offset, bytes);
  std::vector<bool> seen(world_size_);
  for (const uint32_t rank : ranks) {
    if (rank >= world_size_ || seen[rank])
      return invalid_argument("rank " + std::to_string(rank) +
                              (rank < world_size_ ? " twice" : "") +
                              " in a sub-group of a job of " + std::to_string(world_size_));
    seen[rank] = true;
  }
  return ranks;
}

Status SocketSession::blame(Code code, const std::string& what) const {
  return {code, what, Culprit{static_cast<int>(rank_), host()}};
}

std::string SocketSession::host() const { return rank_ < hosts_.size() ? hosts_[rank_] : ""; }

std::string SocketSession::describe() const {
  if (board_ == nullptr) return "the trainer";
  return "rank " + std::to_string(rank_) + " (host " + host() + ", pid " +
         std::to_string(pid_ != 0 ? pid_ : told_pid_) + ")";
}

// ---- The end ----

// Requests that the trainer wrote before it ended still count.
void SocketSession::on_hang_up() {
  if (welcomed_) board_->poll();
  if (stopped_) return;
  const bool leaves = mapping_ != nullptr &&
                      mapping_->segment_header().leaving.load(std::memory_order_acquire) != 0;
  if (leaves) return end(true, {});
  end(false, unavailable(describe() + (welcomed_ ? " died" : " died while joining")));
}

void SocketSession::end(bool leaving, Status why) {
  if (std::exchange(ending_, true)) return;
  if (board_ != nullptr)
    board_->remove_rank(seat_, blame(leaving ? Code::unavailable : why.code(),
                                     leaving ? describe() + " left" : why.message()));
  stop();
  events_.on_end(*this, leaving, std::move(why));
}

void SocketSession::stop() {
  if (std::exchange(stopped_, true)) return;
  if (board_ != nullptr) board_->detach(seat_);
  loop_.unwatch(socket_.get());
  loop_.unwatch(doorbell_.get());
  if (process_.valid()) loop_.unwatch(process_.get());
}

Result<std::unique_ptr<Session>> open_session(Loop& loop, Fd& socket, uint64_t segment_bytes,
                                              Session::Events& events, pid_t told_pid) {
  if (Status good = check_segment_bytes(segment_bytes); !good.ok()) return good;
  Fd doorbell(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!doorbell.valid()) return errno_status("cannot make a doorbell");
  auto session = std::make_unique<SocketSession>(loop, std::move(socket), segment_bytes,
                                                 std::move(doorbell), events, told_pid);
  if (Status started = session->start(); !started.ok()) return started;
  return std::unique_ptr<Session>(std::move(session));
}

Result<std::shared_ptr<HostRecorder>> create_board(Loop& loop, std::span<Session* const> sessions,
                                                   std::span<const uint32_t> ranks,
                                                   uint32_t world_size, uint64_t window_bytes,
                                                   uint32_t epoch) {
  if (ranks.size() > kSeatsMax) return too_many_seats(ranks.size());
  Result<std::shared_ptr<HostRecorder>> recorder = HostRecorder::make(ranks, world_size, epoch);
  if (!recorder.ok()) return recorder;
  Result<std::shared_ptr<HostBoard>> board =
      HostBoard::make(loop, ranks, world_size, window_bytes, *recorder);
  if (!board.ok()) return board.status();
  for (uint32_t seat = 0; seat < sessions.size(); ++seat) {
    if (sessions[seat] == nullptr) {
      if (Status made = (*board)->attach_gone(seat); !made.ok()) return made;
      continue;
    }
    auto* session = dynamic_cast<SocketSession*>(sessions[seat]);
    require(session != nullptr, "a session is one of open_session()'s");
    if (Status attached = session->attach(*board, seat, ranks[seat], world_size); !attached.ok())
      return attached;
  }
  (*board)->set_ranks_decide(true);
  return recorder;
}

}  // namespace tutti
