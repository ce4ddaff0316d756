// The worker's stream to the coordinator: sends joins and departures, and resumes the newest epoch
// after a reconnect.
#include "daemon/control/coordinator_client.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "daemon/control/channel.h"
#include "daemon/control/reconnecting_stream.h"
#include "daemon/membership/roster_message.h"
#include "proto/mesh.grpc.pb.h"
#include "proto/segment.h"

namespace tutti {
namespace {

// Added to a join's timeout, for its answer to arrive.
constexpr Millis kAnswerGrace{300};
constexpr Millis kAskAgain{500};

class StreamCoordinatorClient final : public CoordinatorClient {
  using Stream = ReconnectingStream<v1::WorkerMessage, v1::CoordinatorMessage>;

 public:
  StreamCoordinatorClient(Loop& loop, const CoordinatorClientOptions& options, Events& events)
      : loop_(loop), options_(options), events_(events) {}

  ~StreamCoordinatorClient() override {
    for (const auto& [rank, pending] : pending_joins_) loop_.cancel(pending.timer);
  }

  void join(const JoinRequest& request) override {
    const TimePoint deadline = Clock::now() + Millis(request.timeout_ms);
    PendingJoin& pending = pending_joins_[request.rank];
    loop_.cancel(pending.timer);
    pending = {.request = request, .deadline = deadline, .number = ++join_count_};
    pass_ = request.pass;
    if (!stream_ && !options_.coordinator.empty()) connect();
    if (is_open()) return send_join(pending);
    await_coordinator(pending);
  }

  void set_coordinator(const std::string& address, const std::string& obstacle) override {
    obstacle_ = obstacle;
    if (address.empty() || address == options_.coordinator) return;
    options_.coordinator = address;
    for (auto& [rank, pending] : pending_joins_)
      if (pending.sent) await_coordinator(pending);
    if (!stream_ && pending_joins_.empty()) return;
    stream_.reset();
    connect();
  }

  void report_gone(uint32_t epoch, uint32_t rank, Status cause) override {
    if (epoch == 0) erase_join(rank);
    if (newest_ && newest_->roster.epoch == epoch) {
      newest_->ranks.erase(rank);
      if (newest_->broken.ok()) newest_->broken = cause;
    }
    if (is_open()) send_gone(epoch, rank, cause);
  }

 private:
  // Before the first join there is no pass to show.
  void connect() {
    const auto begin = [this](auto* context, auto* reactor) { attend(context, reactor); };
    stream_.emplace(
        loop_, begin,
        Stream::Events{.on_open = [this] { on_open(); },
                       .on_message = [this](const v1::CoordinatorMessage& m) { on_message(m); },
                       .on_broken = [this](const Status& why) { on_broken(why); }});
  }

  bool is_open() const { return stream_ && stream_->is_open(); }

  struct PendingJoin {
    JoinRequest request;
    TimePoint deadline;
    uint32_t number = 0;
    bool sent = false;
    Loop::TimerId timer = 0;
  };
  struct NewestEpoch {
    Roster roster;
    std::set<uint32_t> ranks;  // Those of this worker that are still in the epoch.
    Status broken;             // Not OK: one of them died; the first cause.
  };

  // Each stream has a channel of its own, because a channel keeps its certificates.
  template <class Reactor>
  void attend(grpc::ClientContext* context, Reactor* reactor) {
    show_pass(*context, pass_);
    stub_ = v1::Mesh::NewStub(make_channel(options_.coordinator, options_.tls));
    stub_->async()->Attend(context, reactor);
  }

  void erase_join(uint32_t rank) {
    const auto found = pending_joins_.find(rank);
    if (found == pending_joins_.end()) return;
    loop_.cancel(found->second.timer);
    pending_joins_.erase(found);
  }

  void send_join(PendingJoin& pending) {
    const auto left = std::chrono::ceil<Millis>(pending.deadline - Clock::now()).count();
    v1::WorkerMessage message;
    v1::JoinRank& join = *message.mutable_join();
    join.set_job(pending.request.job);
    join.set_rank(pending.request.rank);
    join.set_world_size(pending.request.world_size);
    join.set_pid(pending.request.pid);
    join.set_host(options_.host);
    join.set_address(options_.data_address);
    join.set_timeout_ms(static_cast<uint32_t>(std::max<int64_t>(left, 1)));
    *join.mutable_pass() = pending.request.pass;
    join.set_version(kProtocolVersion);
    join.set_last_epoch(last_epoch_);
    join.set_number(pending.number);
    loop_.cancel(pending.timer);
    pending.sent = true;
    pending.timer = loop_.at(pending.deadline + kAnswerGrace,
                             [this, rank = pending.request.rank] { on_unanswered_timeout(rank); });
    send(std::move(message));
  }

