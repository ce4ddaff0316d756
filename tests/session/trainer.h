// A trainer's end of its socket, which writes to shared memory directly, so that tests can write
// anything anywhere.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/base/loop.h"
#include "daemon/board/board.h"
#include "daemon/session/session.h"
#include "proto/session.pb.h"
#include "tests/support/await.h"
#include "tests/support/descriptors.h"

namespace tutti {

inline constexpr uint64_t kTestSegmentBytes = uint64_t{1} << 20;

// Handles everything that is ready now.
inline void drain(Loop& loop) {
  for (int i = 0; i < 4; ++i) loop.run_once(Clock::now());
}

// Records what a board says, and the trainer of one of its ranks.
class RecordedEvents : public BoardEvents, public Trainer::Events {
 public:
  void on_request(uint32_t, Call request) override {
    requests.push_back(std::move(request));
    if (then) then();
  }
  void on_subgroup_request(uint32_t, std::vector<uint32_t> ranks, uint64_t) override {
    subgroups.push_back(std::move(ranks));
  }
  void on_offer(uint32_t, OfferedMemory offer) override { offers.push_back(std::move(offer)); }
  void on_end(Trainer&, bool is_leaving, Status status) override {
    ++ends;
    leaving = is_leaving;
    why = std::move(status);
  }
  void on_window_filled(const EpochOp& op) override { filled.push_back(op.number); }
  void on_stuck(Status status) override { stuck.push_back(std::move(status)); }

  std::vector<Call> requests;
  std::vector<OfferedMemory> offers;
  std::function<void()> then;  // After each.
  std::vector<std::vector<uint32_t>> subgroups;
  std::vector<Status> stuck;
  std::vector<uint64_t> filled;
  int ends = 0;
  bool leaving = false;
  Status why;
};

inline std::pair<Fd, Fd> socket_pair(int type = SOCK_STREAM) {
  std::array<int, 2> ends{};
  EXPECT_EQ(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends.data()), 0);
  return {Fd(ends[0]), Fd(ends[1])};
}

inline v1::Welcome parse_welcome(const std::string& bytes) {
  v1::Welcome welcome;
  uint32_t length = 0;
  EXPECT_GE(bytes.size(), sizeof(length));
  std::memcpy(&length, bytes.data(), sizeof(length));
  EXPECT_EQ(bytes.size(), sizeof(length) + length);
  EXPECT_TRUE(welcome.ParseFromString(bytes.substr(sizeof(length))));
  return welcome;
}

class FakeTrainer {
 public:
  explicit FakeTrainer(Fd socket) : socket_(std::move(socket)) {}
  FakeTrainer(const FakeTrainer&) = delete;
  FakeTrainer& operator=(const FakeTrainer&) = delete;
  ~FakeTrainer() {
    if (base_ != nullptr) munmap(base_, bytes_);
    if (board_ != nullptr) munmap(board_, board_bytes(local_ranks_));
  }

