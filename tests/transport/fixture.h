// Shared by the transport tests: handlers that record, frames whose bytes can be checked, and a
// pair of connected transports of any kind.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "daemon/base/loop.h"
#include "daemon/transport/transport.h"

namespace tutti {

inline constexpr std::chrono::seconds kPatience{60};  // Before a test gives up.
inline constexpr size_t kMiB = size_t{1} << 20;

// State that one thread changes and another waits for.
class Monitor {
 public:
  template <class Change>
  void change(Change change) {
    std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
  }
  // Returns false if `holds` did not come true in time.
  template <class Holds>
  bool wait(Holds holds, std::chrono::milliseconds limit = kPatience) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, holds);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
};

inline std::vector<std::byte> pattern(size_t bytes, uint64_t seed) {
  std::vector<std::byte> made(bytes);
  for (size_t i = 0; i < bytes; ++i)
    made[i] = static_cast<std::byte>(seed * 131 + i * 7 + (i >> 8) * 13);
  return made;
}

inline std::vector<std::byte> bytes_of(const Payload& payload) {
  std::vector<std::byte> bytes(payload.bytes());
  payload.copy_to(bytes.data());
  return bytes;
}

// A handler that records everything. While shut, on_frame() blocks.
class Recorder : public LinkHandler {
 public:
  struct Received {
    FrameHeader header;
    std::vector<std::byte> bytes;
  };

  void on_frame(Frame frame) override {
    Received received{frame.header, bytes_of(frame.payload)};
    monitor_.wait([this] { return !shut_; });
    monitor_.change([&] {
      EXPECT_TRUE(causes_.empty()) << "a frame after on_closed";
      frames_.push_back(std::move(received));
    });
  }
  void on_closed(Status cause) override {
    monitor_.change([&] { causes_.push_back(std::move(cause)); });
  }

  void shut(bool shut) {
    monitor_.change([&] { shut_ = shut; });
  }
  // Waits for the next frame that no call has returned yet.
  std::optional<Received> next() {
    std::optional<Received> taken;
    monitor_.wait([&] {
      if (frames_.empty()) return false;
      taken = std::move(frames_.front());
      frames_.pop_front();
      return true;
    });
    return taken;
  }
  // Waits for the link to close and returns why; nothing if it does not within `limit`.
  std::optional<Status> closed(std::chrono::milliseconds limit = kPatience) {
    std::optional<Status> cause;
    monitor_.wait([&] { return !causes_.empty(); }, limit);
    monitor_.change([&] {
      EXPECT_LE(causes_.size(), 1u) << "closed more than once";
      if (!causes_.empty()) cause = causes_.front();
    });
    return cause;
  }
  // Frames that next() has not returned yet.
  size_t count() {
    size_t count = 0;
    monitor_.change([&] { count = frames_.size(); });
    return count;
  }
  Code closed_code() { return closed().value_or(Status()).code(); }

 private:
  Monitor monitor_;
  bool shut_ = false;
  std::deque<Received> frames_;
  std::vector<Status> causes_;
};

// Sends frames and counts how often each is released.
class Sender {
 public:
  ~Sender() { EXPECT_EQ(released(), sent_.size()) << "a frame was never released"; }

  // Sends pattern(bytes, seed) with op_seq = seed.
  Status send(Link& link, size_t bytes, uint64_t seed) {
    Item* item = nullptr;
    monitor_.change([&] { item = &items_.emplace_back(pattern(bytes, seed)); });
    FrameHeader header;
    header.op_seq = seed;
    header.slice = 1;  // The first does not go by data streams.
    Status status = link.send({header, item->bytes, [this, item] { release(*item); }});
    if (status.ok()) monitor_.change([&] { sent_.push_back(item); });
    monitor_.change([&] { EXPECT_TRUE(status.ok() || item->releases == 0); });
    return status;
  }
  // As send(), but waits while the queue is full.
  void send_patiently(Link& link, size_t bytes, uint64_t seed) {
    for (;;) {
      const size_t before = released();
      const Status status = send(link, bytes, seed);
      if (status.code() != Code::resource_exhausted) {
        ASSERT_TRUE(status.ok()) << status.to_string();
        return;
      }
      ASSERT_TRUE(monitor_.wait([&] { return released_ > before; })) << "the queue never drained";
    }
  }
  size_t sent() const { return sent_.size(); }
  size_t released() {
    size_t count = 0;
    monitor_.change([&] { count = released_; });
    return count;
  }
  bool wait_released(size_t count, std::chrono::milliseconds limit = kPatience) {
    return monitor_.wait([&] { return released_ >= count; }, limit);
  }

 private:
  struct Item {
    explicit Item(std::vector<std::byte> bytes) : bytes(std::move(bytes)) {}
    std::vector<std::byte> bytes;
    int releases = 0;
  };

  void release(Item& item) {
    monitor_.change([&] {
      EXPECT_EQ(++item.releases, 1) << "released more than once";
      ++released_;
      // The bytes may be changed and freed from now on; a late reader would see this.
      std::fill(item.bytes.begin(), item.bytes.end(), std::byte{0xEE});
      std::vector<std::byte>().swap(item.bytes);
    });
  }

  Monitor monitor_;
  std::deque<Item> items_;
  std::vector<Item*> sent_;
  size_t released_ = 0;
};

// A link and its two handlers. `far` is null if the acceptor was not called.
struct Joined {
  std::shared_ptr<Link> near, far;
  std::shared_ptr<Recorder> near_end, far_end;
};

