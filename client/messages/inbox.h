// What a rank receives: matches messages to the calls that wait for them, by source and tag, in the
// order of both.
//
// A thread that waits for a message reads the channels. Where calls are pending that nobody waits
// for, a thread of the inbox does, so that their senders need not wait until somebody does.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "client/messages/channel.h"
#include "client/operations/awaitable.h"

namespace tutti::client {

inline constexpr int32_t kAnyRank = -1;

// One call of tutti_recv(). The inbox owns the fields.
struct Receive {
  int32_t source = kAnyRank;
  uint64_t tag = 0;
  bool any_tag = false;           // Whatever the tag.
  std::optional<Status> refusal;  // The call was refused: its message is lost.
  std::byte* out = nullptr;
  uint64_t count = 0;
  uint32_t dtype = 0;  // tutti_dtype.
  uint32_t timeout_ms = 0;
  TimePoint deadline = TimePoint::max();
  uint64_t looks = 0;  // Of the worker, when the call began.
  bool is_background = false;
  std::optional<Status> outcome;
  int32_t from = -1;  // The sender, once there is an outcome.
  MemoryUse memory;   // `out`, until then.
};

// Safe from any thread. Keep in a shared_ptr.
class Inbox : public std::enable_shared_from_this<Inbox> {
 public:
  explicit Inbox(Members members) : members_(std::move(members)) {}
  ~Inbox();

  // Adds a call, whose arguments are valid. If `background` is set, its message is read also while
  // nobody waits for it. A refused one is added whatever fails: it has its message to itself, but
  // is read for in the background until its deadline alone.
  Status add(const std::shared_ptr<Receive>& receive, bool background);
  // As Awaitable.
  Status wait(Receive& receive, int64_t timeout_ms);
  bool poll(Receive& receive);
  void abandon(const std::shared_ptr<Receive>& receive);
  // The group's handle is gone: the thread ends once nothing is pending.
  void close();

 private:
  // A message whose header was read.
  struct Message {
    MessageShape shape;
    uint64_t done = 0;                 // Bytes that were read.
    std::vector<std::byte> kept;       // Where they are, unless they are `direct`.
    std::shared_ptr<Receive> receive;  // The call it is for; null: none yet.
    bool direct = false;               // It is read into the output of `receive`.
    bool discarded = false;            // No call gets it. `kept` has room for a part of it.
    std::optional<Status> refusal;     // There is none: its sender's call was refused.
    bool any_tag = false;              // Of a refusal: its call is the next one, whatever its tag.
    bool is_whole() const { return done == shape.bytes(); }
    std::byte* next();  // Where the next part goes.
    // Makes room for a message that is kept; false: memory has run out, so it is lost.
    bool make_room(uint64_t bytes);
  };
  // The channel from one rank.
  struct Source {
    uint32_t rank = 0;
    std::unique_ptr<Group> channel;
    std::byte* buffer = nullptr;      // For headers; of the segment.
    std::shared_ptr<PendingOp> read;  // The broadcast that is under way; null: none.
    std::deque<Message> messages;     // Not received yet; the last may be incomplete.
    std::optional<Status> broken;     // No message will come any more.
    bool reads_part() const { return !messages.empty() && !messages.back().is_whole(); }
  };
  // A broadcast that a thread may sleep on.
  struct Awaited {
    OpQueue* queue = nullptr;
    std::shared_ptr<PendingOp> op;
    bool is_only = true;  // Nothing else is to be read meanwhile.
  };
  // A thread that reads, while it exists. Constructed and destroyed under the lock.
  class Reading {
   public:
    explicit Reading(Inbox& inbox);
    Reading(const Reading&) = delete;
    Reading& operator=(const Reading&) = delete;
    ~Reading();

   private:
    Inbox& inbox_;
  };

  Status make_source(uint32_t rank, TimePoint deadline);
  Status make_sources(const Receive& receive);
  void advance();
  void advance(Source& source);
  void end_read(Source& source);
  bool is_wanted(const Source& source) const;
  Status start_header(Source& source);
  Status start_part(Source& source);
  Status start_read(Source& source, void* to, uint64_t bytes, tutti_dtype dtype,
                    uint32_t timeout_ms);
  void on_header(Source& source);
  void on_refusal(Source& source, const MessageHeader& header);
  void on_failure(Source& source, const Status& why, bool lost);
  bool can_come() const;
  std::shared_ptr<Receive> find_receive(const Source& source, uint64_t tag,
                                        bool any_tag = false) const;
  bool take_message(const std::shared_ptr<Receive>& receive);
  bool take_message(const std::shared_ptr<Receive>& receive, Source& source);
  void settle_last(Source& source);
  void finish(Receive& receive, int32_t from, Status outcome);
  void stop_background(Receive& receive);
  void add_pending(const std::shared_ptr<Receive>& receive);
  void expire();
  void discard_last(Source& source);
  Status too_late(const Receive& receive) const;
  void fail_wildcards(const Status& why);
  Awaited next_awaited(const Receive* receive);
  bool start_thread() noexcept;  // False: none can be started.
  void run();
  bool has_work() const;

  const Members members_;
  std::timed_mutex making_;  // Held while a channel is made.
  std::mutex mutex_;         // Guards what follows.
  std::condition_variable changed_;
  std::map<uint32_t, Source> sources_;            // By rank.
  std::deque<std::shared_ptr<Receive>> pending_;  // Not matched, in the order of the calls.
  size_t background_ = 0;  // Calls without outcome that the thread reads for.
  size_t waiting_ = 0;     // Threads that read.
  bool has_thread_ = false;
  bool closed_ = false;
};

}  // namespace tutti::client