  void send(v1::WorkerMessage message) {
    if (message.ByteSizeLong() <= kPartBytes) return stream_->send(std::move(message));
    const std::string bytes = message.SerializeAsString();
    for (size_t at = 0; at < bytes.size(); at += kPartBytes) {
      v1::WorkerMessage part;
      part.set_part(bytes.substr(at, kPartBytes));
      part.set_part_ends(at + kPartBytes >= bytes.size());
      stream_->send(std::move(part));
    }
  }

  void send_gone(uint32_t epoch, uint32_t rank, const Status& cause) {
    v1::WorkerMessage message;
    message.mutable_gone()->set_job(options_.job);
    message.mutable_gone()->set_epoch(epoch);
    message.mutable_gone()->set_rank(rank);
    write_status(cause, *message.mutable_gone()->mutable_cause());
    send(std::move(message));
  }

  void on_open() {
    refused_for_now_.clear();
    if (newest_) resume();
    for (auto& [rank, pending] : pending_joins_) send_join(pending);
  }

  void resume() {
    v1::WorkerMessage message;
    v1::Resume& resume = *message.mutable_resume();
    resume.set_job(options_.job);
    resume.set_host(options_.host);
    resume.set_epoch(newest_->roster.epoch);
    *resume.mutable_pass() = pass_;
    *resume.mutable_roster() = to_message(newest_->roster);
    for (const uint32_t rank : newest_->ranks) resume.add_ranks(rank);
    if (!newest_->broken.ok()) write_status(newest_->broken, *resume.mutable_broken());
    send(std::move(message));
  }

  void on_broken(const Status& why) {
    if (why.code() == Code::unauthenticated) return on_unknown(why);
    last_error_ = why.message();
    refused_for_now_ = last_error_.starts_with(kNoAgentOf) ? last_error_ : "";
    for (auto& [rank, pending] : pending_joins_)
      if (pending.sent) await_coordinator(pending);
  }

  // Until then the join is kept, and sent once the coordinator is there.
  void await_coordinator(PendingJoin& pending) {
    loop_.cancel(pending.timer);
    pending.sent = false;
    pending.timer = loop_.at(pending.deadline,
                             [this, rank = pending.request.rank] { on_unsent_timeout(rank); });
  }

  // The coordinator does not accept this worker's pass, and will not the next time.
  void on_unknown(const Status& why) {
    std::vector<uint32_t> ranks;
    for (const auto& [rank, pending] : pending_joins_) ranks.push_back(rank);
    for (const uint32_t rank : ranks) refuse(rank, why);
    if (!newest_) return;
    const uint32_t epoch = newest_->roster.epoch;
    newest_.reset();
    events_.on_aborted(epoch, why);
  }

  // The coordinator is there, but does not take this host's joins now.
  void ask_again(uint32_t rank, PendingJoin& pending, const std::string& why) {
    refused_for_now_ = why;
    await_coordinator(pending);
    if (Clock::now() + kAskAgain >= pending.deadline) return;
    loop_.cancel(pending.timer);
    pending.timer = loop_.at(Clock::now() + kAskAgain, [this, rank] {
      PendingJoin& asked = pending_joins_.at(rank);
      is_open() ? send_join(asked) : await_coordinator(asked);
    });
  }

  void on_unsent_timeout(uint32_t rank) {
    const std::string& obstacle = obstacle_.empty() ? refused_for_now_ : obstacle_;
    if (!obstacle.empty())
      return refuse(rank, unavailable("rank " + std::to_string(rank) + " of job \"" + options_.job +
                                      "\" cannot join: " + obstacle));
    refuse(rank, unavailable("rank " + std::to_string(rank) + " of job \"" + options_.job +
                             "\" cannot reach the coordinator: " +
                             unreachable_text(options_.coordinator, last_error_, options_.tls)));
  }

