// The serving of one trainer: doorbell, requests, completions, the end.
#include <linux/futex.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <iterator>

#include "daemon/session/message.h"
#include "daemon/session/request.h"
#include "daemon/session/socket_session.h"
#include "proto/session.pb.h"

namespace tutti {
namespace {

template <size_t N>
void copy_text(char (&target)[N], const std::string& text) {
  const size_t length = std::min(text.size(), N - 1);
  std::memcpy(target, text.data(), length);
  target[length] = '\0';
}

void wake_all(std::atomic<uint32_t>& word) { syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX); }

// A descriptor that becomes readable when the process at the other end ends: a forked child may
// hold its socket open after it. Without one where the process is not to be seen from here.
Result<Fd> watch_process(pid_t pid) {
  if (pid == 0) return Fd();
  Fd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!process.valid() && errno == ESRCH)
    return unavailable("pid " + std::to_string(pid) + " ended while joining");
  return process;
}

}  // namespace

Status SocketSession::start() {
  const Result<PeerCredentials> peer = peer_credentials(socket_.get());
  pid_ = peer.ok() ? static_cast<pid_t>(peer->pid) : 0;
  Result<Fd> process = watch_process(pid_);
  if (!process.ok()) return process.status();
  process_ = *std::move(process);
  if (process_.valid()) {
    Status s = loop_.watch(process_.get(), EPOLLIN, [this](uint32_t) { hang_up(); });
    if (!s.ok()) return s;
  }
  return loop_.watch(socket_.get(), EPOLLIN, [this](uint32_t) { read_socket(); });
}

Status SocketSession::welcome(uint32_t epoch, const std::vector<std::string>& hosts) {
  require(!welcomed_, "a session welcomes once");
  v1::Welcome message;
  message.set_culprit_rank(-1);
  message.set_version(kProtocolVersion);
  message.set_epoch(epoch);
  for (const std::string& host : hosts) message.add_hosts(host);
  hosts_ = hosts;
  // Edge-triggered and never read: the trainer shares the descriptor's flags, so that a read of it
  // could be made to block.
  Status watched =
      loop_.watch(doorbell_.get(), EPOLLIN | EPOLLET, [this](uint32_t) { take_requests(); });
  if (!watched.ok()) return watched;
  std::vector<int> descriptors = {memory_.get(), doorbell_.get()};
  if (board_ != nullptr) std::ranges::copy(board_->descriptors(), std::back_inserter(descriptors));
  Status sent = send_packet(socket_.get(), framed(message), descriptors);
  welcomed_ = sent.ok();
  memory_.reset();
  if (board_ != nullptr) board_->handed_out();
  return sent;
}

void SocketSession::complete(uint32_t slot, const Status& status, uint32_t value) {
  require(slot < kRingSlots && pending_[slot], "a completion needs a pending request");
  pending_.reset(slot);
  post(slot, status, value);
}

void SocketSession::post(uint32_t slot, const Status& status, uint32_t value) {
  Completion& completion = mapping_->completion(slot);
  completion.code = static_cast<int32_t>(status.code());
  completion.culprit_rank = status.culprit().rank;
  completion.value = value;
  copy_text(completion.culprit_host, status.culprit().host);
  copy_text(completion.message, status.message());
  const uint32_t before = completion.state.exchange(slot_word(SlotState::done));
  if (state_of(before) == SlotState::asleep) wake_all(completion.state);
}

// After the hello the socket carries nothing but its end.
void SocketSession::read_socket() {
  char byte = 0;
  const ssize_t got = recv(socket_.get(), &byte, 1, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got > 0) return break_off("sent bytes on its socket after the hello");
  hang_up();
}

// The doorbell rings after each publication, so one look at `head` for each ring misses nothing.
// What the rank left on the board before it published comes first.
void SocketSession::take_requests() {
  const uint32_t head = mapping_->header().head.load(std::memory_order_acquire);
  if (head - tail_ > kRingSlots) return break_off("claims more requests than the ring has slots");
  if (board_ != nullptr) board_->collect();
  take_until(head);
}

// Positions that were passed, or that nothing was published at, change nothing.
void SocketSession::take_until(uint32_t position) {
  const uint32_t head = mapping_->header().head.load(std::memory_order_acquire);
  while (!stopped_ && position - tail_ - 1 < kRingSlots && head - tail_ - 1 < kRingSlots) {
    const Request request = mapping_->copy_request(tail_++);
    mapping_->header().tail.store(tail_, std::memory_order_release);
    if (!take(request)) return;
  }
}

// False: the request broke the protocol and the session is over.
bool SocketSession::take(const Request& request, uint32_t waited_ms) {
  const bool known = request.verb < kCollectives || request.verb == kVerbSubgroup;
  if (!known)
    break_off("asked for the unknown verb " + std::to_string(request.verb));
  else if (request.slot >= kRingSlots)
    break_off("named a slot that the ring does not have");
  else if (pending_[request.slot])
    break_off("used a slot again before its completion");
  if (stopped_) return false;
  pending_.set(request.slot);
  const auto place = groups_.find(request.group);
  if (place == groups_.end())
    complete(request.slot, not_found(who() + " is in no group " + std::to_string(request.group)),
             0);
  else if (request.verb == kVerbSubgroup)
    take_subgroup(request);
  else
    take_operation(request, place->second, waited_ms);
  return true;
}

