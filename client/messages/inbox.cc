#include "client/messages/inbox.h"

#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include "client/operations/submission.h"
#include "client/rank/signals.h"
#include "proto/types.h"

namespace tutti::client {
namespace {

// Headers are awaited for as long as a call may come that wants them.
constexpr uint32_t kHeaderTimeoutMs = INT32_MAX;
// Between two looks at several channels.
constexpr Millis kChannelsPause{1};
// How long a thread sleeps on one broadcast before it looks at the others.
constexpr int64_t kAwaitMs = 50;
// What a caller that is about to wait is given before the inbox's thread reads for it.
constexpr Millis kHeadStart{1};

std::string text_of(uint32_t dtype, uint64_t count) {
  return std::string(name_of(static_cast<Dtype>(dtype))) + "[" + std::to_string(count) + "]";
}

int64_t left_ms(TimePoint until, TimePoint now) {
  if (until == TimePoint::max()) return INT64_MAX;
  return std::chrono::ceil<Millis>(until - now).count();
}

std::string text_of(const Receive& receive) {
  const std::string from =
      receive.source == kAnyRank ? "any rank" : "rank " + std::to_string(receive.source);
  return "recv " + text_of(receive.dtype, receive.count) + " from " + from + " (tag " +
         std::to_string(receive.tag) + ")";
}

Status shape_fault(const Receive& receive, const MessageShape& shape) {
  if (receive.refusal) return *receive.refusal;
  if (receive.count == shape.count && receive.dtype == shape.dtype) return {};
  return failed_precondition("the message is " + text_of(shape.dtype, shape.count));
}

}  // namespace

std::byte* Inbox::Message::next() {
  if (direct) return receive->out + done;
  return kept.data() + (discarded ? 0 : done);
}

bool Inbox::Message::make_room(uint64_t bytes) {
  try {
    kept.resize(bytes);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

Inbox::~Inbox() {
  if (!members_.connection->is_own_process()) return;
  for (auto& [rank, source] : sources_) {
    if (source.read != nullptr) source.channel->queue->abandon(source.read);
    if (source.buffer != nullptr) members_.connection->own_memory().free(source.buffer);
  }
}

// ---- Calls ----

Status Inbox::add(const std::shared_ptr<Receive>& receive, bool background) {
  receive->looks = members_.connection->memory().view().header().looks.load();
  const Status made = make_sources(*receive);
  const std::lock_guard lock(mutex_);
  const bool has_thread = !background || has_thread_ || start_thread();
  if (!receive->refusal) {  // A refused one waits for its message, no matter who reads it.
    if (!made.ok()) return made;
    if (!has_thread)
      return resource_exhausted("no thread can be started, which a receive with `work` needs");
  }
  if (!take_message(receive)) add_pending(receive);
  if (receive->source == kAnyRank && made.ok() && !can_come())
    fail_wildcards(*sources_.begin()->second.broken);
  if (background && has_thread && !receive->outcome) {
    receive->is_background = true;
    ++background_;
    changed_.notify_all();
  }
  try {
    advance();
  } catch (const std::exception&) {
    if (std::erase(pending_, receive) != 0)
      finish(*receive, -1, resource_exhausted("this process is out of memory"));
  }
  return {};
}

void Inbox::add_pending(const std::shared_ptr<Receive>& receive) {
  pending_.push_back(receive);
  const auto refused = std::ranges::count_if(
      pending_, [](const auto& pending) { return pending->refusal.has_value(); });
  if (static_cast<size_t>(refused) > kOwedMax)
    members_.connection->mark_lost(resource_exhausted(
        std::to_string(kOwedMax) + " refused receives wait for their messages; join again"));
}

Status Inbox::wait(Receive& receive, int64_t timeout_ms) {
  Connection& connection = *members_.connection;
  if (!connection.is_own_process()) return connection.usable();
  const TimePoint limit = timeout_ms < 0 ? TimePoint::max() : Clock::now() + Millis(timeout_ms);
  Backoff backoff(connection.cores());
  std::unique_lock lock(mutex_);
  const Reading reading(*this);
  while (!receive.outcome) {
    advance();
    const TimePoint now = Clock::now();
    if (receive.outcome || now >= limit) break;
    const Awaited awaited = next_awaited(&receive);
    const int64_t left = left_ms(std::min(limit, receive.deadline), now);
    if (awaited.op != nullptr) {
      lock.unlock();
      static_cast<void>(awaited.queue->await_outcome(
          *awaited.op,
          std::clamp<int64_t>(left, 1, awaited.is_only ? kAwaitMs : kChannelsPause.count())));
      lock.lock();
    } else {
      lock.unlock();
      const bool stays_awake = backoff.pause();
      lock.lock();
      if (!stays_awake && !receive.outcome) changed_.wait_for(lock, kChannelsPause);
    }
  }
  if (receive.outcome) return *receive.outcome;
  return deadline_exceeded("not done after " + std::to_string(timeout_ms) +
                           " ms; the message is still awaited");
}

bool Inbox::poll(Receive& receive) {
  if (!members_.connection->is_own_process()) return true;
  const std::lock_guard lock(mutex_);
  advance();
  return receive.outcome.has_value();
}

void Inbox::abandon(const std::shared_ptr<Receive>& receive) {
  if (!members_.connection->is_own_process()) return;
  const std::lock_guard lock(mutex_);
  std::erase(pending_, receive);
  for (auto& [rank, source] : sources_)
    if (source.reads_part() && source.messages.back().receive == receive) discard_last(source);
  if (!receive->outcome)
    finish(*receive, -1, Status(Code::cancelled, "nobody waits for the message"));
}

// The message that is being read is read to its end, but not to the memory of its call.
void Inbox::discard_last(Source& source) {
  Message& message = source.messages.back();
  message.kept.resize(part_bytes(message.shape.bytes(), 0));
  if (source.read != nullptr) {
    source.channel->queue->abandon(source.read);
    source.read = nullptr;
    message.done += part_bytes(message.shape.bytes(), message.done);
  }
  message.receive = nullptr;
  message.direct = false;
  message.discarded = true;
  settle_last(source);
}

void Inbox::close() {
  if (!members_.connection->is_own_process()) return;
  const std::lock_guard lock(mutex_);
  for (const auto& receive : pending_)  // Nobody can receive what comes after its message.
    if (receive->refusal) stop_background(*receive);
  closed_ = true;
  changed_.notify_all();
}

void Inbox::finish(Receive& receive, int32_t from, Status outcome) {
  if (!outcome.ok())
    outcome =
        Status(outcome.code(), text_of(receive) + ": " + outcome.message(), outcome.culprit());
  receive.outcome = std::move(outcome);
  receive.memory.end();
  receive.from = from;
  stop_background(receive);
  changed_.notify_all();
}

void Inbox::stop_background(Receive& receive) {
  if (std::exchange(receive.is_background, false)) --background_;
}

// ---- Channels ----

Status Inbox::make_source(uint32_t rank, TimePoint deadline) {
  {
    const std::lock_guard lock(mutex_);
    if (sources_.contains(rank)) return {};
  }
  Result<std::unique_ptr<Group>> channel = make_channel(members_, rank, members_.rank, deadline);
  if (!channel.ok()) return channel.status();
  std::byte* const buffer = members_.connection->own_memory().allocate(sizeof(MessageHeader));
  if (buffer == nullptr)
    return resource_exhausted("the segment has no room for a message; raise segment_bytes");
  const std::lock_guard lock(mutex_);
  Source& source = sources_[rank];
  source.rank = rank;
  source.buffer = buffer;
  source.channel = *std::move(channel);
  return {};
}

Status Inbox::make_sources(const Receive& receive) {
  const std::unique_lock lock(making_, receive.deadline + kAnswerGrace);
  if (!lock) return members_.connection->worker_timeout();  // It has not answered another thread.
  const TimePoint deadline = receive.deadline;
  if (receive.source != kAnyRank)
    return make_source(static_cast<uint32_t>(receive.source), deadline);
  for (uint32_t rank = 0; rank < members_.ranks.size(); ++rank)
    if (rank != members_.rank)
      if (Status s = make_source(rank, deadline); !s.ok()) return s;
  return {};
}

bool Inbox::is_wanted(const Source& source) const {
  return std::ranges::any_of(pending_, [&](const auto& receive) {
    if (receive->source == kAnyRank) return !source.broken;
    return receive->source == static_cast<int32_t>(source.rank);
  });
}

// ---- Reading ----

void Inbox::advance() {
  for (auto& [rank, source] : sources_) advance(source);
  expire();
}

// Ends: each turn reads something, or takes a call off `pending_`, or finds the channel broken.
void Inbox::advance(Source& source) {
  for (;;) {
    if (source.read != nullptr) {
      if (!source.channel->queue->poll(*source.read)) return;
      end_read(source);
      continue;
    }
    const bool reads_part = source.reads_part();
    if (!reads_part && !is_wanted(source)) return;
    if (!source.channel->queue->has_free_slot()) return;  // The sender has not caught up.
    const Status started = reads_part ? start_part(source) : start_header(source);
    if (!started.ok()) on_failure(source, started, false);
  }
}

Status Inbox::start_header(Source& source) {
  return start_read(source, source.buffer, sizeof(MessageHeader), kHeaderDtype, kHeaderTimeoutMs);
}

Status Inbox::start_part(Source& source) {
  Message& message = source.messages.back();
  uint32_t timeout_ms = members_.connection->target().timeout_ms;
  if (message.receive != nullptr)
    timeout_ms = static_cast<uint32_t>(std::clamp<int64_t>(
        left_ms(message.receive->deadline, Clock::now()), kLeastPartMs, INT32_MAX));
  return start_read(source, message.next(), part_bytes(message.shape.bytes(), message.done),
                    kPartDtype, timeout_ms);
}

Status Inbox::start_read(Source& source, void* to, uint64_t bytes, tutti_dtype dtype,
                         uint32_t timeout_ms) {
  tutti_options options = tutti_defaults();
  options.timeout_ms = static_cast<int32_t>(timeout_ms);
  return client::run(*source.channel, CollectiveArgs{TUTTI_BROADCAST, to, to, bytes, dtype},
                     &options, &source.read);
}

// If memory runs out, the read stays as it is, to be ended again.
void Inbox::end_read(Source& source) {
  const Status outcome = source.channel->queue->wait(*source.read, -1);
  if (outcome.ok() && source.reads_part()) {
    Message& message = source.messages.back();
    message.done += part_bytes(message.shape.bytes(), message.done);
    source.read = nullptr;
    settle_last(source);
  } else if (outcome.ok()) {
    on_header(source);
  } else {
    source.read = nullptr;
    on_failure(source, outcome, members_.connection->usable().ok());
  }
}

void Inbox::on_header(Source& source) {
  MessageHeader header;
  std::memcpy(&header, source.buffer, sizeof(header));
  if (header.shape.magic == MessageHeader::kRefused ||
      header.shape.magic == MessageHeader::kRefusedAnyTag)
    return on_refusal(source, header);
  if (!header.shape.is_sound()) {
    source.read = nullptr;
    return;  // Nobody can receive it.
  }
  Message message;
  message.shape = header.shape;
  const uint64_t bytes = header.shape.bytes();
  const std::shared_ptr<Receive> receive = find_receive(source, header.shape.tag);
  const Status fault = receive != nullptr ? shape_fault(*receive, header.shape) : Status();
  message.discarded = !fault.ok();
  message.direct = receive != nullptr && fault.ok() && bytes > header.data.size();
  if (!message.direct && !message.discarded) message.discarded = !message.make_room(bytes);
  if (message.discarded) message.kept.resize(part_bytes(bytes, 0));
  if (!message.discarded) message.receive = receive;
  if (bytes <= header.data.size()) {
    if (!message.discarded) std::copy_n(header.data.begin(), bytes, message.kept.begin());
    message.done = bytes;
  }
  source.messages.push_back(std::move(message));
  source.read = nullptr;
  if (receive != nullptr) std::erase(pending_, receive);
  if (receive != nullptr && source.messages.back().discarded)
    finish(*receive, static_cast<int32_t>(source.rank),
           fault.ok() ? resource_exhausted("this process is out of memory") : fault);
  settle_last(source);
}

// The call that the message was for fails, now or when it comes.
void Inbox::on_refusal(Source& source, const MessageHeader& header) {
  const uint64_t length = std::min<uint64_t>(header.shape.count, header.data.size());
  std::string why(reinterpret_cast<const char*>(header.data.data()), length);
  std::ranges::replace_if(
      why, [](unsigned char byte) { return byte < ' '; }, '?');
  const Code code = code_of(static_cast<int>(header.shape.dtype));
  Message message;
  message.shape = {MessageHeader::kMagic, TUTTI_U8, 0, header.shape.tag};
  message.any_tag = header.shape.magic == MessageHeader::kRefusedAnyTag;
  message.refusal = Status(code == Code::ok ? Code::unknown : code,
                           members_.name_of(source.rank) + " refused to send it: " + why,
                           members_.culprit(source.rank));
  const auto receive = find_receive(source, header.shape.tag, message.any_tag);
  if (receive != nullptr) {
    std::erase(pending_, receive);
    finish(*receive, static_cast<int32_t>(source.rank), *message.refusal);
  } else {
    source.messages.push_back(std::move(message));
  }
  source.read = nullptr;
}

// Hands the last message over if it is whole and a call waits for it.
void Inbox::settle_last(Source& source) {
  Message& message = source.messages.back();
  if (!message.is_whole() || (message.receive == nullptr && !message.discarded)) return;
  if (message.receive != nullptr) {
    if (!message.direct && !message.kept.empty())
      std::memcpy(message.receive->out, message.kept.data(), message.kept.size());
    finish(*message.receive, static_cast<int32_t>(source.rank), Status());
  }
  source.messages.pop_back();
}

// A broadcast of the channel failed, with the message that it belongs to. `lost`: the message alone
// is lost, unless the status says that the sender is gone: the next one may come.
void Inbox::on_failure(Source& source, const Status& why, bool lost) {
  const auto rank = static_cast<int32_t>(source.rank);
  if (source.reads_part()) {
    const std::shared_ptr<Receive> receive = source.messages.back().receive;
    source.messages.pop_back();
    if (receive != nullptr) finish(*receive, rank, why);
    return;
  }
  const bool gone = why.code() == Code::unavailable || why.code() == Code::cancelled;
  if (lost && !gone) return;
  const auto first = std::ranges::find(pending_, rank, &Receive::source);
  if (first != pending_.end()) {
    const std::shared_ptr<Receive> receive = *first;
    pending_.erase(first);
    finish(*receive, rank, why);
    return;
  }
  if (!gone) return fail_wildcards(why);
  source.broken = why;
  if (!is_rank_left(why) || !can_come()) fail_wildcards(why);
}

// Whether any rank may still send.
bool Inbox::can_come() const {
  return std::ranges::any_of(sources_, [](const auto& source) { return !source.second.broken; });
}

// Fails the calls that any rank may answer: one that might have is dead, or all have left.
void Inbox::fail_wildcards(const Status& why) {
  for (;;) {
    const auto first = std::ranges::find(pending_, kAnyRank, &Receive::source);
    if (first == pending_.end()) return;
    const std::shared_ptr<Receive> receive = *first;
    pending_.erase(first);
    finish(*receive, -1, why);
  }
}

void Inbox::expire() {
  const bool reads =
      std::ranges::any_of(sources_, [](const auto& source) { return source.second.reads_part(); });
  if (pending_.empty() && !reads) return;
  const TimePoint now = Clock::now();
  for (auto& [rank, source] : sources_) {
    if (!source.reads_part()) continue;
    const std::shared_ptr<Receive> receive = source.messages.back().receive;
    if (receive == nullptr || now < receive->deadline) continue;
    discard_last(source);
    finish(
        *receive, static_cast<int32_t>(rank),
        deadline_exceeded(members_.name_of(rank) + " has sent only a part of the message within " +
                              std::to_string(receive->timeout_ms) + " ms",
                          members_.culprit(rank)));
  }
  for (size_t i = 0; i < pending_.size();) {
    const std::shared_ptr<Receive> receive = pending_[i];
    if (now >= receive->deadline && receive->refusal) stop_background(*receive);
    if (now < receive->deadline || receive->refusal) {
      ++i;
      continue;
    }
    pending_.erase(pending_.begin() + static_cast<ptrdiff_t>(i));
    finish(*receive, -1, too_late(*receive));
  }
}

// Why a call has got no message in time.
Status Inbox::too_late(const Receive& receive) const {
  const bool any = receive.source == kAnyRank;
  const auto rank = static_cast<uint32_t>(receive.source);
  for (const auto& [from, source] : sources_)
    if ((any || from == rank) && source.channel->queue->group_board().has_worker_slept(
                                     receive.looks, Millis(receive.timeout_ms)))
      return members_.connection->worker_timeout();
  const std::string who = any ? "no rank" : members_.name_of(rank);
  return deadline_exceeded(who + " has sent " + (any ? "such a" : "no such") + " message within " +
                               std::to_string(receive.timeout_ms) + " ms",
                           any ? Culprit{} : members_.culprit(rank));
}

// ---- Matching ----

std::shared_ptr<Receive> Inbox::find_receive(const Source& source, uint64_t tag,
                                             bool any_tag) const {
  const auto found = std::ranges::find_if(pending_, [&](const auto& receive) {
    const bool from =
        receive->source == kAnyRank || receive->source == static_cast<int32_t>(source.rank);
    return from && (any_tag || receive->any_tag || receive->tag == tag);
  });
  return found == pending_.end() ? nullptr : *found;
}

bool Inbox::take_message(const std::shared_ptr<Receive>& receive) {
  for (auto& [rank, source] : sources_)
    if (receive->source == kAnyRank || receive->source == static_cast<int32_t>(rank))
      if (take_message(receive, source)) return true;
  return false;
}

// The first message that was read before and fits. One that is being read is waited for.
bool Inbox::take_message(const std::shared_ptr<Receive>& receive, Source& source) {
  const auto found = std::ranges::find_if(source.messages, [&](const Message& message) {
    const bool fits = receive->any_tag || message.any_tag || message.shape.tag == receive->tag;
    return message.receive == nullptr && !message.discarded && fits;
  });
  if (found == source.messages.end()) return false;
  const Status fault = found->refusal ? *found->refusal : shape_fault(*receive, found->shape);
  if (!fault.ok()) finish(*receive, static_cast<int32_t>(source.rank), fault);
  if (!found->is_whole()) {
    found->discarded = !fault.ok();
    if (fault.ok()) found->receive = receive;
    return true;
  }
  if (fault.ok()) {
    if (!found->kept.empty()) std::memcpy(receive->out, found->kept.data(), found->kept.size());
    finish(*receive, static_cast<int32_t>(source.rank), Status());
  }
  source.messages.erase(found);
  return true;
}

// ---- Sleeping ----

// The one broadcast that the call waits for, or, if null, any; none: there are several.
Inbox::Awaited Inbox::next_awaited(const Receive* receive) {
  Awaited awaited;
  bool has_others = false;
  for (const auto& [rank, source] : sources_) {
    if (source.read == nullptr || !(source.reads_part() || is_wanted(source))) continue;
    const bool relevant = receive == nullptr || receive->source == kAnyRank ||
                          receive->source == static_cast<int32_t>(rank);
    if (relevant && awaited.op != nullptr) return {};
    if (relevant)
      awaited = {source.channel->queue.get(), source.read, true};
    else
      has_others = true;
  }
  awaited.is_only = !has_others;
  return awaited;
}

bool Inbox::has_work() const {
  if (waiting_ != 0) return false;
  return background_ != 0 || std::ranges::any_of(sources_, [](const auto& source) {
           return source.second.reads_part();
         });
}

Inbox::Reading::Reading(Inbox& inbox) : inbox_(inbox) { ++inbox_.waiting_; }

// A message that nobody waits for is read to its end all the same: its sender waits for that.
Inbox::Reading::~Reading() {
  --inbox_.waiting_;
  if (!inbox_.has_work()) return;
  if (!inbox_.has_thread_) inbox_.start_thread();  // Else the next call that waits reads on.
  inbox_.changed_.notify_all();
}

bool Inbox::start_thread() noexcept {
  try {
    const SignalsBlocked inherited;
    std::thread([self = shared_from_this()] { self->run(); }).detach();
    return has_thread_ = true;
  } catch (const std::exception&) {
    return false;
  }
}

void Inbox::run() {
  pthread_setname_np(pthread_self(), "tutti-inbox");
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return has_work() || (closed_ && background_ == 0); });
    if (!has_work()) break;
    if (changed_.wait_for(lock, kHeadStart, [&] { return !has_work(); })) continue;
    try {
      advance();
    } catch (const std::exception&) {  // Memory ran out: goes on later.
      changed_.wait_for(lock, Millis(kAwaitMs));
      continue;
    }
    const Awaited awaited = next_awaited(nullptr);
    if (!has_work() || awaited.op == nullptr) continue;
    lock.unlock();
    static_cast<void>(awaited.queue->await_outcome(*awaited.op, kAwaitMs));
    lock.lock();
  }
  has_thread_ = false;
}

}  // namespace tutti::client