  // Withdraws the join, so that a coordinator that was only suspended does not apply it later.
  void on_unanswered_timeout(uint32_t rank) {
    if (is_open()) send_gone(0, rank, {});
    refuse(rank, deadline_exceeded("the coordinator at " + options_.coordinator +
                                   " did not answer in time while rank " + std::to_string(rank) +
                                   " of job \"" + options_.job +
                                   "\" waited to join; is tuttid there stopped or overloaded?"));
  }

  void refuse(uint32_t rank, const Status& status) {
    erase_join(rank);
    events_.on_refused(rank, status);
  }

  void on_message(const v1::CoordinatorMessage& message) {
    if (message.has_roster()) on_roster(message.roster());
    if (message.has_refused()) on_refused(message.refused());
    if (message.has_aborted()) {
      const uint32_t epoch = message.aborted().epoch();
      if (newest_ && newest_->roster.epoch == epoch) newest_.reset();
      events_.on_aborted(epoch, cause_of(message.aborted().cause()));
    }
    if (message.has_strategy()) {
      if (newest_) newest_->roster.strategy = message.strategy().strategy();
      events_.on_strategy(message.strategy().strategy());
    }
  }

  // Ignores the refusal of an earlier join of the rank, which a suspended coordinator may send
  // late. A coordinator of an older release does not number joins.
  void on_refused(const v1::JoinRefused& refused) {
    const auto found = pending_joins_.find(refused.rank());
    const bool numbered = refused.number() != 0;
    if (found == pending_joins_.end() || (numbered && found->second.number != refused.number()))
      return;
    const Status cause = cause_of(refused.status());
    if (refused.again()) return ask_again(refused.rank(), found->second, cause.message());
    refuse(refused.rank(), cause);
  }

  // Never returns OK, whatever was sent.
  static Status cause_of(const v1::StatusMessage& message) {
    Status status = read_status(message);
    return status.ok() ? internal_error("the coordinator gave no cause") : status;
  }

  void on_roster(const v1::Roster& message) {
    const Result<Roster> roster = from_message(message);
    if (!roster.ok()) return;
    std::set<uint32_t> ranks;
    for (const auto& [rank, pending] : pending_joins_)
      if (is_in(*roster, pending)) ranks.insert(rank);
    if (roster->epoch <= last_epoch_) return refuse_old(roster->epoch, ranks);
    for (const uint32_t rank : ranks) erase_join(rank);
    last_epoch_ = roster->epoch;
    newest_ = {.roster = *roster, .ranks = std::move(ranks), .broken = {}};
    events_.on_roster(*roster);
  }

  // False if another process has joined as this rank since.
  bool is_in(const Roster& roster, const PendingJoin& pending) const {
    const uint32_t rank = pending.request.rank;
    return pending.sent && pending.request.world_size == roster.ranks.size() &&
           rank < roster.ranks.size() && roster.ranks[rank].pid == pending.request.pid &&
           roster.ranks[rank].host == options_.host;
  }

  // Epochs are distinguished by their numbers, so an old number cannot be used again.
  void refuse_old(uint32_t epoch, const std::set<uint32_t>& ranks) {
    const Status cause =
        unavailable("the coordinator at " + options_.coordinator + " started epoch " +
                    std::to_string(epoch) + " of job \"" + options_.job + "\" again, after epoch " +
                    std::to_string(last_epoch_) + "; join again");
    for (const uint32_t rank : ranks) {
      send_gone(epoch, rank, cause);
      refuse(rank, cause);
    }
  }

  Loop& loop_;
  CoordinatorClientOptions options_;
  Events& events_;
  std::string obstacle_;                           // Why nobody coordinates.
  std::map<uint32_t, PendingJoin> pending_joins_;  // By rank.
  std::optional<NewestEpoch> newest_;
  v1::Pass pass_;            // Of the last join; all have the same owner.
  uint32_t join_count_ = 0;  // Numbers the joins.
  uint32_t last_epoch_ = 0;  // The highest number that this worker has seen.
  std::string last_error_ = "still connecting";
  std::string refused_for_now_;  // Why the coordinator took no joins of this host when asked last.
  std::unique_ptr<v1::Mesh::Stub> stub_;  // Of the newest stream.
  std::optional<Stream> stream_;          // Last: its events use the other members.
};

}  // namespace

std::unique_ptr<CoordinatorClient> connect_coordinator(Loop& loop,
                                                       const CoordinatorClientOptions& options,
                                                       CoordinatorClient::Events& events) {
  return std::make_unique<StreamCoordinatorClient>(loop, options, events);
}

}  // namespace tutti
