// An agent and a worker in one, without engine or mesh: takes all ranks of a job on one socket,
// meets their operations in order and computes them in the plainest way. For tests of the client.
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "daemon/base/loop.h"
#include "daemon/session/session.h"

namespace tutti {

// Operations of this many elements fail with FAILED_PRECONDITION, blaming rank 1 on host "b".
inline constexpr uint64_t kFailingCount = 1313;
// Operations of this many elements are never answered.
inline constexpr uint64_t kForgottenCount = 4242;

// What one rank brought to an operation.
struct Arrival {
  Session* session;
  Call request;
};
using Arrivals = std::map<uint32_t, Arrival>;  // By rank in the group.

template <class T>
T combine(Op op, T a, T b) {
  switch (op) {
    case Op::min:
      return std::min(a, b);
    case Op::max:
      return std::max(a, b);
    case Op::prod:
      return static_cast<T>(a * b);
    default:
      return static_cast<T>(a + b);
  }
}

// Truths are added and multiplied as or and and.
inline Op op_on(Dtype dtype, Op op) {
  if (dtype != Dtype::boolean || op == Op::min) return op;
  return op == Op::prod ? Op::min : Op::max;
}

// The reduction of everybody's `elements` values from `first` on.
template <class T>
std::vector<T> reduced(const Arrivals& arrivals, uint64_t elements) {
  std::vector<T> total(elements);
  bool started = false;
  const Call& any = arrivals.begin()->second.request;
  for (const auto& [rank, arrival] : arrivals) {
    const T* in = reinterpret_cast<const T*>(arrival.request.in);
    for (uint64_t i = 0; i < elements; ++i)
      total[i] =
          started ? combine(op_on(any.signature.dtype, any.signature.op), total[i], in[i]) : in[i];
    started = true;
  }
  if (any.signature.op == Op::mean)
    for (T& value : total) value = static_cast<T>(value / static_cast<T>(arrivals.size()));
  return total;
}

template <class T>
void reduce_as(const Arrivals& arrivals) {
  const Call& any = arrivals.begin()->second.request;
  const bool scatter = any.signature.collective == Collective::reduce_scatter;
  const std::vector<T> total =
      reduced<T>(arrivals, any.signature.count * (scatter ? arrivals.size() : 1));
  for (const auto& [rank, arrival] : arrivals)
    if (arrival.request.out != nullptr)
      std::memcpy(arrival.request.out, total.data() + (scatter ? rank * any.signature.count : 0),
                  any.signature.count * sizeof(T));
}

// 16-bit floats are left to the real daemon's tests: here they are added as integers.
inline void reduce(const Arrivals& arrivals) {
  switch (arrivals.begin()->second.request.signature.dtype) {
    case Dtype::f32:
      return reduce_as<float>(arrivals);
    case Dtype::f64:
      return reduce_as<double>(arrivals);
    case Dtype::f16:
    case Dtype::bf16:
    case Dtype::u16:
      return reduce_as<uint16_t>(arrivals);
    case Dtype::i8:
      return reduce_as<int8_t>(arrivals);
    case Dtype::u8:
    case Dtype::boolean:
      return reduce_as<uint8_t>(arrivals);
    case Dtype::i16:
      return reduce_as<int16_t>(arrivals);
    case Dtype::i32:
      return reduce_as<int32_t>(arrivals);
    case Dtype::i64:
      return reduce_as<int64_t>(arrivals);
    case Dtype::u32:
      return reduce_as<uint32_t>(arrivals);
    case Dtype::u64:
      return reduce_as<uint64_t>(arrivals);
  }
}

inline void compute(const Arrivals& arrivals) {
  const Call& any = arrivals.begin()->second.request;
  if (any.signature.count == 0) return;
  if (reduces(any.signature.collective)) return reduce(arrivals);
  const size_t bytes = any.signature.count * size_of(any.signature.dtype);
  // Copied first: in-place sides overlap.
  std::string all;
  for (const auto& [rank, arrival] : arrivals)
    if (arrival.request.in != nullptr)
      all.append(reinterpret_cast<const char*>(arrival.request.in), bytes);
  for (const auto& [rank, arrival] : arrivals)
    if (arrival.request.out != nullptr) std::memcpy(arrival.request.out, all.data(), all.size());
}

class FakeJob : public Session::Events {
 public:
  // Serves jobs of `world_size` ranks at `path`, one after the other, until destroyed.
  FakeJob(std::string path, uint32_t world_size) : path_(std::move(path)), world_(world_size) {
    Result<Fd> listener = listen_unix(path_, SOCK_STREAM, 0600);
    require(listener.ok(), listener.status().message());
    listener_ = *std::move(listener);
    require(loop_.watch(listener_.get(), EPOLLIN, [this](uint32_t) { take_caller(); }).ok(),
            "the listener cannot be watched");
    thread_ = std::thread([this] { loop_.run(); });
  }
  ~FakeJob() override {
    loop_.post([this] { die(); });
    loop_.stop();
    thread_.join();
  }

