#include "client/rank/connection.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "client/rank/log.h"

namespace tutti::client {
namespace {

// How often check_worker_if_due() does.
constexpr int64_t kBusyCheckMs = 10;
// How long after the end of a worker's socket its GPUs may go on.
constexpr Millis kLastKernels{10};
constexpr uint32_t kElsewhere = UINT32_MAX;

// By rank of the job; those on the host of rank `own` have a local rank each, in ascending order.
std::vector<uint32_t> local_ranks_by_rank(const std::vector<std::string>& hosts, uint32_t own) {
  std::vector<uint32_t> local_ranks;
  uint32_t next = 0;
  for (const std::string& host : hosts)
    local_ranks.push_back(host == hosts[own] ? next++ : kElsewhere);
  return local_ranks;
}

}  // namespace

Connection::Connection(JoinTarget target) : target_(std::move(target)) {}

Status Connection::open(const JoinTarget& target, std::shared_ptr<Connection>& connection) {
  JoinReply reply;
  if (Status s = join_job(target, reply); !s.ok()) return s;
  std::shared_ptr<Connection> made(new Connection(target));
  if (Status s = made->own_memory_.map(std::move(reply.memory)); !s.ok()) return s;
  made->socket_ = std::move(reply.socket);
  made->doorbell_ = std::move(reply.doorbell);
  made->hosts_ = std::move(reply.welcome.hosts);
  made->epoch_ = reply.welcome.epoch;
  made->worker_pid_ = reply.welcome.worker_pid;
  made->local_ranks_ = local_ranks_by_rank(made->hosts_, target.rank);
  Status mapped = HostMemory::open(std::move(reply.board), std::move(reply.recorder),
                                   std::move(reply.segments), made->local_ranks_[target.rank],
                                   *made->own_memory_.segment(), made->memory_);
  if (!mapped.ok()) return mapped;
  made->cores_.enough = has_cores_for(made->memory_->local_ranks());
  made->cores_.spare = has_cores_for(made->memory_->local_ranks() + 1);
  made->show_process();
  made->log_welcome();
  connection = std::move(made);
  return {};
}

// Like leave(), without an outcome for operations: none is left. Allocates nothing, so it cannot
// throw.
Connection::~Connection() {
  if (is_own_process() && socket_.valid()) close_socket();
}

void Connection::close_socket() {
  own_memory_.segment()->header().leaving.store(1, std::memory_order_release);
  shutdown(socket_.get(), SHUT_RDWR);
}

void Connection::leave() {
  if (!is_own_process() || !socket_.valid()) return;
  if (logs(LogLevel::info)) log(LogLevel::info, own_name() + " leaves");
  {
    const std::lock_guard lock(mutex_);
    if (!lost_)
      lost_ = without_throwing(Code::cancelled, [this] {
        return Status(Code::cancelled, "rank " + std::to_string(target_.rank) + " left job '" +
                                           target_.job + "'; join it again");
      });
    is_lost_ = true;
  }
  const TimePoint limit = Clock::now() + kLeaveTime;
  under_way_.cancel_all(limit);
  close_socket();
  if (attachment_ != nullptr) attachment_->close(limit);
}

std::vector<uint32_t> Connection::local_ranks_of(const std::vector<uint32_t>& ranks) const {
  std::vector<uint32_t> here;
  for (const uint32_t rank : ranks)
    if (local_ranks_[rank] != kElsewhere) here.push_back(local_ranks_[rank]);
  return here;
}

// ---- The worker ----

Status Connection::usable() const noexcept {
  if (!is_own_process())
    return without_throwing(Code::failed_precondition, [] {
      return failed_precondition(
          "a forked child cannot use its parent's group; it must join again");
    });
  if (!is_lost_) return {};
  const std::lock_guard lock(mutex_);
  return *lost_;
}

std::string Connection::own_name() const {
  return "rank " + std::to_string(target_.rank) + " of " + std::to_string(target_.world_size) +
         " of job '" + target_.job + "'";
}

void Connection::log_welcome() const {
  if (!logs(LogLevel::info)) return;
  log(LogLevel::info, own_name() + " has joined: host " + hosts_[target_.rank] + ", epoch " +
                          std::to_string(epoch_) + ", " + std::to_string(memory_->local_ranks()) +
                          " ranks here, worker pid " + std::to_string(worker_pid_));
}

std::string Connection::worker_name() const {
  return "the worker of job '" + target_.job + "' on host " + hosts_[target_.rank] + " (pid " +
         std::to_string(worker_pid_) + ")";
}

Status Connection::worker_timeout() const {
  return deadline_exceeded(worker_name() + " does not answer; join again",
                           {-1, hosts_[target_.rank]});
}

std::string Connection::rank_name(uint32_t local_rank) const {
  return "rank " + std::to_string(rank_of(local_rank)) + " (host " + own_host() + ")";
}

uint32_t Connection::rank_of(uint32_t local_rank) const {
  return static_cast<uint32_t>(std::ranges::find(local_ranks_, local_rank) - local_ranks_.begin());
}

bool Connection::is_worker_there() {
  char byte = 0;
  const ssize_t got = recv(socket_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

// After close_socket() nothing tells.
bool Connection::has_worker_ended() {
  if (worker_died_.load() == TimePoint::max()) {
    if (is_worker_there() || own_memory_.segment()->header().leaving.load() != 0) return false;
    worker_died_ = Clock::now();
  }
  return Clock::now() >= worker_died_.load() + kLastKernels;
}

bool Connection::check_worker() {
  if (is_worker_there()) return true;
  mark_lost(unavailable(worker_name() + " died; join again", {-1, hosts_[target_.rank]}));
  return false;
}

void Connection::check_worker_if_due() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  const int64_t now_ms = int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
  int64_t next_ms = next_check_ms_.load(std::memory_order_relaxed);
  if (now_ms < next_ms || !is_own_process() || is_lost_) return;
  if (next_check_ms_.compare_exchange_strong(next_ms, now_ms + kBusyCheckMs)) check_worker();
}

void Connection::mark_lost(const Status& why) {
  {
    const std::lock_guard lock(mutex_);
    is_lost_ = true;
    if (lost_) return;
    lost_ = why;
  }
  if (logs(LogLevel::warn)) log(LogLevel::warn, own_name() + " is lost: " + why.message());
}

void Connection::ring_worker() const { eventfd_write(doorbell_.get(), 1); }

Result<Connection::Subgroup> Connection::make_subgroup(std::span<const uint32_t> ranks,
                                                       TimePoint deadline, uint64_t channel) {
  if (Status s = usable(); !s.ok()) return s;
  const TimePoint limit = deadline + kAnswerGrace;
  const std::unique_lock lock(subgroup_mutex_, limit);
  if (!lock) return worker_timeout();  // It has not answered another thread.
  std::byte* list = own_memory_.allocate(ranks.size_bytes());
  if (list == nullptr) return resource_exhausted("the segment is full");
  std::memcpy(list, ranks.data(), ranks.size_bytes());
  BoardSubgroupRequest& request = memory_->view().subgroup_request(memory_->local_rank());
  const auto set_state = [&](SubgroupRequestState state) {
    request.state.store(static_cast<uint32_t>(state), std::memory_order_release);
  };
  request.ranks = static_cast<uint32_t>(ranks.size());
  request.list_offset = own_memory_.offset_of(list);
  request.channel = channel;
  set_state(SubgroupRequestState::asked);
  ring_worker();
  Status answered = await_answer(request.state, limit);
  const Subgroup made{request.group, request.area};
  if (answered.ok() && request.failure.code != TUTTI_OK) answered = read_failure(request.failure);
  set_state(SubgroupRequestState::free);
  own_memory_.free(list);
  if (!answered.ok()) return answered;
  return made;
}

Status Connection::offer(uint64_t offer_offset, std::span<const int> descriptors) {
  if (Status s = usable(); !s.ok()) return s;
  const std::lock_guard lock(offer_mutex_);
  if (Status s = send_descriptors(descriptors, kChunksMessage); !s.ok()) return s;
  BoardOffer& offer = memory_->view().offer(memory_->local_rank());
  offer.offer_offset = offer_offset;
  offer.state.store(static_cast<uint32_t>(SubgroupRequestState::asked), std::memory_order_release);
  ring_worker();
  Status answered = await_answer(offer.state, default_deadline() + kAnswerGrace);
  if (answered.ok() && offer.failure.code != TUTTI_OK) answered = read_failure(offer.failure);
  offer.state.store(static_cast<uint32_t>(SubgroupRequestState::free), std::memory_order_release);
  return answered;
}

// A worker that cannot see this process, because of their PID namespaces, watches it by this.
void Connection::show_process() const {
  const Fd process(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  const int descriptor = process.get();
  if (process.valid()) static_cast<void>(send_descriptors({&descriptor, 1}, kProcessMessage));
}

// Each message has one byte and as many descriptors as Linux lets it carry.
Status Connection::send_descriptors(std::span<const int> descriptors, char byte) const {
  constexpr size_t kMost = 253;
  while (!descriptors.empty()) {
    const std::span<const int> some = descriptors.first(std::min(kMost, descriptors.size()));
    iovec part = {&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(kMost * sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(some.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(some.size_bytes());
    std::memcpy(CMSG_DATA(header), some.data(), some.size_bytes());
    const ssize_t sent = sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return errno_status("cannot send descriptors to " + worker_name());
    descriptors = descriptors.subspan(some.size());
  }
  return {};
}

Status Connection::await_answer(std::atomic<uint32_t>& state, TimePoint limit) {
  constexpr auto kAsked = static_cast<uint32_t>(SubgroupRequestState::asked);
  while (state.load(std::memory_order_acquire) == kAsked) {
    if (Status s = usable(); !s.ok()) return s;
    if (!check_worker()) continue;
    if (Clock::now() > limit) {
      mark_lost(worker_timeout());
      return worker_timeout();
    }
    board::sleep_on(state, kAsked, std::chrono::microseconds(kWorkerCheck).count());
  }
  return {};
}

}  // namespace tutti::client
