// A fake agent and worker for tests of the client: accepts all ranks of a job on one socket, and
// computes their operations with simple loops. Ranks are spread over two fake hosts.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "daemon/base/block_sizes.h"
#include "daemon/base/loop.h"
#include "daemon/session/session.h"
#include "tests/support/values.h"

namespace tutti {

// Operations of this many elements fail with FAILED_PRECONDITION, blaming rank 1 on host "b".
inline constexpr uint64_t kFailingCount = 1313;
// Operations of this many elements are never answered.
inline constexpr uint64_t kForgottenCount = 4242;
// Operations of this many elements fail so long after their deadline.
inline constexpr uint64_t kBusyCount = 7272;
inline constexpr Millis kBusyTime{700};

// One rank's call of an operation.
struct Contribution {
  HostBoard* board;
  Call request;
};
using Contributions = std::map<uint32_t, Contribution>;  // By rank in the group.

// For a collective with blocks.
inline BlockSizes sizes_of(const Contributions& contributions) {
  const Call& any = contributions.begin()->second.request;
  const Blocks blocks{any.signature.collective, any.signature.root,
                      static_cast<uint32_t>(contributions.size())};
  return any.counts != nullptr ? BlockSizes(blocks, *any.counts)
                               : BlockSizes(blocks, any.signature.count);
}

inline void reduce(const Contributions& contributions) {
  const Signature& any = contributions.begin()->second.request.signature;
  const bool scatter = any.collective == Collective::reduce_scatter;
  const BlockSizes sizes = sizes_of(contributions);
  std::vector<testing::Elements> inputs;
  for (const auto& [rank, contribution] : contributions)
    inputs.push_back({contribution.request.in, any.dtype});
  const testing::TensorValues total =
      testing::reduced(any.dtype, inputs, scatter ? sizes.input_elements(0) : any.count, any.op,
                       any.op == Op::mean ? static_cast<uint32_t>(inputs.size()) : 1);
  const size_t element = size_of(any.dtype);
  for (const auto& [rank, contribution] : contributions)
    if (contribution.request.out != nullptr)
      std::memcpy(contribution.request.out,
                  total.bytes.data() + (scatter ? sizes.first_in_input(rank) : 0) * element,
                  (scatter ? sizes.count(rank) : any.count) * element);
}

inline void move_blocks(const Contributions& contributions) {
  const BlockSizes sizes = sizes_of(contributions);
  const size_t element = size_of(contributions.begin()->second.request.signature.dtype);
  std::map<uint32_t, std::string> inputs;  // Copied first, because in-place sides overlap.
  for (const auto& [rank, contribution] : contributions)
    if (contribution.request.in != nullptr)
      inputs[rank].assign(reinterpret_cast<const char*>(contribution.request.in),
                          sizes.input_elements(rank) * element);
  for (uint32_t block = 0; block < sizes.blocks().count(); ++block) {
    const std::string& from = inputs[sizes.blocks().senders(block).begin];
    const RankRange to = sizes.blocks().receivers(block);
    for (uint32_t rank = to.begin; rank < to.end && sizes.count(block) != 0; ++rank)
      std::memcpy(contributions.at(rank).request.out + sizes.first_in_output(block) * element,
                  from.data() + sizes.first_in_input(block) * element,
                  sizes.count(block) * element);
  }
}

inline void compute(const Contributions& contributions) {
  const Call& any = contributions.begin()->second.request;
  if (any.signature.count == 0) return;
  if (reduces(any.signature.collective)) return reduce(contributions);
  if (has_blocks(any.signature.collective)) return move_blocks(contributions);
  const std::byte* root = contributions.at(any.signature.root).request.in;
  for (const auto& [rank, contribution] : contributions)
    if (contribution.request.out != nullptr && contribution.request.out != root)
      std::memcpy(contribution.request.out, root,
                  any.signature.count * size_of(any.signature.dtype));
}

class FakeJob : public BoardEvents, public Trainer::Events {
 public:
  // Serves jobs of `world_size` ranks at `path`, one after the other, until destroyed.
  FakeJob(std::string path, uint32_t world_size) : path_(std::move(path)), world_(world_size) {
    Result<Fd> listener = listen_unix(path_, SOCK_STREAM, 0600);
    require(listener.ok(), listener.status().message());
    listener_ = *std::move(listener);
    require(loop_.watch(listener_.get(), EPOLLIN, [this](uint32_t) { accept_trainer(); }).ok(),
            "the listener cannot be watched");
    thread_ = std::thread([this] { loop_.run(); });
  }
  ~FakeJob() override {
    loop_.post([this] { die(); });
    loop_.stop();
    thread_.join();
  }