void SocketSession::take_operation(const Request& request, GroupPlace place, uint32_t waited_ms) {
  OpRequest op = read_request(request, place, mapping_->base(), mapping_->bytes());
  if (!op.invalid.ok()) op.invalid = blame(request, op.invalid);
  op.memory = mapping_;
  op.waited_ms = waited_ms;
  events_.on_request(*this, std::move(op));
}

void SocketSession::take_subgroup(const Request& request) {
  Result<std::vector<uint32_t>> ranks = read_ranks(request);
  if (ranks.ok()) return events_.on_subgroup(*this, request.slot, *std::move(ranks));
  complete(request.slot, blame(request, ranks.status()), 0);
}

Result<std::vector<uint32_t>> SocketSession::read_ranks(const Request& request) const {
  const uint32_t size = groups_.at(request.group).size;
  if (request.group != 0) return invalid_argument("a sub-group is made from the whole job");
  if (request.count == 0 || request.count > size)
    return invalid_argument("a sub-group of a job of " + std::to_string(size) + " cannot have " +
                            std::to_string(request.count) + " ranks");
  const uint64_t bytes = request.count * sizeof(uint32_t);
  if (!in_arena(request.in_offset, bytes, mapping_->bytes()))
    return invalid_argument("the list of ranks lies outside the segment");
  std::vector<uint32_t> ranks(request.count);
  std::memcpy(ranks.data(), mapping_->base() + request.in_offset, bytes);
  std::vector<bool> seen(size);
  for (const uint32_t rank : ranks) {
    if (rank >= size || seen[rank])
      return invalid_argument("rank " + std::to_string(rank) + (rank < size ? " twice" : "") +
                              " in a sub-group of a job of " + std::to_string(size));
    seen[rank] = true;
  }
  return ranks;
}

Status SocketSession::blame(const Request& request, const Status& fault) const {
  const std::string verb = request.verb < kCollectives
                               ? std::string(name_of(static_cast<Collective>(request.verb)))
                               : "subgroup";
  return {fault.code(), who() + " asked for " + verb + ": " + fault.message(),
          Culprit{static_cast<int>(groups_.at(0).rank), host()}};
}

std::string SocketSession::host() const {
  const auto job = groups_.find(0);
  if (job == groups_.end() || job->second.rank >= hosts_.size()) return {};
  return hosts_[job->second.rank];
}

std::string SocketSession::who() const {
  const auto job = groups_.find(0);
  if (job == groups_.end()) return "the trainer";
  const Result<PeerCredentials> peer = peer_credentials(socket_.get());
  return "rank " + std::to_string(job->second.rank) + " (host " + host() + ", pid " +
         std::to_string(peer.ok() ? peer->pid : 0) + ")";
}

// What was published before the end still counts: a trainer may submit and die.
void SocketSession::hang_up() {
  if (welcomed_) take_requests();
  if (stopped_) return;
  if (mapping_->header().leaving.load(std::memory_order_acquire) != 0) return end(true, {});
  end(false, unavailable(who() + (welcomed_ ? " died" : " died while joining")));
}

void SocketSession::break_off(const std::string& how) {
  end(false, invalid_argument(who() + " broke the protocol: it " + how));
}

// What the trainer brought to the board before its end still counts.
void SocketSession::end(bool leaving, Status why) {
  if (std::exchange(ending_, true)) return;
  if (board_ != nullptr)
    board_->leave(rank_on_board_, {leaving ? Code::unavailable : why.code(),
                                   leaving ? who() + " left" : why.message(),
                                   Culprit{static_cast<int>(rank_on_board_), host()}});
  stop();
  events_.on_end(*this, leaving, std::move(why));
}

void SocketSession::stop() {
  if (std::exchange(stopped_, true)) return;
  if (board_ != nullptr) board_->stand_up(rank_on_board_);
  loop_.unwatch(socket_.get());
  loop_.unwatch(doorbell_.get());
  if (process_.valid()) loop_.unwatch(process_.get());
}

Result<std::unique_ptr<Session>> open_session(Loop& loop, Fd& socket, uint64_t segment_bytes,
                                              Session::Events& events) {
  Result<Segment> segment = make_segment(segment_bytes);
  if (!segment.ok()) return segment.status();
  Fd doorbell(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!doorbell.valid()) return errno_status("cannot make a doorbell");
  auto session = std::make_unique<SocketSession>(loop, std::move(socket), *std::move(segment),
                                                 std::move(doorbell), events);
  if (Status started = session->start(); !started.ok()) return started;
  return std::unique_ptr<Session>(std::move(session));
}

}  // namespace tutti
