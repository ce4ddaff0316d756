// Ways to ask other agents that are kept from one question to the next. Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "daemon/control/tls_files.h"
#include "proto/mesh.grpc.pb.h"

namespace tutti {

class CertificateStore;
struct Certificates;

class KeptStubs {
 public:
  // Serves one question at a time, because a connection has few streams, behind which another
  // question would wait for an agent that is slow to answer.
  struct Stub {
    std::pair<std::string, std::string> agent;         // Its host, "" where it is not known, and
                                                       // its address.
    std::shared_ptr<const Certificates> certificates;  // That its channel shows; null without TLS.
    std::unique_ptr<v1::Admin::Stub> stub;
    bool is_kept = false;  // From an earlier question: that it fails may say nothing of the agent.
  };

  explicit KeptStubs(Tls tls) : tls_(std::move(tls)) {}

  // A kept one that shows the certificates of now, else a new one.
  Stub take(const std::string& host, const std::string& address);
  Stub take_new(const std::string& host, const std::string& address) const;
  // Keeps one that was taken and has served: one whose call failed is not given back, so that names
  // are resolved again.
  void give_back(Stub stub);
  // Drops what leads to others than these hosts and addresses.
  void keep_only(const std::vector<std::pair<std::string, std::string>>& agents);
  size_t count() const;

 private:
  const Tls tls_;
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, Stub> kept_;  // Guarded by it.
};

}  // namespace tutti
