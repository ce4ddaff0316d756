// What the agent shows over HTTP, and to whom.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "daemon/agent/traces.h"
#include "daemon/base/credentials.h"
#include "daemon/base/loop.h"
#include "daemon/base/settings.h"
#include "daemon/control/control.h"
#include "daemon/control/refusals.h"
#include "daemon/http/http.h"
#include "proto/mesh.pb.h"

namespace tutti {

class HttpDoor final : public HttpSource {
 public:
  // For the agent. All must outlive the door.
  struct Of {
    Loop& loop;
    const Settings& settings;
    const Credentials& credentials;
    AgentControl& agent;
    ControlServer& control;
    Refusals& refusals;
    const Traces& traces;            // Used on the loop's thread.
    std::function<Status()> serves;  // Why it takes no joins. Called on the loop's thread.
  };
  // Serves at settings.metrics_listen. Errors name it.
  static Result<std::unique_ptr<HttpDoor>> open(const Of& of);

  std::string address() const { return server_->address(); }

  Status readiness() override;
  Result<bool> sees_all(std::string_view token) override;
  v1::AgentReport node() override;
  bool has_rank_metrics() override { return of_.settings.metrics_per_rank == "yes"; }
  std::vector<RecordedJob> recorded() override;
  Result<v1::StatusReply> mesh(bool with_calls) override;

 private:
  explicit HttpDoor(const Of& of) : of_(of) {}
  v1::AdminAnswer ask(const v1::StatusRequest& what);

  const Of of_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace tutti