  // Like the death of the worker: closes every trainer's socket.
  void kill() {
    loop_.post([this] { die(); });
  }
  const std::string& path() const { return path_; }

  void on_request(uint32_t rank, Call request) override {
    const uint32_t group = request.group;
    const std::vector<uint32_t>& ranks = groups_.at(group);
    const auto place = static_cast<uint32_t>(std::ranges::find(ranks, rank) - ranks.begin());
    const uint64_t number = request.number;
    Contributions& contributions = waiting_[{group, number}];
    if (contributions.empty()) start_clock(request, number);
    contributions.emplace(place, Contribution{&board_of(rank), std::move(request)});
    if (contributions.size() == ranks.size()) run(group, number);
  }

  // For channels, one for each pair of ranks.
  void on_subgroup_request(uint32_t rank, std::vector<uint32_t> ranks, uint64_t channel) override {
    uint32_t number = channel == 0 ? 1 : 1'000'000;
    while (groups_.contains(number) && groups_[number] != ranks) ++number;
    groups_[number] = ranks;
    board_of(rank).answer_subgroup(rank, number, ranks);
  }

  void on_offer(uint32_t rank, OfferedMemory) override {
    board_of(rank).answer_offer(rank, unavailable("the fake job has no GPUs"));
  }
  void on_window_filled(const EpochOp&) override {}
  void on_stuck(Status) override {}
  void on_end(Trainer& trainer, bool leaving, Status) override {
    loop_.post([this, &trainer, leaving] { remove(trainer, leaving); });
  }

 private:
  // A connection whose Hello is being read.
  struct Connecting {
    Fd socket;
    std::unique_ptr<HelloReader> reader;
  };

  void accept_trainer() {
    const int fd = accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) return;
    Connecting& trainer = connecting_[fd];
    trainer.socket = Fd(fd);
    trainer.reader =
        std::make_unique<HelloReader>(loop_, fd, Clock::now() + std::chrono::seconds(10),
                                      [this, fd](auto hello) { admit(fd, std::move(hello)); });
  }

  void admit(int fd, Result<v1::Hello> hello) {
    auto trainer = connecting_.extract(fd);
    if (!hello.ok()) return refuse_trainer(fd, hello.status());
    if (hello->token() == "wrong") return refuse_trainer(fd, unauthenticated("wrong token"));
    if (joining_.contains(hello->rank()))
      return refuse_trainer(fd, already_exists("rank is taken", {int(hello->rank()), "a"}));
    timeout_ms_ = hello->timeout_ms();
    auto opened = Trainer::open(loop_, std::move(trainer.mapped().socket), *this);
    if (!opened.ok()) return;
    joining_[hello->rank()] = *std::move(opened);
    if (joining_.size() == world_) begin();
  }

  void begin() {
    ++epoch_;
    std::vector<std::string> hosts;
    for (uint32_t rank = 0; rank < world_; ++rank) {
      hosts.push_back(rank % 2 == 0 ? "a" : "b");
      groups_[0].push_back(rank);
    }
    for (uint32_t host = 0; host < 2; ++host) make_board_of(host);
    for (auto& [rank, trainer] : joining_) {
      require(trainer->welcome(boards_[rank % 2], rank, epoch_, hosts).ok(),
              "a trainer left while joining");
      serving_.emplace(rank, std::move(trainer));
    }
    joining_.clear();
  }

  void forget_epoch() {
    groups_.clear();
    boards_ = {};
  }

