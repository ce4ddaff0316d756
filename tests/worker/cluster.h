// A fixture of several hosts as threads of one process: each has its loop, transport, engine and
// epoch as in a real worker, without trainers and agents.
#pragma once

#include <future>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "daemon/device/device.h"
#include "daemon/engine/engine.h"
#include "daemon/group/group.h"
#include "daemon/transport/transport.h"
#include "daemon/worker/link_router.h"

namespace tutti::testing {

struct ClusterOptions {
  EpochOptions epoch;
  EngineLimits engine;
  LinkLimits links;
  std::string transport = "local";  // Or "grpc", or "tcp".
  std::vector<int> dealt;           // By rank: its host's index. Empty: in the order of the hosts.
  std::shared_ptr<Tuner> tuner;     // The first host's; null: one of its own.
};

class ClusterHost : public LinkRouter::Events, public LocalPhase {
 public:
  ClusterHost(std::string name, const ClusterOptions& options,
              const std::shared_ptr<LocalNetwork>& network)
      : host(std::move(name)), device(make_host_device()) {
    transport = options.transport == "local"
                    ? make_local_transport(network, options.links)
                    : make_network_transport(loop, options.transport, options.links);
    engine =
        make_engine(*device, options.engine, [this](auto task) { loop.post(std::move(task)); });
    link_router = std::make_unique<LinkRouter>(loop, "demo", Millis(10'000), 256, *this);
    const std::string at = dynamic_address(*transport, host);
    address = *transport->listen(at, link_router->acceptor());
    thread = std::thread([this] { loop.run(); });
  }

  ~ClusterHost() override {
    run([this] { epoch.reset(); });
    transport.reset();
    loop.stop();
    thread.join();
  }

  // Runs on the loop's thread and waits.
  void run(std::function<void()> task) {
    std::promise<void> ran;
    loop.post([&] {
      task();
      ran.set_value();
    });
    ran.get_future().wait();
  }

  // Submits the call of a local rank, and promises its end. On the loop's thread.
  void submit(int rank, const Call& call, std::shared_ptr<std::promise<Status>> end) {
    waiting[{call.group, call.number}].push_back(std::move(end));
    epoch->submit(rank, call);
  }

  // LinkRouter::Events.
  const std::string* secret_of(uint32_t number) const override {
    const bool is_it = epoch != nullptr && epoch->roster().epoch == number;
    return is_it ? &epoch->roster().secret : nullptr;
  }
  void add_link(uint32_t, const std::string& from, std::shared_ptr<Link> link,
                std::shared_ptr<LoopHandler> handler) override {
    epoch->add_link(from, std::move(link), std::move(handler));
  }

  // LocalPhase.
  void complete(const EpochOp& op, const Status& status) override {
    const auto ended = waiting.extract(op);
    if (ended.empty()) return;
    for (const auto& end : ended.mapped()) end->set_value(status);
  }
  void on_over(const Status& cause) override { ends.push_back(cause); }

  std::string host;
  std::string address;
  Loop loop;
  std::unique_ptr<Device> device;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<LinkRouter> link_router;
  std::unique_ptr<Epoch> epoch;
  std::vector<Status> ends;  // Of the epoch.
  // For the calls of the ranks here.
  std::map<EpochOp, std::vector<std::shared_ptr<std::promise<Status>>>> waiting;
  std::thread thread;

 private:
  static std::string dynamic_address(const Transport& transport, const std::string& host) {
    return transport.name() == "local" ? host : "127.0.0.1:0";
  }
};

class Cluster {
 public:
  explicit Cluster(const std::vector<int>& ranks_per_host,
                   ClusterOptions options = ClusterOptions()) {
    const auto network = make_local_network();
    roster.job = "demo";
    roster.epoch = 1;
    roster.secret = "secret";
    for (size_t index = 0; index < ranks_per_host.size(); ++index) {
      hosts.push_back(std::make_unique<ClusterHost>(std::string(1, static_cast<char>('a' + index)),
                                                    options, network));
      if (options.dealt.empty())
        for (int i = 0; i < ranks_per_host[index]; ++i) add_rank(*hosts.back());
    }
    for (const int host : options.dealt) add_rank(*hosts[static_cast<size_t>(host)]);
    for (const auto& host : hosts)
      host->run([&] {
        const auto tuner = host == hosts.front() ? options.tuner : nullptr;
        host->epoch = make_epoch({host->loop, *host->transport, *host->engine, *host, tuner},
                                 roster, host->host, options.epoch);
        host->link_router->on_epoch_formed(roster.epoch);
      });
  }

  int size() const { return static_cast<int>(roster.ranks.size()); }

  std::future<Status> submit(int rank, Call call, uint32_t group = 0) {
    call.number = take_number(rank, group);
    return submit_as_numbered(rank, std::move(call), group);
  }

  std::future<Status> submit_as_numbered(int rank, Call call, uint32_t group = 0) {
    auto done = std::make_shared<std::promise<Status>>();
    std::future<Status> future = done->get_future();
    ClusterHost* host = host_of[rank];
    call.group = group;
    host->loop.post([=, call = std::move(call)] { host->submit(rank, call, done); });
    return future;
  }

  // The place of the rank's next call on the group.
  uint64_t take_number(int rank, uint32_t group = 0) { return next_number_[{rank, group}]++; }

  // All ranks' calls, made by `call_of(rank)`, to their ends.
  template <class CallOf>
  std::vector<Status> all(CallOf call_of) {
    std::vector<std::future<Status>> futures;
    for (int rank = 0; rank < size(); ++rank) futures.push_back(submit(rank, call_of(rank)));
    std::vector<Status> statuses;
    for (auto& future : futures) statuses.push_back(future.get());
    return statuses;
  }

  Roster roster;
  std::vector<std::unique_ptr<ClusterHost>> hosts;
  std::vector<ClusterHost*> host_of;  // By rank.

 private:
  void add_rank(ClusterHost& host) {
    const auto pid = static_cast<uint32_t>(1000 + roster.ranks.size());
    roster.ranks.push_back({pid, host.host, host.address});
    host_of.push_back(&host);
  }

  std::map<std::pair<int, uint32_t>, uint64_t> next_number_;  // By rank and group.
};

}  // namespace tutti::testing
