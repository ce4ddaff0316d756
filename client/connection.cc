#include "client/connection.h"

#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "client/calls.h"

namespace tutti::client {
namespace {

// Free pages kept for reuse.
constexpr uint64_t kWarmBytesMax = uint64_t{1} << 30;
// How often a sleeper looks whether its worker lives.
constexpr int64_t kPulseMs = 50;
// How often a rank that is busy on the board does.
constexpr int64_t kLookMs = 10;
constexpr uint32_t kElsewhere = UINT32_MAX;

// Ranks on the host of rank `own` have a seat each, in the order of their ranks.
std::vector<uint32_t> seats(const std::vector<std::string>& hosts, uint32_t own) {
  std::vector<uint32_t> seats;
  uint32_t next = 0;
  for (const std::string& host : hosts) seats.push_back(host == hosts[own] ? next++ : kElsewhere);
  return seats;
}

}  // namespace

Connection::Connection(JoinTarget target) : target_(std::move(target)) {}

Status Connection::open(const JoinTarget& target, std::shared_ptr<Connection>& connection) {
  Greeting greeting;
  if (Status s = greet(target, greeting); !s.ok()) return s;
  std::shared_ptr<Connection> made(new Connection(target));
  if (Status s = made->segment_.map(std::move(greeting.memory)); !s.ok()) return s;
  made->socket_ = std::move(greeting.socket);
  made->doorbell_ = std::move(greeting.doorbell);
  made->hosts_ = std::move(greeting.welcome.hosts);
  made->epoch_ = greeting.welcome.epoch;
  made->worker_pid_ = greeting.welcome.worker_pid;
  made->seat_of_rank_ = seats(made->hosts_, target.rank);
  const Segment& segment = made->segment_;
  made->arena_.emplace(
      kArenaOffset, segment.bytes() - kArenaOffset, kWarmBytesMax,
      [&segment](uint64_t offset, uint64_t bytes) { segment.discard(offset, bytes); },
      [&segment](uint64_t offset, uint64_t bytes) { segment.populate(offset, bytes); });
  Status mapped = HostMemory::open(std::move(greeting.board), std::move(greeting.memories),
                                   made->seat_of_rank_[target.rank], segment, made->memory_);
  if (!mapped.ok()) return mapped;
  made->cores_.enough = has_cores_for(made->memory_->seats());
  made->cores_.spare = has_cores_for(made->memory_->seats() + 1);
  connection = std::move(made);
  return {};
}

// Nobody is left to be told why: this needs no memory, as a destructor must not fail.
Connection::~Connection() {
  if (is_mine() && socket_.valid()) say_goodbye();
}

void Connection::say_goodbye() {
  segment_.header().leaving.store(1, std::memory_order_release);
  shutdown(socket_.get(), SHUT_RDWR);
}

void Connection::leave() {
  if (!is_mine()) return;
  {
    const std::lock_guard lock(mutex_);
    if (!socket_.valid()) return;
    if (lost_) return say_goodbye();
    lost_ = without_throwing(Code::cancelled, [this] {
      return Status(Code::cancelled, "rank " + std::to_string(target_.rank) + " left job '" +
                                         target_.job + "'; join it anew");
    });
    is_lost_ = true;
  }
  for_each_group([](Calls& group) { group.cancel(); });
  say_goodbye();
}

// Without its lock, and without memory of its own.
template <class Use>
void Connection::for_each_group(const Use& use) {
  for (size_t i = 0;; ++i) {
    std::shared_ptr<Calls> group;
    {
      const std::lock_guard lock(mutex_);
      if (i >= calls_.size()) return;
      group = calls_[i];
    }
    use(*group);
  }
}

void Connection::settle_all() {
  for_each_group([](Calls& group) { group.settle_finished(); });
}

void Connection::add(const std::shared_ptr<Calls>& calls) {
  settle_all();
  const std::lock_guard lock(mutex_);
  std::erase_if(calls_, [](const std::shared_ptr<Calls>& old) {
    return old.use_count() == 1 && !old->holds_memory();
  });
  calls_.push_back(calls);
}

std::vector<uint32_t> Connection::seats_of(const std::vector<uint32_t>& ranks) const {
  std::vector<uint32_t> here;
  for (const uint32_t rank : ranks)
    if (seat_of_rank_[rank] != kElsewhere) here.push_back(seat_of_rank_[rank]);
  return here;
}

// ---- The worker ----

Status Connection::usable() const noexcept {
  if (!is_mine())
    return without_throwing(Code::failed_precondition, [] {
      return failed_precondition("a forked child cannot use its parent's group; it must join anew");
    });
  if (!is_lost_) return {};
  const std::lock_guard lock(mutex_);
  return without_throwing(
      lost_->code(), [this] { return *lost_; }, lost_->culprit().rank);
}

std::string Connection::worker() const {
  return "the worker of job '" + target_.job + "' on host " + hosts_[target_.rank] + " (pid " +
         std::to_string(worker_pid_) + ")";
}

Status Connection::no_answer() const {
  return deadline_exceeded(worker() + " does not answer; join again", {-1, hosts_[target_.rank]});
}

std::string Connection::rank_at(uint32_t seat) const {
  const auto rank = std::ranges::find(seat_of_rank_, seat) - seat_of_rank_.begin();
  return "rank " + std::to_string(rank) + " (host " + hosts_[target_.rank] + ")";
}

bool Connection::check_worker() {
  char byte = 0;
  const ssize_t got = recv(socket_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR))) return true;
  lose(unavailable(worker() + " died; join again", {-1, hosts_[target_.rank]}));
  return false;
}