  // Ranks with even numbers are on one host, those with odd numbers on the other.
  HostBoard& board_of(uint32_t rank) { return *boards_[rank % 2]; }
  void make_board_of(uint32_t host) {
    HostRanks here{host == 0 ? "a" : "b", {}, world_};
    for (uint32_t rank = host; rank < world_; rank += 2) here.ranks.push_back({rank, getpid()});
    if (here.ranks.empty()) return;
    auto made = HostBoard::make(loop_, here, {segment_bytes_}, epoch_, *this);
    require(made.ok(), "a board can be made");
    boards_[host] = *std::move(made);
  }

  void start_clock(const Call& request, uint64_t number) {
    const uint32_t ms = request.timeout_ms != 0 ? request.timeout_ms : timeout_ms_;
    const Millis late = request.signature.count == kBusyCount ? kBusyTime : Millis(0);
    loop_.at(Clock::now() + Millis(ms) + late, [this, group = request.group, number] {
      if (!waiting_.contains({group, number})) return;
      if (waiting_[{group, number}].begin()->second.request.signature.count == kForgottenCount)
        return;
      answer(group, number, deadline_exceeded("not all ranks came in time"));
    });
  }

  void run(uint32_t group, uint64_t number) {
    Contributions& contributions = waiting_[{group, number}];
    const Call& any = contributions.begin()->second.request;
    Status status;
    for (const auto& [rank, contribution] : contributions)
      if (!contribution.request.invalid.ok()) status = contribution.request.invalid;
    if (any.signature.count == kForgottenCount) return;
    if (any.signature.count == kFailingCount)
      status = failed_precondition("ranks disagree", {1, "b"});
    const bool folded =
        status.ok() && contributions.begin()->second.board->let_ranks_fold({group, number});
    if (folded) return static_cast<void>(waiting_.erase({group, number}));
    if (status.ok()) compute(contributions);
    answer(group, number, status);
  }

  void answer(uint32_t group, uint64_t number, const Status& status) {
    for (const auto& [rank, contribution] : waiting_[{group, number}])
      contribution.board->complete({group, number}, status);
    waiting_.erase({group, number});
  }

  // A rank is gone: fails all operations under way.
  void remove(Trainer& trainer, bool leaving) {
    const auto is_it = [&](const auto& other) { return other.second.get() == &trainer; };
    const auto serving = std::ranges::find_if(serving_, is_it);
    const auto joining = std::ranges::find_if(joining_, is_it);
    if (serving == serving_.end() && joining == joining_.end())
      return;  // The worker was killed meanwhile.
    const uint32_t rank = serving != serving_.end() ? serving->first : joining->first;
    const Status why = unavailable(leaving ? "a rank left" : "a rank died", {int(rank), "a"});
    while (!waiting_.empty()) {
      const auto [group, number] = waiting_.begin()->first;
      answer(group, number, why);
    }
    std::erase_if(joining_, is_it);
    std::erase_if(serving_, is_it);
    if (serving_.empty()) forget_epoch();
  }

  void die() {
    if (listener_.valid()) loop_.unwatch(listener_.get());
    listener_.reset();
    waiting_.clear();
    connecting_.clear();
    joining_.clear();
    serving_.clear();
    forget_epoch();
  }

  const std::string path_;
  const uint32_t world_;
  const uint64_t segment_bytes_ = uint64_t{128} << 20;
  Loop loop_;
  Fd listener_;
  std::thread thread_;

  // The loop's thread only.
  std::map<int, Connecting> connecting_;
  std::array<std::shared_ptr<HostBoard>, 2> boards_;  // By host.
  std::map<uint32_t, std::unique_ptr<Trainer>> joining_;
  std::multimap<uint32_t, std::unique_ptr<Trainer>> serving_;  // By rank; ended ones, too.
  std::map<std::pair<uint32_t, uint64_t>, Contributions> waiting_;
  std::map<uint32_t, std::vector<uint32_t>> groups_;
  uint32_t epoch_ = 0;
  uint32_t timeout_ms_ = 30'000;
};

}  // namespace tutti
