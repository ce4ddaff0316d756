// The worker's stream to the coordinator: sends joins and departures, remembers what to resume.
#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "daemon/mesh/channel.h"
#include "daemon/mesh/mesh.h"
#include "daemon/mesh/reconnecting_stream.h"
#include "daemon/mesh/wire.h"
#include "proto/mesh.grpc.pb.h"
#include "proto/segment.h"

namespace tutti {
namespace {

// How much longer than a join's time its answer may take to come.
constexpr Millis kAnswerGrace{300};

class StreamCoordinatorClient final : public CoordinatorClient {
 public:
  StreamCoordinatorClient(Loop& loop, const CoordinatorClientOptions& options, Events& events)
      : loop_(loop),
        options_(options),
        events_(events),
        stub_(v1::Mesh::NewStub(dial(options.coordinator))),
        stream_(loop,
                [this](auto* context, auto* reactor) { stub_->async()->Attend(context, reactor); },
                {.on_open = [this] { opened(); },
                 .on_message = [this](const v1::CoordinatorMessage& m) { received(m); },
                 .on_broken = [this](const std::string& why) { broken(why); }}) {}

  ~StreamCoordinatorClient() override {
    for (const auto& [rank, pending] : pending_) loop_.cancel(pending.timer);
  }

  void join(const JoinRequest& request) override {
    const TimePoint deadline = Clock::now() + Millis(request.timeout_ms);
    Pending& pending = pending_[request.rank];
    loop_.cancel(pending.timer);
    pending = {.request = request, .deadline = deadline, .number = ++joins_};
    if (stream_.is_open()) return send_join(pending);
    pending.timer = loop_.at(deadline, [this, rank = request.rank] { refuse_unsent(rank); });
  }

  void gone(uint32_t epoch, uint32_t rank, Status cause) override {
    if (epoch == 0) forget(rank);
    if (held_ && held_->roster.epoch == epoch) {
      held_->ranks.erase(rank);
      if (held_->broken.ok()) held_->broken = cause;
    }
    if (stream_.is_open()) send_gone(epoch, rank, cause);
  }

 private:
  struct Pending {
    JoinRequest request;
    TimePoint deadline;
    uint32_t number = 0;
    bool sent = false;
    Loop::TimerId timer = 0;
  };
  struct Held {
    Roster roster;
    std::set<uint32_t> ranks;  // This worker's, still there.
    Status broken;             // Not OK: by the first death among them.
  };

  void forget(uint32_t rank) {
    const auto found = pending_.find(rank);
    if (found == pending_.end()) return;
    loop_.cancel(found->second.timer);
    pending_.erase(found);
  }

  void send_join(Pending& pending) {
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
    join.set_token(pending.request.token);
    token_ = pending.request.token;
    join.set_version(kProtocolVersion);
    join.set_last_epoch(last_epoch_);
    join.set_number(pending.number);
    loop_.cancel(pending.timer);
    pending.sent = true;
    pending.timer = loop_.at(pending.deadline + kAnswerGrace,
                             [this, rank = pending.request.rank] { refuse_unanswered(rank); });
    stream_.send(std::move(message));
  }

  void send_gone(uint32_t epoch, uint32_t rank, const Status& cause) {
    v1::WorkerMessage message;
    message.mutable_gone()->set_job(options_.job);
    message.mutable_gone()->set_epoch(epoch);
    message.mutable_gone()->set_rank(rank);
    write_status(cause, *message.mutable_gone()->mutable_cause());
    stream_.send(std::move(message));
  }

  void opened() {
    if (held_) resume();
    for (auto& [rank, pending] : pending_) send_join(pending);
  }

  void resume() {
    v1::WorkerMessage message;
    v1::Resume& resume = *message.mutable_resume();
    resume.set_job(options_.job);
    resume.set_host(options_.host);
    resume.set_epoch(held_->roster.epoch);
    resume.set_token(token_);
    *resume.mutable_roster() = to_message(held_->roster);
    for (const uint32_t rank : held_->ranks) resume.add_ranks(rank);
    if (!held_->broken.ok()) write_status(held_->broken, *resume.mutable_broken());
    stream_.send(std::move(message));
  }

  void broken(const std::string& why) {
    why_ = why;
    std::vector<uint32_t> lost;
    for (const auto& [rank, pending] : pending_)
      if (pending.sent) lost.push_back(rank);
    for (const uint32_t rank : lost)
      refuse(rank, unavailable("the coordinator was lost while rank " + std::to_string(rank) +
                               " waited to join: " + unreachable_text(options_.coordinator, why)));
  }

