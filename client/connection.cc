#include "client/connection.h"

#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tutti::client {
namespace {

// Free pages kept for reuse.
constexpr uint64_t kWarmBytesMax = uint64_t{1} << 30;
// How often a rank that is busy on the board looks whether its worker lives.
constexpr Millis kPulse{10};
// A worker ends operations at their deadline; what takes this much longer will never end.
constexpr Millis kGrace{5'000};

constexpr uint32_t kFree = slot_word(SlotState::free);

int64_t nanoseconds(TimePoint time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

template <size_t N>
std::string text_of(const char (&text)[N]) {
  return std::string(text, strnlen(text, N));
}

}  // namespace

Connection::Connection(JoinTarget target) : target_(std::move(target)) {}

Outcome Connection::open(const JoinTarget& target, std::shared_ptr<Connection>& connection) {
  Greeting greeting;
  if (Outcome o = greet(target, greeting); !o.ok()) return o;
  std::shared_ptr<Connection> made(new Connection(target));
  if (Outcome o = made->segment_.map(std::move(greeting.memory)); !o.ok()) return o;
  made->socket_ = std::move(greeting.socket);
  made->doorbell_ = std::move(greeting.doorbell);
  made->hosts_ = std::move(greeting.welcome.hosts);
  made->epoch_ = greeting.welcome.epoch;
  const Segment& segment = made->segment_;
  made->arena_.emplace(
      kArenaOffset, segment.bytes() - kArenaOffset, kWarmBytesMax,
      [&segment](uint64_t offset, uint64_t bytes) { segment.discard(offset, bytes); },
      [&segment](uint64_t offset, uint64_t bytes) { segment.populate(offset, bytes); });
  made->cores_.enough = has_cores_for(1);
  if (greeting.board.valid()) {
    Outcome o = Board::open(std::move(greeting.board), std::move(greeting.memories), target.rank,
                            segment, made->doorbell_.get(), made->board_);
    if (!o.ok()) return o;
    made->cores_.enough = has_cores_for(made->board_->ranks());
  }
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
  const std::lock_guard lock(mutex_);
  if (!socket_.valid() || lost_) return;
  lost_ = failure(TUTTI_CANCELLED, "rank " + std::to_string(target_.rank) + " left job '" +
                                       target_.job + "'; join it anew");
  for (const std::shared_ptr<Ticket>& ticket : std::exchange(slots_, {})) {
    if (ticket == nullptr || settle(*ticket)) continue;
    if (!ticket->known) ticket->outcome = *lost_;
    ticket->known = ticket->settled = true;
  }
  say_goodbye();
}

Outcome Connection::usable() {
  if (!is_mine()) return failure(TUTTI_FAILED_PRECONDITION, "a forked child must join by itself");
  return lost_.value_or(Outcome{});
}

// ---- Requests ----

Outcome Connection::assign(Request& request, const std::shared_ptr<Ticket>& ticket) {
  if (Outcome o = usable(); !o.ok()) return o;
  if (!abandoned_.empty()) collect();
  if (ticket->slot) return {};
  const std::optional<uint32_t> slot = free_slot();
  if (!slot)
    return failure(TUTTI_RESOURCE_EXHAUSTED,
                   std::to_string(kRingSlots) + " operations are unfinished; wait for one");
  ticket->slot = *slot;
  ticket->started = Clock::now();
  ticket->deadline = ticket->started + Millis(request.timeout_ms);
  ticket->limit = ticket->deadline + kGrace;
  slots_[*slot] = ticket;
  segment_.completion(*slot).state.store(slot_word(SlotState::pending), std::memory_order_relaxed);
  return {};
}

Outcome Connection::meet(Request request, uint32_t flags, const std::shared_ptr<Ticket>& ticket,
                         bool& met) {
  met = false;
  if (board_ == nullptr || request.group != 0 || ticket->number) return {};
  const std::lock_guard lock(mutex_);
  check_pulse();
  if (request.timeout_ms == 0) request.timeout_ms = target_.timeout_ms;
  if (Outcome o = assign(request, ticket); !o.ok()) return o;
  const uint64_t number = board_->take_number();
  request.slot = *ticket->slot;
  ticket->number = number;
  segment_.completion(*ticket->slot)
      .state.store(board_slot_word(SlotState::pending, number), std::memory_order_relaxed);
  if (suits_board(request, board_->ranks()))
    met = board_->arrive(number, {request, nanoseconds(ticket->started), segment_.head(), flags});
  if (!met) board_->pass(number);
  return {};
}

Outcome Connection::submit(Request request, const std::shared_ptr<Ticket>& ticket) {
  const std::lock_guard lock(mutex_);
  if (request.timeout_ms == 0) request.timeout_ms = target_.timeout_ms;
  if (Outcome o = assign(request, ticket); !o.ok()) return o;
  if (board_ != nullptr) board_->divert_all();
  request.slot = *ticket->slot;
  segment_.publish(request);
  eventfd_write(doorbell_.get(), 1);
  return {};
}

// What the board does needs no worker; yet a job whose worker died is over.
void Connection::check_pulse() {
  if (Clock::now() < next_pulse_) return;
  next_pulse_ = Clock::now() + kPulse;
  if (!lost_ && is_mine() && !worker_lives()) lost_ = worker_died();
}

// The slots of works that are done but were not waited for serve again.
std::optional<uint32_t> Connection::free_slot() {
  for (uint32_t i = 0; i < kRingSlots; ++i) {
    const uint32_t slot = (next_slot_ + i) % kRingSlots;
    if (slots_[slot] != nullptr && !settle(*std::shared_ptr(slots_[slot]))) continue;
    next_slot_ = (slot + 1) % kRingSlots;
    return slot;
  }
  return std::nullopt;
}

void Connection::read(const Completion& completion, Ticket& ticket) {
  const auto code = code_of(static_cast<uint32_t>(completion.code));
  if (code != TUTTI_OK && !ticket.known)
    ticket.outcome = {code, text_of(completion.message), completion.culprit_rank,
                      text_of(completion.culprit_host)};
  ticket.value = completion.value;
}

bool Connection::settle(Ticket& ticket) {
  if (ticket.settled) return true;
  if (!is_mine()) return false;
  Completion& completion = segment_.completion(*ticket.slot);
  const SlotState state = state_of(completion.state.load(std::memory_order_acquire));
  if (state != SlotState::done && state != SlotState::folded) return false;
  if (state == SlotState::folded) board_->count(ticket.bytes);
  if (state == SlotState::done) read(completion, ticket);
  ticket.known = ticket.settled = true;
  completion.state.store(kFree, std::memory_order_relaxed);
  slots_[*ticket.slot] = nullptr;
  return true;
}

// Copies outside of the connection's lock: outputs may be large.
void Connection::deliver(Ticket& ticket) {
  const std::lock_guard one_at_a_time(ticket.delivery);
  if (std::exchange(ticket.delivered, true)) return;
  if (ticket.outcome.ok() && ticket.copy_bytes != 0)
    std::memcpy(ticket.copy_to, ticket.copy_from, ticket.copy_bytes);
  if (!is_mine()) return;
  const std::lock_guard lock(mutex_);
  if (!settle(ticket)) return abandoned_.push_back(slots_[*ticket.slot]);
  for (const uint64_t block : ticket.blocks) arena_->release(block);
}

void Connection::abandon(const std::shared_ptr<Ticket>& ticket) {
  if (!is_mine()) return;
  const std::lock_guard one_at_a_time(ticket->delivery);
  if (std::exchange(ticket->delivered, true)) return;
  const std::lock_guard lock(mutex_);
  abandoned_.push_back(ticket);
  collect();
}

void Connection::collect() {
  std::erase_if(abandoned_, [this](const std::shared_ptr<Ticket>& ticket) {
    if (!settle(*ticket)) return false;
    for (const uint64_t block : ticket->blocks) arena_->release(block);
    return true;
  });
}

// ---- Memory ----

std::byte* Connection::allocate(uint64_t bytes) {
  if (!is_mine()) return nullptr;
  const std::lock_guard lock(mutex_);
  if (!abandoned_.empty()) collect();
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
  if (!segment_.contains(memory, bytes)) return std::nullopt;
  const std::lock_guard lock(mutex_);
  return arena_->hold(segment_.offset_of(memory), bytes);
}

Outcome Connection::check_block(const char* side, const void* memory, uint64_t bytes) {
  if (bytes == 0 || !is_shared(memory)) return {};
  const std::lock_guard lock(mutex_);
  const uint64_t room = arena_->room_at(segment_.offset_of(memory));
  if (bytes <= room) return {};
  return failure(TUTTI_INVALID_ARGUMENT,
                 std::string(side) + " has " + std::to_string(bytes) +
                     " bytes, but its block of tutti_alloc() has only " + std::to_string(room) +
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