  // As a killed worker would: every trainer's socket closes without a word.
  void kill() {
    loop_.post([this] { die(); });
  }
  const std::string& path() const { return path_; }

  void on_request(Session& session, Call request) override {
    const uint32_t member = places_.at(&session).at(request.group);
    const uint64_t turn = request.number;
    Arrivals& arrivals = waiting_[{request.group, turn}];
    if (arrivals.empty()) start_clock(request, turn);
    const uint32_t group = request.group;
    arrivals.emplace(member, Arrival{&session, std::move(request)});
    if (arrivals.size() == groups_.at(group).size()) run(group, turn);
  }

  void on_subgroup_request(Session& session, std::vector<uint32_t> ranks) override {
    const auto self = std::ranges::find(ranks, places_.at(&session).at(0));
    const auto place = static_cast<uint32_t>(self - ranks.begin());
    uint32_t number = 1;
    while (groups_.contains(number) && groups_[number] != ranks) ++number;
    groups_[number] = ranks;
    places_[&session][number] = place;
    session.answer_subgroup(number, ranks);
  }

  void on_window_filled(Session&, uint32_t, uint64_t) override {}
  void on_stuck(Session&, Status) override {}
  void on_end(Session& session, bool leaving, Status) override {
    loop_.post([this, &session, leaving] { forget(session, leaving); });
  }

 private:
  struct Caller {
    Fd socket;
    std::unique_ptr<HelloReader> reader;
  };

  void take_caller() {
    const int fd = accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) return;
    Caller& caller = callers_[fd];
    caller.socket = Fd(fd);
    caller.reader = read_hello(loop_, fd, Clock::now() + std::chrono::seconds(10),
                               [this, fd](auto hello) { admit(fd, std::move(hello)); });
  }

  void admit(int fd, Result<v1::Hello> hello) {
    auto caller = callers_.extract(fd);
    if (!hello.ok()) return refuse_trainer(fd, hello.status());
    if (hello->token() == "wrong") return refuse_trainer(fd, unauthenticated("wrong token"));
    if (joining_.contains(hello->rank()))
      return refuse_trainer(fd, already_exists("rank is taken", {int(hello->rank()), "a"}));
    timeout_ms_ = hello->timeout_ms();
    auto session = open_session(loop_, caller.mapped().socket, segment_bytes_, *this);
    if (!session.ok()) return;
    places_[session->get()][0] = hello->rank();
    joining_[hello->rank()] = *std::move(session);
    if (joining_.size() == world_) begin();
  }