  void refuse_unsent(uint32_t rank) {
    refuse(rank, unavailable("rank " + std::to_string(rank) + " of job \"" + options_.job +
                             "\" cannot reach the coordinator: " +
                             unreachable_text(options_.coordinator, why_)));
  }

  // It is withdrawn, so that a coordinator that was only stopped does not find it later.
  void refuse_unanswered(uint32_t rank) {
    if (stream_.is_open()) send_gone(0, rank, {});
    refuse(rank, deadline_exceeded("the coordinator at " + options_.coordinator +
                                   " did not answer in time while rank " + std::to_string(rank) +
                                   " of job \"" + options_.job +
                                   "\" waited to join; is tuttid there stopped or overloaded?"));
  }

  void refuse(uint32_t rank, const Status& status) {
    forget(rank);
    events_.on_refused(rank, status);
  }

  void received(const v1::CoordinatorMessage& message) {
    if (message.has_roster()) take_roster(message.roster());
    if (message.has_refused()) take_refusal(message.refused());
    if (message.has_aborted()) {
      const uint32_t epoch = message.aborted().epoch();
      if (held_ && held_->roster.epoch == epoch) held_.reset();
      events_.on_aborted(epoch, answer(message.aborted().cause()));
    }
    if (message.has_strategy()) {
      if (held_) held_->roster.strategy = message.strategy().strategy();
      events_.on_strategy(message.strategy().strategy());
    }
  }

  // A coordinator that was stopped refuses joins that have been given up for others since. One of
  // an older release numbers nothing.
  void take_refusal(const v1::JoinRefused& refused) {
    const auto found = pending_.find(refused.rank());
    const bool numbered = refused.number() != 0;
    if (found == pending_.end() || (numbered && found->second.number != refused.number())) return;
    refuse(refused.rank(), answer(refused.status()));
  }

  // A refusal or an abort is never OK, whatever was sent.
  static Status answer(const v1::StatusMessage& message) {
    Status status = read_status(message);
    return status.ok() ? internal_error("the coordinator gave no cause") : status;
  }

  void take_roster(const v1::Roster& message) {
    const Result<Roster> roster = from_message(message);
    if (!roster.ok()) return;
    std::set<uint32_t> ranks;
    for (const auto& [rank, pending] : pending_)
      if (is_in(*roster, pending)) ranks.insert(rank);
    if (roster->epoch <= last_epoch_) return refuse_old(roster->epoch, ranks);
    for (const uint32_t rank : ranks) forget(rank);
    last_epoch_ = roster->epoch;
    held_ = {.roster = *roster, .ranks = std::move(ranks), .broken = {}};
    events_.on_roster(*roster);
  }

  // Not where another process has asked for the rank since.
  bool is_in(const Roster& roster, const Pending& pending) const {
    const uint32_t rank = pending.request.rank;
    return pending.sent && pending.request.world_size == roster.ranks.size() &&
           rank < roster.ranks.size() && roster.ranks[rank].pid == pending.request.pid &&
           roster.ranks[rank].host == options_.host;
  }

  // This worker and its links tell epochs apart by their numbers.
  void refuse_old(uint32_t epoch, const std::set<uint32_t>& ranks) {
    const Status cause =
        unavailable("the coordinator at " + options_.coordinator + " started epoch " +
                    std::to_string(epoch) + " of job \"" + options_.job + "\" anew, after epoch " +
                    std::to_string(last_epoch_) + "; join again");
    for (const uint32_t rank : ranks) {
      send_gone(epoch, rank, cause);
      refuse(rank, cause);
    }
  }

  Loop& loop_;
  const CoordinatorClientOptions options_;
  Events& events_;
  std::map<uint32_t, Pending> pending_;  // By rank.
  std::optional<Held> held_;             // The epoch to resume.
  std::string token_;                    // As ranks showed it last.
  uint32_t joins_ = 0;                   // Made so far.
  uint32_t last_epoch_ = 0;              // The newest of all that this worker had.
  std::string why_ = "still connecting";
  const std::unique_ptr<v1::Mesh::Stub> stub_;
  ReconnectingStream<v1::WorkerMessage, v1::CoordinatorMessage>
      stream_;  // Last: it calls the others.
};

}  // namespace

std::unique_ptr<CoordinatorClient> connect_coordinator(Loop& loop,
                                                       const CoordinatorClientOptions& options,
                                                       CoordinatorClient::Events& events) {
  return std::make_unique<StreamCoordinatorClient>(loop, options, events);
}

}  // namespace tutti