void Connection::check_pulse() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  const int64_t now_ms = int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
  int64_t next_ms = next_pulse_ms_.load(std::memory_order_relaxed);
  if (now_ms < next_ms || !is_mine() || is_lost_) return;
  if (next_pulse_ms_.compare_exchange_strong(next_ms, now_ms + kLookMs)) check_worker();
}

void Connection::lose(const Status& why) {
  const std::lock_guard lock(mutex_);
  if (!lost_) lost_ = why;
  is_lost_ = true;
}

void Connection::ring_worker() const { eventfd_write(doorbell_.get(), 1); }

Status Connection::make_subgroup(const uint32_t* ranks, size_t count, Subgroup& made) {
  if (Status s = usable(); !s.ok()) return s;
  std::byte* list = allocate(count * sizeof(uint32_t));
  if (list == nullptr) return resource_exhausted("the segment is full");
  std::memcpy(list, ranks, count * sizeof(uint32_t));
  const std::lock_guard one_at_a_time(subgroup_mutex_);
  BoardSubgroupRequest& subgroup = memory_->view().subgroup_request(memory_->seat());
  subgroup.ranks = static_cast<uint32_t>(count);
  subgroup.list_offset = offset_of(list);
  subgroup.state.store(static_cast<uint32_t>(SubgroupRequestState::asked),
                       std::memory_order_release);
  ring_worker();
  Status answered =
      await_answer(subgroup, Clock::now() + Millis(target_.timeout_ms) + kAnswerGrace);
  if (answered.ok()) made = {subgroup.group, subgroup.area};
  if (answered.ok() && subgroup.failure.code != TUTTI_OK) answered = read_failure(subgroup.failure);
  subgroup.state.store(static_cast<uint32_t>(SubgroupRequestState::free),
                       std::memory_order_release);
  free(list);
  return answered;
}

Status Connection::await_answer(BoardSubgroupRequest& subgroup, TimePoint limit) {
  constexpr auto kAsked = static_cast<uint32_t>(SubgroupRequestState::asked);
  while (subgroup.state.load(std::memory_order_acquire) == kAsked) {
    if (Status s = usable(); !s.ok()) return s;
    if (!check_worker()) continue;
    if (Clock::now() > limit) {
      lose(no_answer());
      return no_answer();
    }
    board::sleep_on(subgroup.state, kAsked, kPulseMs * 1000);
  }
  return {};
}

// ---- Memory ----

std::byte* Connection::allocate(uint64_t bytes) {
  if (!is_mine()) return nullptr;
  if (abandoned_ != 0) settle_all();
  const std::lock_guard lock(mutex_);
  const std::optional<uint64_t> block = arena_->allocate(bytes);
  return block ? segment_.base() + *block : nullptr;
}

bool Connection::free(const void* memory) {
  if (!segment_.contains(memory, 0)) return false;
  if (!is_mine()) return true;
  const std::lock_guard lock(mutex_);
  return arena_->give_back(segment_.offset_of(memory));
}

std::optional<uint64_t> Connection::hold(const void* memory, uint64_t bytes) {
  if (!segment_.contains(memory, bytes) || !is_mine()) return std::nullopt;
  const std::lock_guard lock(mutex_);
  return arena_->hold(segment_.offset_of(memory), bytes);
}

Status Connection::check_block(const char* side, const void* memory, uint64_t bytes) {
  if (bytes == 0 || !is_shared(memory)) return {};
  const std::lock_guard lock(mutex_);
  const uint64_t room = arena_->room_at(segment_.offset_of(memory));
  if (bytes <= room) return {};
  return invalid_argument(std::string(side) + " has " + std::to_string(bytes) +
                          " bytes, but its block of tutti_alloc() has only " +
                          std::to_string(room) +
                          " from there on; allocate more, or pass a smaller count");
}

void Connection::release(const std::vector<uint64_t>& blocks) {
  if (blocks.empty() || !is_mine()) return;
  const std::lock_guard lock(mutex_);
  for (const uint64_t block : blocks) arena_->release(block);
}

uint64_t Connection::used_bytes() {
  const std::lock_guard lock(mutex_);
  return arena_->used_bytes();
}

}  // namespace tutti::client
