// The agent of one node: accepts trainers, hands them to their jobs' workers, and serves the
// control plane. Jobs keep running when it ends.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "daemon/agent/admin_door.h"
#include "daemon/agent/gpus.h"
#include "daemon/agent/http_door.h"
#include "daemon/agent/traces.h"
#include "daemon/agent/workers.h"
#include "daemon/base/credentials.h"
#include "daemon/base/fd.h"
#include "daemon/base/loop.h"
#include "daemon/base/settings.h"
#include "daemon/control/control.h"
#include "daemon/control/refusals.h"
#include "daemon/session/session.h"
#include "proto/mesh.pb.h"

namespace tutti {

class Agent final : public AgentControl {
 public:
  // Fills in the settings that were left open. `dropped_log_lines`: how many so far; any thread.
  Agent(Loop& loop, Settings settings, Credentials credentials,
        std::function<uint64_t()> dropped_log_lines);
  ~Agent() override;

  // Starts serving, while the loop runs. `on_stop` is called on the loop's thread when the control
  // plane asks the agent to end.
  Status start(std::function<void()> on_stop);

  // To be called on SIGCHLD.
  void reap() { workers_->reap(); }

  // Takes over the settings that can change under way (daemon/base/reload.h).
  void reload(const Settings& read);

  // Refuses joins, waits until the jobs of this node have ended, ends those that have not after
  // `wait`, and then calls `on_stop` of start().
  void finish(Millis wait);

  // "socket /run/tutti/tuttid.sock, control plane 127.0.0.1:7601 (coordinator)".
  std::string describe() const;

  // "serves: " and that, or "takes no joins: " and why.
  std::string describe_state() const;

  // Called on gRPC's threads.
  v1::AgentReport report() override;
  v1::TraceReply trace(const v1::TraceRequest& request) override;
  Status drain(bool undo) override;
  Status stop(bool jobs) override;
  v1::StopJobReply stop_job(const v1::StopJobRequest& request) override;

 private:
  // A connection whose hello has not arrived yet.
  struct PendingHello {
    Fd socket;
    uint32_t uid = 0;
    std::unique_ptr<HelloReader> reader;
  };
  using PendingHellos = std::list<PendingHello>;

  Status lock_run_dir();
  Status serve_control_plane();
  void on_coordinator(const std::string& address, const std::string& obstacle);
  Status serve_http();
  Status why_not_serving() const;  // Loop thread.
  Status serve();
  void accept_trainers();
  void await_hello(Fd socket);
  void make_room_for_hello();
  void on_hello(PendingHellos::iterator pending, const Result<v1::Hello>& hello);
  void refuse(int socket, const Status& why);
  Status check_version(const v1::Hello& hello) const;
  Status admit(const v1::Hello& hello, int socket);
  Result<v1::Pass> pass_of(const v1::Hello& hello, const PeerCredentials& peer) const;
  void pause_accepting();
  void trim_memory();

  Loop& loop_;
  Settings settings_;
  Credentials credentials_;
  const std::function<uint64_t()> dropped_log_lines_;
  const TimePoint started_ = Clock::now();
  Fd run_dir_lock_;
  Fd listener_;
  PendingHellos pending_hellos_;
  Loop::TimerId resume_timer_ = 0;
  Loop::TimerId trim_timer_ = 0;
  bool is_draining_ = false;               // Loop thread only.
  std::atomic<bool> is_stopping_ = false;  // Set on the loop's thread.
  Refusals refusals_;
  std::function<void()> on_stop_;
  std::unique_ptr<ControlServer> control_;
  Traces traces_;
  EndedJobs ended_;
  std::unique_ptr<Workers> workers_;
  std::unique_ptr<AdminDoor> admin_door_;
  std::unique_ptr<HttpDoor> http_door_;  // Null: metrics_listen is empty.
  Gpus gpus_;
};

}  // namespace tutti