// A TCP transport with a loop and a thread that runs it.
class LoopTransport final : public Transport {
 public:
  explicit LoopTransport(const LinkLimits& limits) : inner_(make_tcp_transport(loop_, limits)) {
    std::promise<void> running;
    loop_.post([&] { running.set_value(); });
    thread_ = std::thread([this] { loop_.run(); });
    running.get_future().wait();
  }
  ~LoopTransport() override {
    inner_.reset();
    loop_.stop();
    thread_.join();
  }
  std::string name() const override { return inner_->name(); }
  Result<std::string> listen(const std::string& address, Acceptor acceptor) override {
    return inner_->listen(address, std::move(acceptor));
  }
  std::shared_ptr<Link> connect(const std::string& address, const LinkHello& hello,
                                std::shared_ptr<LinkHandler> handler) override {
    return inner_->connect(address, hello, std::move(handler));
  }

 private:
  Loop loop_;
  std::unique_ptr<Transport> inner_;
  std::thread thread_;
};

// `kind` is "local", or "grpc" or "tcp" with or without "+tls"; "tcp*8" has 8 data streams.
inline std::unique_ptr<Transport> make_transport(const std::string& kind, LinkLimits limits,
                                                 const std::shared_ptr<LocalNetwork>& network) {
  if (kind == "local") return make_local_transport(network, limits);
  limits.tls = kind.ends_with("+tls");
  if (const size_t times = kind.find('*'); times != std::string::npos)
    limits.streams = std::stoi(kind.substr(times + 1));
  if (kind.starts_with("grpc")) return make_grpc_transport(limits);
  require(kind.starts_with("tcp"), "a transport that the fixture knows");
  return std::make_unique<LoopTransport>(limits);
}

// A kind as a part of a test's name.
inline std::string name_of_kind(std::string kind) {
  std::ranges::replace_if(
      kind, [](char c) { return c == '+' || c == '*'; }, '_');
  return kind;
}

// An address without the fingerprint of TLS.
inline std::string host_and_port(const std::string& address) {
  return address.substr(0, address.find('#'));
}

// Accepts every link whose secret is empty.
inline Acceptor take_all(std::shared_ptr<LinkHandler> handler) {
  return [handler = std::move(handler)](const IncomingLink& guest, auto&&) {
    EXPECT_TRUE(guest.verify_secret(""));
    return Result<std::shared_ptr<LinkHandler>>(handler);
  };
}

// Two transports of one kind; `there` listens.
class Pair {
 public:
  // By default no link is given up for its silence, however loaded the machine is.
  explicit Pair(const std::string& kind, LinkLimits limits = {.silence_ms = 3'600'000})
      : kind_(kind), limits_(limits), network_(make_local_network()) {
    here = make();
    there = make();
    auto listening = there->listen("127.0.0.1:0", [this](const IncomingLink& hello, auto link) {
      return accept(hello, std::move(link));
    });
    EXPECT_TRUE(listening.ok()) << listening.status().to_string();
    if (listening.ok()) address = *listening;
  }

  std::unique_ptr<Transport> make() const { return make_transport(kind_, limits_, network_); }

  // Dials and waits until the listener has accepted, and until large frames go by data streams.
  Joined join() {
    Joined joined = dial();
    EXPECT_TRUE(monitor_.wait([&] { return !accepted_.empty(); }));
    monitor_.change([&] {
      std::tie(joined.far, joined.far_end) = accepted_.front();
      accepted_.pop_front();
    });
    if (!awaits_streams || kind_.find('*') == std::string::npos || limits_.frame_bytes_max < kMiB)
      return joined;
    await_streams(*joined.near, *joined.far_end);
    await_streams(*joined.far, *joined.near_end);
    return joined;
  }
  Joined dial() {
    Joined joined;
    joined.near_end = std::make_shared<Recorder>();
    joined.near = here->connect(address, hello, joined.near_end);
    return joined;
  }

  LinkHello hello{.job = "demo", .epoch = 7, .host = "a", .secret = "s"};
  std::string address;
  bool awaits_streams = true;
  Status refusal;                     // Not OK: the listener refuses with it.
  std::optional<IncomingLink> heard;  // The last link offered to the acceptor.
  std::unique_ptr<Transport> here, there;

 private:
  static void await_streams(Link& from, Recorder& to) {
    Sender sender;
    for (uint8_t stream = 0; stream == 0;) {
      ASSERT_TRUE(sender.send(from, kMiB, 0).ok());
      const auto arrived = to.next();
      ASSERT_TRUE(arrived.has_value());
      stream = arrived->header.stream;
    }
    EXPECT_TRUE(sender.wait_released(sender.sent()));
  }
  Result<std::shared_ptr<LinkHandler>> accept(const IncomingLink& said,
                                              std::shared_ptr<Link> link) {
    auto recorder = std::make_shared<Recorder>();
    monitor_.change([&] {
      heard = said;
      accepted_.emplace_back(std::move(link), recorder);
    });
    if (!refusal.ok()) return refusal;
    EXPECT_TRUE(said.verify_secret(hello.secret));
    return std::shared_ptr<LinkHandler>(recorder);
  }

  const std::string kind_;
  const LinkLimits limits_;
  const std::shared_ptr<LocalNetwork> network_;
  Monitor monitor_;
  std::deque<std::pair<std::shared_ptr<Link>, std::shared_ptr<Recorder>>> accepted_;
};

}  // namespace tutti