  void begin() {
    ++epoch_;
    std::vector<std::string> hosts;
    for (uint32_t rank = 0; rank < world_; ++rank) {
      hosts.push_back(rank % 2 == 0 ? "a" : "b");
      groups_[0].push_back(rank);
    }
    for (uint32_t host = 0; host < 2; ++host) share_board_of(host);
    for (auto& [rank, session] : joining_) {
      require(session->welcome(epoch_, hosts).ok(), "a trainer left while joining");
      serving_[session.get()] = std::move(session);
    }
    joining_.clear();
  }

  // Ranks of even numbers live on one host, those of odd ones on another.
  void share_board_of(uint32_t host) {
    std::vector<Session*> sessions;
    std::vector<uint32_t> ranks;
    for (uint32_t rank = host; rank < world_; rank += 2) {
      sessions.push_back(joining_.at(rank).get());
      ranks.push_back(rank);
    }
    if (ranks.empty()) return;
    require(create_board(loop_, sessions, ranks, world_).ok(), "a board can be made");
  }

  void start_clock(const Call& request, uint64_t turn) {
    const uint32_t ms = request.timeout_ms != 0 ? request.timeout_ms : timeout_ms_;
    loop_.at(Clock::now() + Millis(ms), [this, group = request.group, turn] {
      if (!waiting_.contains({group, turn})) return;
      if (waiting_[{group, turn}].begin()->second.request.signature.count == kForgottenCount)
        return;
      answer(group, turn, deadline_exceeded("not all ranks came in time"));
    });
  }

  void run(uint32_t group, uint64_t turn) {
    Arrivals& arrivals = waiting_[{group, turn}];
    const Call& any = arrivals.begin()->second.request;
    Status status;
    for (const auto& [rank, arrival] : arrivals)
      if (!arrival.request.invalid.ok()) status = arrival.request.invalid;
    if (any.signature.count == kForgottenCount) return;
    if (any.signature.count == kFailingCount)
      status = failed_precondition("ranks disagree", {1, "b"});
    const bool folded =
        status.ok() && arrivals.begin()->second.session->let_ranks_fold(group, turn);
    if (folded) return static_cast<void>(waiting_.erase({group, turn}));
    if (status.ok()) compute(arrivals);
    answer(group, turn, status);
  }

  void answer(uint32_t group, uint64_t turn, const Status& status) {
    for (const auto& [rank, arrival] : waiting_[{group, turn}])
      arrival.session->complete(group, turn, status);
    waiting_.erase({group, turn});
  }

  // Whoever waited for the gone rank learns of it.
  void forget(Session& session, bool leaving) {
    if (!places_.contains(&session)) return;  // The worker was killed meanwhile.
    const uint32_t rank = places_.at(&session).at(0);
    const Status why = unavailable(leaving ? "a rank left" : "a rank died", {int(rank), "a"});
    while (!waiting_.empty()) {
      const auto [group, turn] = waiting_.begin()->first;
      answer(group, turn, why);
    }
    places_.erase(&session);
    std::erase_if(joining_, [&](const auto& other) { return other.second.get() == &session; });
    serving_.erase(&session);
    if (serving_.empty()) groups_.clear();
  }

  void die() {
    waiting_.clear();
    callers_.clear();
    joining_.clear();
    serving_.clear();
    places_.clear();
    groups_.clear();
  }

  const std::string path_;
  const uint32_t world_;
  const uint64_t segment_bytes_ = uint64_t{128} << 20;
  Loop loop_;
  Fd listener_;
  std::thread thread_;

  // The loop's thread only.
  std::map<int, Caller> callers_;
  std::map<uint32_t, std::unique_ptr<Session>> joining_;
  std::map<Session*, std::unique_ptr<Session>> serving_;
  std::map<Session*, std::map<uint32_t, uint32_t>> places_;  // Group -> rank in it.
  std::map<std::pair<uint32_t, uint64_t>, Arrivals> waiting_;
  std::map<uint32_t, std::vector<uint32_t>> groups_;
  uint32_t epoch_ = 0;
  uint32_t timeout_ms_ = 30'000;
};

}  // namespace tutti