  // Takes the welcome and maps the segment and the board.
  v1::Welcome join() {
    Result<std::optional<Packet>> packet = receive_stream();
    EXPECT_TRUE(packet.ok() && packet->has_value());
    EXPECT_GE((*packet)->descriptors.size(), 5u);
    memory_ = std::move((*packet)->descriptors[0]);
    doorbell_ = std::move((*packet)->descriptors[1]);
    struct stat info {};
    EXPECT_EQ(fstat(memory_.get(), &info), 0);
    bytes_ = static_cast<uint64_t>(info.st_size);
    void* base = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, memory_.get(), 0);
    EXPECT_NE(base, MAP_FAILED);
    base_ = static_cast<std::byte*>(base);
    descriptors_ = (*packet)->descriptors.size();
    local_ranks_ = static_cast<uint32_t>(descriptors_ - 4);
    map_board(std::move((*packet)->descriptors[2]));
    return parse_welcome((*packet)->bytes);
  }

  SegmentHeader& header() { return *reinterpret_cast<SegmentHeader*>(base_); }
  std::byte* at(uint64_t offset) { return base_ + offset; }
  uint64_t bytes() const { return bytes_; }
  int memory() const { return memory_.get(); }
  int doorbell() const { return doorbell_.get(); }
  int board_memory() const { return board_memory_.get(); }
  // Descriptors that came with the welcome.
  size_t descriptors() const { return descriptors_; }
  board::View view() const { return {board_, local_ranks_}; }
  BoardHeader& board() const { return view().header(); }
  board::Area area(uint32_t index = 0) const { return view().area(index); }
  board::SlotWord word(uint64_t number, uint32_t area_index = 0) const {
    return board::unpack(area(area_index).slot_of(number).word.load());
  }
  void set_word(uint64_t number, board::Phase phase, uint32_t arrived, uint32_t area_index = 0) {
    area(area_index)
        .slot_of(number)
        .word.store(pack(board::SlotWord{board::generation_of(number), phase, false, arrived}));
  }
  bool is_done(uint64_t number) const {
    return word(number).generation == board::generation_of(number) &&
           word(number).phase == board::Phase::done;
  }
  bool has_failed(uint64_t number) const {
    return word(number).generation == board::generation_of(number) &&
           word(number).phase == board::Phase::failed && failure(number).number == number;
  }
  const BoardFailure& failure(uint64_t number) const { return area().failure(number); }
  int socket() const { return socket_.get(); }

  void ring() { eventfd_write(doorbell_.get(), 1); }
  // Writes the request and its arrival, as the rank with that local rank.
  BoardEntry& write(uint64_t number, const Request& request, uint32_t local_rank = 0,
                    uint32_t area_index = 0) {
    BoardEntry& entry = area(area_index).entry(number, local_rank);
    entry.request = request;
    entry.started_ns = 0;
    entry.ready = entry.holding = 0;
    entry.arrived = number + 1;
    return entry;
  }
  void set_called(uint64_t number, uint32_t area_index = 0) {
    const auto slot = static_cast<uint32_t>(number % kBoardSlots);
    area(area_index).header().called[slot / 64].fetch_or(uint64_t{1} << slot % 64);
    board().called[area_index / 64].fetch_or(uint64_t{1} << area_index % 64);
  }
  void call(uint64_t number) {
    set_called(number);
    ring();
  }
  // A lone rank's request, called.
  void submit(uint64_t number, const Request& request) {
    write(number, request);
    set_word(number, board::Phase::called, 1);
    call(number);
  }
  // The list lies where the arena begins.
  void ask_subgroup(std::span<const uint32_t> ranks, uint32_t local_rank = 0) {
    if (!ranks.empty()) std::memcpy(at(kArenaOffset), ranks.data(), ranks.size_bytes());
    BoardSubgroupRequest& subgroup = view().subgroup_request(local_rank);
    subgroup.ranks = static_cast<uint32_t>(ranks.size());
    subgroup.list_offset = kArenaOffset;
    subgroup.state = static_cast<uint32_t>(SubgroupRequestState::asked);
    ring();
  }
  void hang_up() { socket_.reset(); }

 private:
  // A stream carries the welcome as one message here: nothing else was ever sent.
  Result<std::optional<Packet>> receive_stream() {
    Packet packet;
    packet.bytes.resize(65536);
    alignas(cmsghdr) std::array<char, CMSG_SPACE(kWelcomeDescriptors * sizeof(int))> control{};
    iovec data{packet.bytes.data(), packet.bytes.size()};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t got = recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got <= 0) return unavailable("no welcome");
    packet.bytes.resize(static_cast<size_t>(got));
    const cmsghdr* header = CMSG_FIRSTHDR(&message);
    if (header == nullptr) return unavailable("no descriptors");
    std::vector<int> fds((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    std::memcpy(fds.data(), CMSG_DATA(header), fds.size() * sizeof(int));
    for (const int fd : fds) packet.descriptors.emplace_back(fd);
    return std::optional(std::move(packet));
  }

  void map_board(Fd memory) {
    void* base = mmap(nullptr, board_bytes(local_ranks_), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_NORESERVE, memory.get(), 0);
    EXPECT_NE(base, MAP_FAILED);
    board_ = static_cast<std::byte*>(base);
    board_memory_ = std::move(memory);
  }

  Fd socket_;
  Fd memory_;
  Fd doorbell_;
  Fd board_memory_;
  size_t descriptors_ = 0;
  std::byte* base_ = nullptr;
  std::byte* board_ = nullptr;
  uint32_t local_ranks_ = 0;
  uint64_t bytes_ = 0;
};

// One trainer and the worker's end of its socket; as `rank` of `size` on a board of its own, whose
// other ranks are on another host, or not welcomed yet.
struct Served {
  explicit Served(Loop& loop, uint32_t rank = 1, uint32_t size = 4) : Served(loop, socket_pair()) {
    auto made =
        HostBoard::make(loop, {"a", {{rank, getpid()}}, size}, {kTestSegmentBytes}, 7, events);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    board = *std::move(made);
    std::vector<std::string> hosts(size, "b");
    hosts[rank] = "a";
    EXPECT_TRUE(at_worker->welcome(board, rank, 7, hosts).ok());
    welcome = trainer.join();
  }
  Served(Loop& loop, std::pair<Fd, Fd> ends) : trainer(std::move(ends.second)) {
    auto opened = Trainer::open(loop, std::move(ends.first), events);
    EXPECT_TRUE(opened.ok()) << opened.status().to_string();
    at_worker = *std::move(opened);
  }

  RecordedEvents events;
  std::shared_ptr<HostBoard> board;
  std::unique_ptr<Trainer> at_worker;
  FakeTrainer trainer;
  v1::Welcome welcome;
};

// A well-formed all_reduce of 8 floats, out of place.
inline Request all_reduce_request() {
  Request request{};
  request.collective = TUTTI_ALL_REDUCE;
  request.count = 8;
  request.in_offset = kArenaOffset;
  request.out_offset = kArenaOffset + 64;
  return request;
}

}  // namespace tutti
