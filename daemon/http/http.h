// What is seen of a node over HTTP: /metrics for Prometheus, /healthz and /readyz for what keeps
// it running, the page at / and its /api/status, /api/diagnosis for programs. Read-only. The only
// room that uses prometheus-cpp.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/status.h"
#include "daemon/trace/trace.h"
#include "proto/mesh.pb.h"

namespace tutti {

// What is shown. Called on the server's threads, several at once; may block for seconds.
// The flight recorder of a job on this node, its newest epoch.
struct RecordedJob {
  v1::Pass pass;  // Whose it is.
  trace::Trace trace;
};

class HttpSource {
 public:
  virtual ~HttpSource() = default;
  // OK: it takes joins. DEADLINE_EXCEEDED: it does not react. Others: why it takes none.
  virtual Status readiness() = 0;
  // Whether the bearer of `token`, "" without one, may see all; otherwise figures of the node that
  // name no job and no user. UNAUTHENTICATED: the token is wrong; the message says which is needed.
  virtual Result<bool> sees_all(std::string_view token) = 0;
  virtual v1::AgentReport node() = 0;
  // Whether metrics have a series for each rank.
  virtual bool has_rank_metrics() = 0;
  // For the jobs that run on this node.
  virtual std::vector<RecordedJob> recorded() = 0;
  // For all nodes, each of which is asked once. `with_calls`: also what their ranks have called
  // last. An error says why they are not known.
  virtual Result<v1::StatusReply> mesh(bool with_calls) = 0;
};

class HttpServer {
 public:
  virtual ~HttpServer() = default;          // Ends the requests in progress.
  virtual std::string address() const = 0;  // host:port
};

// Serves `source`, which must outlive the server. `listen` is host:port; port 0: any.
// INVALID_ARGUMENT, UNAVAILABLE: the message names metrics_listen and the remedy.
Result<std::unique_ptr<HttpServer>> serve_http(const std::string& listen, HttpSource& source);

}  // namespace tutti
